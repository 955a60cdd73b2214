use http::HeaderValue;
use serde_json::Value;

use crate::{
    TestCluster,
    store::{Event, State, storage_key},
    stored::{Change, Stored},
};

type Observer = Box<dyn FnMut(&Written) + Send>;

/// The callbacks for every write.
#[derive(Default)]
pub(crate) struct Observers(Vec<Observer>);

tokio::task_local! {
    /// The `User-Agent` of the request that is being served.
    pub(crate) static USER_AGENT: Option<HeaderValue>;
}

/// One stored write.
pub struct Written<'a> {
    state: &'a State,
    event: &'a Event,
    user_agent: Option<String>,
}

impl TestCluster {
    /// Calls `observer` for every write from now on, in the order of versions, before the response is sent. The
    /// observer must use only [`Written`], because the cluster is locked during the call.
    pub fn observe(&self, observer: impl FnMut(&Written) + Send + 'static) {
        self.shared.state.lock().observers.0.push(Box::new(observer));
    }
}

impl State {
    /// Calls the observers.
    pub(crate) fn notify(&mut self, event: &Event) {
        if self.observers.0.is_empty() {
            return;
        }
        let mut observers = std::mem::take(&mut self.observers.0);
        let text = |it: &HeaderValue| it.to_str().unwrap_or_default().to_owned();
        let user_agent = USER_AGENT.try_with(|it| it.as_ref().map(text).unwrap_or_default()).ok();
        let written = Written { state: self, event, user_agent };
        for observer in &mut observers {
            observer(&written);
        }
        self.observers.0 = observers;
    }
}

impl Written<'_> {
    /// The version of the write.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.event.version
    }

    /// Whether the object was added, changed or removed.
    #[must_use]
    pub fn change(&self) -> Change {
        self.event.change
    }

    /// Such as `pods` or `jobs.batch`.
    #[must_use]
    pub fn resource(&self) -> String {
        self.event.object.kind.qualified()
    }

    /// Such as `Pod`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.event.object.kind.kind
    }

    /// Empty for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.event.object.namespace()
    }

    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        self.event.object.name()
    }

    /// The state before; `None` for a new object.
    #[must_use]
    pub fn before(&self) -> Option<Value> {
        self.event.previous.as_deref().map(Stored::decode)
    }

    /// The state after; `None` for a removed object.
    #[must_use]
    pub fn after(&self) -> Option<Value> {
        (self.event.change != Change::Removed).then(|| self.event.object.decode())
    }

    /// The `User-Agent` of the request, empty if it had none; `None` for direct access.
    #[must_use]
    pub fn user_agent(&self) -> Option<&str> {
        self.user_agent.as_deref()
    }

    /// Another object after this write; the resource is named as in [`TestCluster::get`].
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let kind = self.state.find(resource)?;
        self.state.stored(&kind.table(), &storage_key(&kind, namespace, name)).map(|it| it.decode())
    }

    /// All objects of a namespace, or of the cluster if `namespace` is empty, after this write.
    #[must_use]
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let Some(kind) = self.state.find(resource) else { return Vec::new() };
        let objects = self.state.tables.get(&kind.table()).into_iter().flat_map(|it| it.objects.values());
        objects.filter(|it| namespace.is_empty() || it.namespace() == namespace).map(|it| it.decode()).collect()
    }
}
