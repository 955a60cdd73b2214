//! The toy: each node has a pod of the same name, like a very small DaemonSet.

use std::time::Duration;

use api::{Atom, Cached, Entry, Node, Pod, Typed};
use client::{Api, ApiError, DeleteOptions};
use controller::{Backoff, Builder, Factor, Outcome, Proof, Queue};
use informer::Informer;
use serde_json::json;

const NAMESPACE: &str = "kube-system";

pub(crate) fn start(builder: &mut Builder) {
    let (nodes, pods) = (builder.informer::<Node>(Proof::Needed), builder.informer::<Pod>(Proof::Needed));
    let queue = builder.queue::<Atom>("toy", Backoff::per_key(Duration::from_millis(50), Duration::from_secs(20)));
    enqueue_on_change(builder, &nodes, &queue);
    enqueue_on_change(builder, &pods, &queue);
    let api = builder.api(Factor::ONE);
    builder.workers(&queue, 2, move |name: Atom| {
        let (api, nodes, pods) = (api.clone(), nodes.clone(), pods.clone());
        async move { sync(&api, &nodes, &pods, &name).await }
    });
}

fn enqueue_on_change<T: Typed>(builder: &mut Builder, informer: &Informer<T>, queue: &Queue<Atom>) {
    let queue = queue.clone();
    builder.on_change(informer, None, move |change, lane| {
        if let Some(changed) = change.new.or(change.old) {
            queue.add_to(Atom::from(Entry::meta(changed).name), lane);
        }
    });
}

async fn sync(api: &Api, nodes: &Informer<Node>, pods: &Informer<Pod>, name: &str) -> Result<Outcome, ApiError> {
    let unreadable = |err: informer::StoreError| ApiError::unknown(err.to_string());
    let node = nodes.store().get("", name).map_err(unreadable)?;
    let pod = pods.store().get(NAMESPACE, name).map_err(unreadable)?;
    match (node, pod) {
        (Some(_), None) => {
            let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec });
            match api.create(&Pod::resource(), NAMESPACE, &pod).await {
                // The cache is behind: the pod's event enqueues the key again.
                Ok(_) | Err(ApiError::AlreadyExists(_)) => Ok(Outcome::Done),
                Err(err) => Err(err),
            }
        }
        // One cache may be older than the other, so a live read checks that the node no longer exists.
        (None, Some(pod)) if is_gone(api, name).await? => {
            let options = DeleteOptions { uid: Some(pod.meta().uid.clone()), ..DeleteOptions::default() };
            match api.delete(&Pod::resource(), NAMESPACE, name, &options).await {
                Ok(()) | Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => Ok(Outcome::Done),
                Err(err) => Err(err),
            }
        }
        _ => Ok(Outcome::Done),
    }
}

async fn is_gone(api: &Api, name: &str) -> Result<bool, ApiError> {
    match api.get::<Node>(&Node::resource(), "", name).await {
        Ok(_) => Ok(false),
        Err(ApiError::NotFound(_)) => Ok(true),
        Err(err) => Err(err),
    }
}
