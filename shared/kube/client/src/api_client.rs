use std::{fmt::Write as _, sync::Arc, time::Duration};

use api::{
    Atom, Cached, Meta, Namespace, ObjectKey, Page, RawMetadata, Resource, StatusOwner, Typed, Uid, Version, uri,
};
use bytes::Bytes;
use clock::{Instant, Timestamp};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use tower::ServiceExt;

use crate::{
    ApiError, DeletedObject, Incoming, RecentWrites, Stack,
    layers::{Create, CreateTimeouts, RateLimiter},
};

/// Requests the response of a write as metadata only: decoding a returned Pod costs more than sending it.
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The form for deletecollection. With the singular form the server deletes the objects and then returns an error.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const JSON: &str = "application/json";

/// The typed client of a controller. All writes go through it.
#[derive(Clone)]
pub struct Api {
    pub(crate) reads: Stack,
    pub(crate) writes: Stack,
    /// Set only in a fenced client.
    pub(crate) create_timeouts: Option<Arc<CreateTimeouts>>,
    /// The writes that a leader reports to its successor; only in clients that the term fences.
    pub(crate) recent_writes: Option<RecentWrites>,
    pub(crate) rate_limiter: Arc<RateLimiter>,
}

/// The stored object as the response of a write describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The object's name, which the server may have generated.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Uid,
    /// The resourceVersion of this write.
    pub version: Version,
    /// creationTimestamp in seconds since the epoch, if the response contains it.
    pub creation: Option<i64>,
    /// The UID of the owner that controls it.
    pub controller: Option<Uid>,
}

/// A patch body with its media type.
#[derive(Debug, Clone)]
pub enum Patch {
    /// JSON Patch (RFC 6902).
    Json(Value),
    /// JSON Merge Patch (RFC 7386).
    Merge(Value),
    /// Strategic merge patch, for built-in kinds only.
    Strategic(Value),
}

/// The propagation policy for the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector deletes the dependents after the owner.
    Background,
    /// The dependents are deleted before the owner.
    Foreground,
    /// The dependents are not deleted.
    Orphan,
}

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// The options of a DELETE.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// `None` means the server's default.
    pub propagation: Option<Propagation>,
    /// UID precondition: no other object of the same name is deleted.
    pub uid: Option<Uid>,
    /// resourceVersion precondition: the object is deleted only if it is unchanged.
    pub version: Option<Version>,
    /// Grace period in seconds; `None` means the object's own.
    pub grace: Option<u32>,
}

/// The query parameters of a list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// The maximum number of items in a page; 0 means no limit.
    pub limit: u32,
    /// The continue token of the previous page.
    pub next: String,
    /// `resourceVersion`; empty means the most recent state by a consistent read.
    pub version: String,
}

impl Api {
    /// How long the rate limiter would delay a request that is sent now. The server does not cause this delay.
    #[must_use]
    pub fn rate_limiter_delay(&self, now: Instant) -> Duration {
        self.rate_limiter.delay(now)
    }

    /// Reads one object from the server, not from the cache.
    ///
    /// # Errors
    /// As [`ApiError`]. For an object that does not decode, `Unknown` with the name of the field.
    pub async fn get<T: Cached>(&self, resource: &Resource, namespace: &str, name: &str) -> Result<T, ApiError> {
        let bytes = self.read(&resource.object(namespace, name), JSON).await?;
        T::decode_object(&bytes).map_err(|err| ApiError::unknown(format!("{resource} {namespace}/{name}: {err}")))
    }

    /// As [`Api::get`], but `None` if there is no such object.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn get_opt<T: Cached>(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<T>, ApiError> {
        match self.get(resource, namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(err) if err.is_absence_of(name) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// The same by a list with a field selector, which needs the right to list only. `None` if there is no such object.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn find<T: Cached>(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<T>, ApiError> {
        let path = format!("{}?fieldSelector=metadata.name%3D{name}", resource.collection(Some(namespace)));
        let bytes = self.read(&path, JSON).await?;
        let fail = |why: String| ApiError::unknown(format!("{resource} {namespace}/{name}: {why}"));
        let page = T::decode_page(&bytes).map_err(|err| fail(err.to_string()))?;
        page.items.into_iter().next().transpose().map_err(|(_, why)| fail(why))
    }

