//! The embedded API server on loopback, with an audit log like a real one's.

use std::{collections::BTreeSet, fs::File, io::Write, sync::Arc, sync::Mutex};

use clock::Clock;
use e2e::{Identity, Options, Site};
use serde_json::{Value, json};
use test_cluster::{Interception, Recorded, Served, TestCluster};
use tokio::runtime::{Builder, Runtime};

/// Namespace and resource.
type Forbidden = Arc<Mutex<BTreeSet<(String, String)>>>;

/// The embedded server; its port is closed on drop.
pub(crate) struct Embedded {
    forbidden: Forbidden,
    _served: Served,
    /// A runtime of its own, because scenarios that share a server have one runtime each.
    runtime: Option<Runtime>,
    site: Site,
}

impl Embedded {
    pub(crate) async fn start(options: &Options) -> anyhow::Result<Self> {
        anyhow::ensure!(options.apiserver_flags.is_empty(), "the embedded server has no flags");
        let clock = Clock::system();
        let cluster = TestCluster::new(clock.clone());
        cluster.set_recording(false);
        let mut site = Site::new(None)?;
        if options.audit {
            let mut log = File::create(site.audit_log())?;
            cluster.on_response(move |call| {
                // If the line cannot be written, for example because the disk is full, a scenario fails.
                let _ = writeln!(log, "{}", audit_line(call, &clock));
            });
        }
        let forbidden = Forbidden::default();
        let bans = forbidden.clone();
        cluster.intercept(move |call| interception(call, &bans));

        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let served = runtime.spawn(async move { cluster.serve().await }).await??;
        site.set_port(served.addr.port());
        site.set_authority(&served.ca_pem)?;
        Ok(Self { forbidden, _served: served, runtime: Some(runtime), site })
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) fn forbid(&self, namespace: &str, resource: &str) {
        self.forbidden.lock().unwrap().insert((namespace.to_owned(), resource.to_owned()));
    }

    pub(crate) fn permit(&self, namespace: &str, resource: &str) {
        self.forbidden.lock().unwrap().remove(&(namespace.to_owned(), resource.to_owned()));
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A runtime must not wait for its tasks inside another runtime.
            runtime.shutdown_background();
        }
    }
}

/// Refuses like an admission policy.
fn interception(call: &Recorded, forbidden: &Forbidden) -> Interception {
    let deletes = matches!(call.verb, "delete" | "deletecollection") && call.group.is_empty();
    let what = (call.namespace.clone(), call.resource.clone());
    if deletes && forbidden.lock().is_ok_and(|it| it.contains(&what)) {
        let message = format!("{} {:?} is forbidden: denied request: {} stay", what.1, call.name, what.1);
        return Interception::status(422, "Invalid", &message);
    }
    Interception::Pass
}

/// The line that a real server would log for this call.
fn audit_line(call: &Recorded, clock: &Clock) -> Value {
    let completed = clock.wall();
    let took = clock.now().saturating_duration_since(call.at);
    let uri = if call.query.is_empty() { call.path.clone() } else { format!("{}?{}", call.path, call.query) };
    // In the audit log, a namespace is in itself.
    let namespace = if call.resource == "namespaces" { &call.name } else { &call.namespace };
    let kept = call.resource == "leases" || call.resource == "namespaces";
    json!({
        "verb": call.verb,
        "requestURI": uri,
        "userAgent": call.user_agent,
        "user": { "username": Identity::user_of(&call.token) },
        "objectRef": {
            "resource": call.resource,
            "subresource": call.subresource,
            "namespace": namespace,
            "name": call.name,
            "apiGroup": call.group,
        },
        "responseStatus": { "code": call.status },
        "requestObject": if kept { call.json() } else { Value::Null },
        "requestReceivedTimestamp": completed.checked_sub(took).unwrap_or(completed).to_string(),
        "stageTimestamp": completed.to_string(),
    })
}
