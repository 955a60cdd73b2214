//! Annotates nodes with the time for which a kubelet may use a cached Secret or ConfigMap. In a larger cluster it is
//! longer. Only kubelets with `configMapAndSecretChangeDetectionStrategy: Cache` read the annotation.
//!
//! Guarantees: the annotation of each node follows the number of nodes, with hysteresis. When the wanted value changes,
//! all nodes are annotated, at the pace of the client's rate limit. No other annotation is changed.
//!
//! Reading order: `handlers` (which events enqueue a node, and when the value changes), `sync` (one node), `rules` (the
//! value, pure).

mod handlers;
mod sync;

mod rules;

use std::{fmt, sync::Arc};

use api::{Atom, Node};
use client::Api;
use controller::{Backoff, Builder, ByDefault, Factor, Lane, Outcome, Profile, Proof, Queue, Registration, Right};
use informer::Store;
use parking_lot::Mutex;

use crate::{rules::ttl_step::TtlStep, sync::SyncError};

/// The canonical name.
pub const NAME: &str = "ttl-controller";

/// The number of workers, as upstream.
const WORKERS: usize = 5;

/// The rights of upstream's ClusterRole `system:controller:ttl-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[Right { group: "", resource: "nodes", verbs: &["patch"] }],
    paths: &[],
    watches: &[Right { group: "", resource: "nodes", verbs: &["list", "watch"] }],
    marks: &[],
};

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "ttl",
    service_account: "ttl-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[],
    gates: &[],
    start: |builder, _| start(builder),
};

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder) {
    let nodes = builder.informer::<Node>(Proof::Needed);
    let queue = builder.queue::<Key>("ttlcontroller", Backoff::default());
    let ctx = Arc::new(Ctx {
        api: builder.api(Factor::ONE),
        nodes: nodes.store().clone(),
        queue: queue.clone(),
        step: Mutex::default(),
    });
    let handler_ctx = ctx.clone();
    builder.on_change(&nodes, None, move |change, lane| handlers::on_node(&handler_ctx, change, lane));
    builder.workers(&queue, WORKERS, move |key: Key| {
        let ctx = ctx.clone();
        async move {
            match key {
                Key::Node(name) => sync::sync(&ctx, &name).await,
                Key::AllNodes => Ok::<_, SyncError>(ctx.enqueue_all()),
            }
        }
    });
}

/// A key in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A node.
    Node(Atom),
    /// The wanted value has changed, so all nodes must be enqueued.
    AllNodes,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => f.write_str(name),
            Self::AllNodes => f.write_str("all nodes"),
        }
    }
}

/// The state that all syncs share.
struct Ctx {
    api: Api,
    nodes: Store<Node>,
    queue: Queue<Key>,
    /// Begins anew with each term, as upstream.
    step: Mutex<TtlStep>,
}

impl Ctx {
    /// Enqueues all nodes behind those that have changed.
    fn enqueue_all(&self) -> Outcome {
        for node in self.nodes.entries() {
            self.queue.add_to(Key::Node(node.meta().name.into()), Lane::Slow);
        }
        Outcome::Done
    }
}