    /// Reads the metadata of one object from the server. A server that cannot return metadata only returns the whole
    /// object.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn get_metadata(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Meta, ApiError> {
        let bytes = self.get_raw_metadata(resource, namespace, name).await?;
        Meta::decode_object(&bytes).map_err(|err| ApiError::unknown(format!("{resource} {namespace}/{name}: {err}")))
    }

    /// Reads the same metadata without decoding it, for a caller that sends it back unchanged.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn get_raw_metadata(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Bytes, ApiError> {
        self.read(&resource.object(namespace, name), METADATA).await
    }

    /// Lists one page of objects as metadata, in `namespace` or in the whole cluster.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn list_metadata(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<Page<Meta>, ApiError> {
        let path = format!("{}?{}", resource.collection(namespace), options.query());
        let bytes = self.read(&path, METADATA_LIST).await?;
        Meta::decode_page(&bytes).map_err(|err| ApiError::unknown(format!("list of {resource}: {err}")))
    }

    /// Sends a GET of any path, for example for discovery, and returns the bytes of the response.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn read(&self, path: &str, accept: &str) -> Result<Bytes, ApiError> {
        let request = request(Method::GET, path, accept, None)?;
        let response = send(&self.reads, request).await?;
        collect(response).await
    }

    /// The same as [`Api::read`], with the server's time from the `Date` header, if the response has one.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn read_dated(&self, path: &str, accept: &str) -> Result<(Bytes, Option<Timestamp>), ApiError> {
        let response = send(&self.reads, request(Method::GET, path, accept, None)?).await?;
        let date = response.headers().get(header::DATE).and_then(|it| it.to_str().ok());
        let date = date.and_then(|it| jiff::fmt::rfc2822::parse(it).ok()).map(|it| it.timestamp());
        Ok((collect(response).await?, date))
    }

    /// Creates `object` in `namespace`, which is ignored for cluster-scoped types.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        object: &impl Serialize,
    ) -> Result<Written, ApiError> {
        let path = without_field_validation(resource, &resource.collection(Some(namespace)));
        let mut request = request(Method::POST, &path, METADATA, Some((JSON, encode(object)?)))?;
        let Some(timeouts) = self.create_timeouts.as_ref().filter(|it| it.are_sent()) else {
            return self.send_write(resource, request).await;
        };
        request.extensions_mut().insert(Create);
        self.send_write(resource, request).await.inspect_err(|err| timeouts.on_create_failed(err))
    }

    /// How long the server may still process creates that were sent before now, because their `timeout` limits it. `None`
    /// if only the server's own limit applies.
    #[must_use]
    pub fn longest_create(&self) -> Option<Duration> {
        self.create_timeouts.as_ref()?.longest_create()
    }

    /// Sends a POST and returns the body of the response, for reviews and tokens. It does not request metadata only,
    /// because that would drop the result.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn post(&self, path: &str, object: &impl Serialize) -> Result<Bytes, ApiError> {
        let request = request(Method::POST, path, JSON, Some((JSON, encode(object)?)))?;
        collect(send(&self.writes, request).await?).await
    }

    /// Patches an object or one of its subresources, for example `Some("status")`.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn patch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        sub: Option<&str>,
        patch: &Patch,
    ) -> Result<Written, ApiError> {
        let (media_type, body) = match patch {
            Patch::Json(body) => ("application/json-patch+json", body),
            Patch::Merge(body) => ("application/merge-patch+json", body),
            Patch::Strategic(body) => ("application/strategic-merge-patch+json", body),
        };
        let mut path = resource.object(namespace, name);
        if let Some(sub) = sub {
            path.push('/');
            path.push_str(sub);
        }
        self.write(resource, Method::PATCH, &path, media_type, encode(body)?).await
    }

    /// Replaces the status of `object`. The resourceVersion of the object is the precondition, or that of `after`, our
    /// own last write of the object in this sync.
    ///
    /// # Errors
    /// As [`ApiError`]; `Conflict` if the object was written in the meantime.
    pub async fn put_status<T: StatusOwner>(
        &self,
        object: &T,
        after: Option<&Written>,
        status: &impl Serialize,
    ) -> Result<Written, ApiError> {
        let resource = T::resource();
        let metadata = metadata_after(object.raw_metadata(), after)?;
        let body = json!({ "apiVersion": resource.api_version(), "kind": &*resource.kind });
        let body = with_field(body, "metadata", &metadata)?;
        let body = with_field(body, "status", status)?;
        let meta = object.meta();
        let path = format!("{}/status", resource.object(meta.namespace, meta.name));
        self.write(&resource, Method::PUT, &path, JSON, encode(&body)?).await
    }

    /// Replaces `spec.finalizers` of a namespace through the `finalize` subresource. `metadata` and `spec` are from a
    /// live read.
    ///
    /// # Errors
    /// As [`ApiError`]; `Conflict` if the object was written in the meantime.
    pub async fn finalize(
        &self,
        name: &str,
        metadata: &RawMetadata,
        after: Option<&Written>,
        spec: Option<&RawValue>,
        finalizers: &[Atom],
    ) -> Result<Written, ApiError> {
        let mut spec: Value = match spec {
            Some(raw) => serde_json::from_str(raw.get()).map_err(|err| ApiError::unknown(err.to_string()))?,
            None => json!({}),
        };
        let finalizers: Vec<&str> = finalizers.iter().map(|it| &**it).collect();
        spec["finalizers"] = json!(finalizers);
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "spec": spec });
        let body = with_field(body, "metadata", &metadata_after(metadata, after)?)?;
        let path = format!("/api/v1/namespaces/{name}/finalize");
        self.write(&Namespace::resource(), Method::PUT, &path, JSON, encode(&body)?).await
    }

    /// Replaces a whole object, which must be from a live read: a cached object lacks fields.
    ///
    /// # Errors
    /// As [`ApiError`]; `Conflict` if the object was written in the meantime.
    pub async fn replace(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        object: &impl Serialize,
    ) -> Result<Written, ApiError> {
        self.write(resource, Method::PUT, &resource.object(namespace, name), JSON, encode(object)?).await
    }

    /// Deletes one object.
    ///
    /// # Errors
    /// As [`ApiError`]; `Conflict` when a precondition does not hold.
    pub async fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let request =
            request(Method::DELETE, &resource.object(namespace, name), METADATA, Some((JSON, options.encode()?)))?;
        if let Some(recent_writes) = &self.recent_writes {
            let key = ObjectKey::new(namespace, name);
            recent_writes.record_deletion(resource, DeletedObject { key, uid: options.uid.clone() });
        }
        drain(send(&self.writes, request).await?).await
    }

    /// Deletes all objects of a type in a namespace. The response lists the deleted objects and is discarded.
    ///
    /// # Errors
    /// As [`ApiError`].
    pub async fn delete_collection(
        &self,
        resource: &Resource,
        namespace: &str,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let path = resource.collection(Some(namespace));
        let request = request(Method::DELETE, &path, METADATA_LIST, Some((JSON, options.encode()?)))?;
        if let Some(recent_writes) = &self.recent_writes {
            recent_writes.record_unknown_outcome(resource);
        }
        drain(send(&self.writes, request).await?).await
    }

    async fn write(
        &self,
        resource: &Resource,
        method: Method,
        path: &str,
        media_type: &str,
        body: Bytes,
    ) -> Result<Written, ApiError> {
        let path = without_field_validation(resource, path);
        self.send_write(resource, request(method, &path, METADATA, Some((media_type, body)))?).await
    }

    async fn send_write(&self, resource: &Resource, request: Request<crate::Body>) -> Result<Written, ApiError> {
        let write = self.recent_writes.as_ref().map(|it| it.begin_write(resource));
        let outcome = self.send_and_parse(request).await;
        if let Some(write) = write {
            write.record_outcome(&outcome);
        }
        outcome
    }

    async fn send_and_parse(&self, request: Request<crate::Body>) -> Result<Written, ApiError> {
        let path = request.uri().path().to_owned();
        let response = collect(send(&self.writes, request).await?).await?;
        #[derive(Deserialize)]
        struct StoredObject {
            metadata: StoredMetadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct StoredMetadata {
            #[serde(default)]
            name: Box<str>,
            #[serde(default)]
            uid: Uid,
            #[serde(default)]
            resource_version: Version,
            #[serde(default)]
            creation_timestamp: Option<Box<str>>,
            #[serde(default)]
            owner_references: Vec<StoredOwner>,
        }
        #[derive(Deserialize)]
        struct StoredOwner {
            uid: Uid,
            #[serde(default)]
            controller: bool,
        }
        // The server has stored the object. If the response cannot be read, the caller must look up the outcome.
        let StoredObject { metadata } =
            serde_json::from_slice(&response).map_err(|err| ApiError::unknown(format!("response to {path}: {err}")))?;
        let StoredMetadata { name, uid, resource_version, creation_timestamp, owner_references } = metadata;
        let creation = creation_timestamp.and_then(|it| it.parse::<Timestamp>().ok()).map(Timestamp::as_second);
        let controller = owner_references.into_iter().find(|it| it.controller).map(|it| it.uid);
        Ok(Written { name, uid, version: resource_version, creation, controller })
    }
}

