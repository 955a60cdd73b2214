//! The user: creates the objects of samples and carries out their steps.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use fake_nodes::{Change, list_and_watch};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::Value;
use tasks::Spawner;

use crate::{
    samples::{Act, Operation, Sample, SampleContext},
    shared_state::SharedState,
    target::PodPlacement,
};

/// How many times a request is tried, because the server may not be ready or chaos may inject faults.
const MAX_TRIES: u32 = 60;
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A user with kubectl.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) client: Client,
    pub(crate) context: SampleContext,
    pub(crate) placement: PodPlacement,
    pub(crate) state: Arc<SharedState>,
}

impl User {
    /// Watches all objects of a kind, in one namespace or (if it is empty) in the whole cluster, and stores them in the
    /// shared state.
    pub(crate) fn watch(&self, api_version: &str, kind: &'static str, namespace: &str, spawner: &Spawner) {
        let (api, state, namespace) =
            (self.api(api_version, kind, namespace), self.state.clone(), namespace.to_owned());
        // An object always serializes.
        let value = |it: DynamicObject| serde_json::to_value(it).unwrap_or_default();
        let on_change = move |change: Change<DynamicObject>| {
            state.change(|known| match change {
                Change::All(all) => known.observed.replace(kind, &namespace, all.into_iter().map(value).collect()),
                Change::Put(it) => known.observed.put(kind, value(it)),
                Change::Gone(it) => known.observed.remove(kind, &value(it)),
            });
        };
        spawner.spawn("watch", list_and_watch(api, on_change));
    }

    /// Creates the objects of a sample.
    pub(crate) async fn set_up(self, sample: &'static Sample) {
        let objects = (sample.objects)(&self.context);
        let (mut failure, mut made) = (None, Vec::new());
        for object in objects {
            let object = with_uids_of_owners(self.placement.apply(object), &made);
            match self.create(&object).await {
                Ok(it) => made.push(it),
                Err(err) => {
                    failure = Some(format!("{err:#}"));
                    break;
                }
            }
        }
        self.state.change(|it| match failure {
            None => drop(it.created.insert(sample.name)),
            Some(why) => drop(it.failed.insert(sample.name, why)),
        });
    }

    /// Creates an object and returns it, or returns the existing one.
    pub(crate) async fn create(&self, object: &Value) -> anyhow::Result<DynamicObject> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let api = self.api(&api_version, &kind, &namespace);
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        let what = format!("create {kind} {name}");
        let create = || {
            let (api, object) = (api.clone(), typed.clone());
            async move { api.create(&PostParams::default(), &object).await }
        };
        if let Some(created) = retry(&what, 409, create).await? {
            return Ok(created);
        }
        let read = || {
            let (api, name) = (api.clone(), name.clone());
            async move { api.get(&name).await }
        };
        retry(&format!("read {kind} {name}"), 404, read)
            .await?
            .with_context(|| format!("{what}: it was deleted meanwhile"))
    }

    /// Carries out an action on an object. If the object does not exist any more, nothing is left to do.
    pub(crate) async fn act(&self, act: &Act) -> anyhow::Result<()> {
        let Act { api_version, kind, namespace, name, operation } = act;
        let api = self.api(api_version, kind, namespace);
        let what = match operation {
            Operation::Delete | Operation::Cascade(_) => format!("delete {kind} {name}"),
            Operation::Merge(_) => format!("patch {kind} {name}"),
        };
        let call = || {
            let (api, name, operation) = (api.clone(), name.clone(), operation.clone());
            async move {
                match operation {
                    Operation::Delete => api.delete(&name, &DeleteParams::default()).await.map(drop),
                    Operation::Cascade(policy) => {
                        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
                        api.delete(&name, &params).await.map(drop)
                    }
                    Operation::Merge(patch) => {
                        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
                    }
                }
            }
        };
        retry(&what, 404, call).await.map(drop)
    }

    /// The client for objects of a kind in a namespace.
    pub(crate) fn api(&self, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }
}

/// Owner references name their owner by kind and name; the server requires the uid too.
fn with_uids_of_owners(mut object: Value, made: &[DynamicObject]) -> Value {
    let Some(references) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else {
        return object;
    };
    for reference in references {
        let is_owner = |it: &&DynamicObject| {
            let kind = it.types.as_ref().map(|it| it.kind.as_str());
            reference["kind"].as_str() == kind && reference["name"].as_str() == it.metadata.name.as_deref()
        };
        let uid = made.iter().find(is_owner).and_then(|it| it.metadata.uid.clone());
        reference["uid"] = Value::from(uid);
    }
    object
}

/// Tries until it succeeds, for half a minute at most. The status code `fine` means that nothing is to be done and
/// gives `None`.
async fn retry<T, Called>(what: &str, fine: u16, call: impl Fn() -> Called) -> anyhow::Result<Option<T>>
where
    Called: Future<Output = kube::Result<T>>,
{
    let mut tries = 0;
    loop {
        let error = match tokio::time::timeout(CALL_TIMEOUT, call()).await {
            Ok(Ok(done)) => return Ok(Some(done)),
            Ok(Err(kube::Error::Api(status))) if status.code == fine => return Ok(None),
            // A request that the server does not accept now will not be accepted later.
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 404 | 415 | 422 | 501) => {
                return Err(kube::Error::Api(status)).with_context(|| what.to_owned());
            }
            Ok(Err(err)) => anyhow::Error::from(err),
            Err(_) => anyhow::anyhow!("no answer for {} s", CALL_TIMEOUT.as_secs()),
        };
        tries += 1;
        if tries == MAX_TRIES {
            return Err(error.context(what.to_owned()));
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
