use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::eventually;

/// The API server's audit log: all calls with user and time.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    /// How many bytes of the file have been read.
    offset: u64,
    /// The beginning of a line that is not written completely yet.
    rest: Vec<u8>,
    events: Vec<AuditEvent>,
}

/// One call to the API server, logged when it was answered.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// The user agent of the client.
    #[serde(default)]
    pub user_agent: String,
    user: User,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    /// The body, for writes whose body is logged.
    #[serde(default)]
    pub request_object: Value,
    /// When the request was received.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// When the response was complete.
    #[serde(rename = "stageTimestamp")]
    pub completed: Timestamp,
}

#[derive(Debug, Clone, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    api_group: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl AuditEvent {
    /// The user of the call.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// The pod to which the token of the client is bound; empty for other credentials.
    #[must_use]
    pub fn pod(&self) -> &str {
        let names = self.user.extra.get("authentication.kubernetes.io/pod-name");
        names.and_then(|it| it.first()).map_or("", String::as_str)
    }

    /// `pods`, `namespaces/finalize`; empty for calls that concern no resource.
    #[must_use]
    pub fn resource(&self) -> String {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    /// The namespace of the object, or the namespace itself.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.object_ref.namespace
    }

    /// The object's name; empty for collections.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// The status code of the response.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.response_status.code
    }

    /// True for a successful response.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code())
    }

    /// True for every call that changes something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(&*self.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// True for a token or access review, which is a POST that changes nothing.
    #[must_use]
    pub fn is_review(&self) -> bool {
        matches!(&*self.object_ref.api_group, "authentication.k8s.io" | "authorization.k8s.io")
    }

    /// True for a write of a controller's own work: no Lease, no Event, no review and no token.
    #[must_use]
    pub fn is_work(&self) -> bool {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        let apart = matches!(&**resource, "leases" | "events") || subresource == "token";
        self.is_write() && !apart && !self.is_review()
    }

    /// True for a call of a controller with an account of its own.
    #[must_use]
    pub fn is_by_controller(&self) -> bool {
        self.user().starts_with("system:serviceaccount:kube-system:")
    }

    /// One line with user, call and status code.
    #[must_use]
    pub fn summary(&self) -> String {
        format!("{}: {} {} {}", self.user(), self.verb, self.uri, self.code())
    }

    /// The holder that a successful write of a Lease has set; empty after a release.
    #[must_use]
    pub fn lease_holder(&self) -> Option<&str> {
        let written = self.object_ref.resource == "leases" && self.is_write() && self.succeeded();
        written.then(|| self.request_object["spec"]["holderIdentity"].as_str().unwrap_or_default())
    }
}

impl Audit {
    pub(crate) fn open(path: PathBuf) -> Self {
        Self { path, offset: 0, rest: Vec::new(), events: Vec::new() }
    }

    /// All calls so far, in the order in which they were answered.
    ///
    /// # Errors
    /// If the log cannot be read, for example because the control plane writes none.
    pub fn events(&mut self) -> anyhow::Result<&[AuditEvent]> {
        let mut file = File::open(&self.path).with_context(|| format!("audit log {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let read = file.read_to_end(&mut self.rest)?;
        self.offset += u64::try_from(read)?;
        let complete = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |it| it + 1);
        for line in self.rest[..complete].split(|&byte| byte == b'\n').filter(|it| !it.is_empty()) {
            let event = serde_json::from_slice(line).with_context(|| String::from_utf8_lossy(line).into_owned())?;
            self.events.push(event);
        }
        self.rest.drain(..complete);
        Ok(&self.events)
    }

    /// Waits for a call that matches `wanted` and returns the first.
    ///
    /// # Errors
    /// If there is none after `within`.
    pub async fn first(
        &mut self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&AuditEvent) -> bool,
    ) -> anyhow::Result<AuditEvent> {
        eventually(what, within, async || Ok(self.events()?.iter().find(|it| wanted(it)).cloned())).await
    }

    /// The last call that matches `wanted`.
    ///
    /// # Errors
    /// If there is none so far.
    pub fn last(&mut self, what: &str, wanted: impl Fn(&AuditEvent) -> bool) -> anyhow::Result<AuditEvent> {
        let found = self.events()?.iter().rev().find(|it| wanted(it)).cloned();
        found.with_context(|| format!("no {what} in the audit log"))
    }

    /// How many calls so far match `wanted`.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn count(&mut self, wanted: impl Fn(&AuditEvent) -> bool) -> anyhow::Result<usize> {
        Ok(self.events()?.iter().filter(|it| wanted(it)).count())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const RELEASE: &str = r#"{"verb":"update","requestURI":"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l","userAgent":"mini-kcm","user":{"username":"replica-0"},"objectRef":{"resource":"leases","namespace":"kube-system","name":"l","apiGroup":"coordination.k8s.io"},"responseStatus":{"code":200},"requestObject":{"spec":{"holderIdentity":""}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.001001Z"}"#;
    const DELETE: &str = r#"{"verb":"deletecollection","requestURI":"/api/v1/namespaces/a/pods","user":{"username":"replica-1"},"objectRef":{"resource":"pods","namespace":"a"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:00.051001Z","stageTimestamp":"2026-01-01T00:00:00.061001Z"}"#;

    #[test]
    fn lines_are_read_when_they_are_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = File::create(&path).unwrap();
        let mut audit = Audit::open(path);
        let (begin, end) = DELETE.split_at(40);
        write!(file, "{RELEASE}\n{begin}").unwrap();
        assert_eq!(audit.events().unwrap().len(), 1);
        writeln!(file, "{end}").unwrap();
        assert_eq!(audit.events().unwrap().len(), 2);

        let [release, delete] = audit.events().unwrap() else { panic!("two events") };
        assert_eq!((release.lease_holder(), release.is_work()), (Some(""), false));
        assert_eq!((delete.lease_holder(), delete.is_work(), delete.resource().as_str()), (None, true, "pods"));
        assert_eq!(delete.received.duration_since(release.completed).as_millis(), 50);
    }
}