impl ListOptions {
    pub(crate) fn query(&self) -> String {
        let mut query = String::new();
        let mut add = |key: &str, value: &str| {
            if !query.is_empty() {
                query.push('&');
            }
            // Writing into a string cannot fail.
            let _ = write!(query, "{key}={}", uri::value(value));
        };
        if self.limit > 0 {
            add("limit", &self.limit.to_string());
        }
        if !self.next.is_empty() {
            add("continue", &self.next);
        }
        if !self.version.is_empty() {
            add("resourceVersion", &self.version);
        }
        query
    }
}

impl DeleteOptions {
    fn encode(&self) -> Result<Bytes, ApiError> {
        let Self { propagation, uid, version, grace } = self;
        let any = uid.is_some() || version.is_some();
        encode(&DeleteBody {
            api_version: "v1",
            kind: "DeleteOptions",
            propagation_policy: propagation.map(Propagation::as_str),
            grace_period_seconds: *grace,
            preconditions: any.then_some(Preconditions { uid: uid.as_ref(), resource_version: version.as_ref() }),
        })
    }
}

/// The JSON form of [`DeleteOptions`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    propagation_policy: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preconditions: Option<Preconditions<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a Uid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a Version>,
}

fn metadata_after(metadata: &RawMetadata, after: Option<&Written>) -> Result<RawMetadata, ApiError> {
    match after {
        Some(written) => metadata.at(&written.version).map_err(|err| ApiError::unknown(err.to_string())),
        None => Ok(metadata.clone()),
    }
}

fn with_field(mut body: Value, field: &str, value: &impl Serialize) -> Result<Value, ApiError> {
    body[field] = serde_json::to_value(value).map_err(|err| ApiError::unknown(err.to_string()))?;
    Ok(body)
}

fn encode(object: &impl Serialize) -> Result<Bytes, ApiError> {
    serde_json::to_vec(object).map(Bytes::from).map_err(|err| ApiError::unknown(format!("cannot encode: {err}")))
}

/// Makes the server decode a write only once. By default it decodes a second time, strictly, to warn about
/// unknown and duplicate fields, and stores the same object (`fieldValidation` in
/// `apiserver/pkg/endpoints/handlers/rest.go`).
///
/// Custom kinds keep the warning, except those in groups `*.k8s.io`, for example gateway.networking.k8s.io. That is
/// acceptable, because only metadata is written to them.
fn without_field_validation(resource: &Resource, path: &str) -> String {
    let is_kubernetes_own = !resource.group.contains('.') || resource.group.ends_with(".k8s.io");
    if is_kubernetes_own { format!("{path}?fieldValidation=Ignore") } else { path.to_owned() }
}

/// A request with a path only. The transport adds the server.
pub(crate) fn request(
    method: Method,
    path: &str,
    accept: &str,
    body: Option<(&str, Bytes)>,
) -> Result<Request<crate::Body>, ApiError> {
    let mut builder = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    let body = match body {
        Some((media_type, bytes)) => {
            builder = builder.header(header::CONTENT_TYPE, media_type);
            bytes
        }
        None => Bytes::new(),
    };
    builder.body(body.into()).map_err(|err| ApiError::unknown(format!("{path}: {err}")))
}

/// Sends a request and turns a response without success into an error.
pub(crate) async fn send(stack: &Stack, request: Request<crate::Body>) -> Result<Response<Incoming>, ApiError> {
    let is_read = request.method() == Method::GET;
    let response = stack.clone().oneshot(request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (status, retry_after) = refusal(response).await?;
    Err(if is_read { ApiError::from_read(status, retry_after) } else { ApiError::from_status(status, retry_after) })
}

/// Reads the status of a refused request and its `Retry-After`.
async fn refusal(response: Response<Incoming>) -> Result<(api::Status, Option<Duration>), ApiError> {
    let code = response.status();
    let retry_after = crate::error::retry_after(&response);
    let body = collect(response).await?;
    // Under overload and for groups that are not served, the body is plain text.
    let mut status: api::Status = serde_json::from_slice(&body).unwrap_or_else(|_| api::Status {
        message: String::from_utf8_lossy(&body[..body.len().min(512)]).trim().to_owned(),
        ..api::Status::default()
    });
    status.code = code.as_u16();
    if status.message.is_empty() {
        status.message = code.canonical_reason().unwrap_or("no reason given").to_owned();
    }
    Ok((status, retry_after))
}

pub(crate) async fn collect(response: Response<Incoming>) -> Result<Bytes, ApiError> {
    let collected = response.into_body().collect().await;
    collected
        .map(http_body_util::Collected::to_bytes)
        .map_err(|err| ApiError::unknown(format!("the response was cut off: {}", crate::error_chain(&*err))))
}

/// Reads a response to its end and discards it.
async fn drain(response: Response<Incoming>) -> Result<(), ApiError> {
    debug_assert!(response.status() != StatusCode::NOT_ACCEPTABLE);
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.map_err(|err| ApiError::unknown(format!("the response was cut off: {}", crate::error_chain(&*err))))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_options_contain_only_what_is_set() {
        let sent = |options: DeleteOptions| serde_json::from_slice::<Value>(&options.encode().unwrap()).unwrap();
        assert_eq!(sent(DeleteOptions::default()), json!({ "apiVersion": "v1", "kind": "DeleteOptions" }));
        let all = DeleteOptions {
            propagation: Some(Propagation::Foreground),
            uid: Some(Uid::new("u")),
            version: Some(Version::new("7")),
            grace: Some(0),
        };
        let want = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 0,
            "preconditions": { "uid": "u", "resourceVersion": "7" },
        });
        assert_eq!(sent(all), want);
    }

    #[test]
    fn only_writes_to_groups_of_kubernetes_skip_field_validation() {
        let groups = ["", "batch", "coordination.k8s.io", "gateway.networking.k8s.io"];
        for (group, without) in groups.map(|it| (it, true)).into_iter().chain([("example.com", false)]) {
            let path = without_field_validation(&Resource::namespaced(group, "v1", "things", "Thing"), "/path");
            assert_eq!(path, if without { "/path?fieldValidation=Ignore" } else { "/path" }, "{group}");
        }
    }

    #[test]
    fn list_options_are_encoded() {
        let options = ListOptions { limit: 1, next: "a/b=".to_owned(), version: "7".to_owned() };
        assert_eq!(options.query(), "limit=1&continue=a%2Fb%3D&resourceVersion=7");
    }
}
