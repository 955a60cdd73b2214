//! Replaces the pods of a Deployment step by step when its template changes.
//!
//! Guarantees: the sum of the sizes of its ReplicaSets is never raised above `replicas` plus the surge, and old ones are
//! scaled down only while enough pods are available. With the strategy Recreate no new pod is created before all old ones
//! are gone. A ReplicaSet is never created twice, because its name follows from the template. All sizes are from a cache
//! that shows the own last writes, and each change of a ReplicaSet has its resourceVersion as precondition.
//!
//! Reading order: `sync` (one Deployment, top to bottom), `handlers` (which events enqueue a Deployment). Then `rules`,
//! which decides and is pure. Then the writes: `apply`. Last the shared state: `memory`, `metrics`.

mod handlers;
mod sync;

mod apply;

mod memory;
mod metrics;

mod rules;

#[cfg(test)]
mod testing;

use std::sync::Arc;

use api::{Atom, Deployment, Entry, ObjectKey, Pod, ReplicaSet, Uid};
use client::Api;
use clock::Clock;
use controller::{
    Backoff, Builder, ByDefault, ConsistencyStore, ControllerFlag, Factor, FlagKind, Mark, Profile, Proof, Queue,
    Registration, Right, Settings,
};
use events::{EventType, Recorder};
use informer::{Index, Informer};
use tokio_util::sync::CancellationToken;
use workload::{ObjectWriter, Owner};

use crate::{memory::Memory, metrics::Meters};

/// The canonical name.
pub const NAME: &str = "deployment-controller";

/// The rights of upstream's ClusterRole `system:controller:deployment-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        // The whole Deployment is written only for a rollback.
        Right { group: "apps", resource: "deployments", verbs: &["get", "update"] },
        Right { group: "apps", resource: "deployments/status", verbs: &["update"] },
        // Required by the admission plugin OwnerReferencesPermissionEnforcement for `blockOwnerDeletion`.
        Right { group: "apps", resource: "deployments/finalizers", verbs: &["update"] },
        Right { group: "apps", resource: "replicasets", verbs: &["get", "create", "patch", "delete"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "apps", resource: "deployments", verbs: &["list", "watch"] },
        Right { group: "apps", resource: "replicasets", verbs: &["list", "watch"] },
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
    ],
    marks: &[Mark { list: "/apis/apps/v1/deployments?limit=50", subresource: "status" }],
};

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "deployment",
    service_account: "deployment-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Deployment-controller flags",
        name: "concurrent-deployment-syncs",
        kind: FlagKind::Workers,
        default: "5",
        help: "Concurrent syncs of Deployments.",
        is_upstream: true,
    }],
    gates: &["DeploymentReplicaSetTerminatingReplicas"],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-deployment-syncs`
    pub workers: usize,
    /// The feature gate DeploymentReplicaSetTerminatingReplicas (KEP-3973).
    pub reports_terminating: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, reports_terminating: true }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            workers: settings.workers("concurrent-deployment-syncs"),
            reports_terminating: settings.is_enabled("DeploymentReplicaSetTerminatingReplicas"),
        }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers, reports_terminating } = options;
    let deployments = builder.informer::<Deployment>(Proof::Needed);
    let sets = builder.informer::<ReplicaSet>(Proof::Needed);
    // The strategy Recreate creates pods when the cache shows no old ones.
    let pods = builder.informer::<Pod>(Proof::Needed);
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder(api.clone());
    let metrics = builder.deps().metrics.clone();
    let clock = builder.deps().clock.clone();
    let consistency = ConsistencyStore::new("deployment_controller", "Deployment", true, &metrics, clock.clone());
    let consistency = Arc::new(consistency);
    let queue = builder.queue("deployment", Backoff::default());
    let writer = ObjectWriter::recording(api, consistency.clone(), sets.watched(), queue.clone());
    let ctx = Arc::new(Ctx {
        writer,
        recorder,
        memory: Memory::default(),
        consistency,
        reports_terminating,
        queue,
        meters: Meters::new(&metrics),
        clock,
        stopping: builder.deps().stopping.clone(),
        of_namespace: deployments.store().declare_index("deployment: namespace", namespace_of),
        deployments: deployments.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
    });
    let handler_ctx = ctx.clone();
    builder.on_change(&deployments, None, move |change, lane| handlers::on_deployment(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&sets, None, move |change, lane| handlers::on_set(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::on_pod(&handler_ctx, change, lane));
    let queue = ctx.queue.clone();
    builder.workers(&queue, workers, move |key: ObjectKey| {
        let ctx = ctx.clone();
        async move { sync::sync(&ctx, &key).await }
    });
}

/// The namespace of a Deployment, for the Deployments that may adopt a ReplicaSet.
fn namespace_of(entry: &Entry<Deployment>) -> Option<Atom> {
    // A Deployment that does not decode selects no ReplicaSet.
    entry.readable().map(|it| it.meta.namespace.clone())
}

/// The state that all syncs share.
struct Ctx {
    /// Writes the owner references of ReplicaSets.
    writer: ObjectWriter,
    recorder: Recorder,
    deployments: Informer<Deployment>,
    of_namespace: Index<Deployment, Atom>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    queue: Queue<ObjectKey>,
    memory: Memory,
    consistency: Arc<ConsistencyStore>,
    reports_terminating: bool,
    meters: Meters,
    clock: Clock,
    /// Cancelled when the manager stops. A sync then ends between two calls.
    stopping: CancellationToken,
}

impl Ctx {
    fn api(&self) -> &Api {
        self.writer.api()
    }

    fn send_event(&self, owner: &Owner, type_: EventType, reason: &str, message: String) {
        self.recorder.event(owner.reference(), type_, reason, message);
    }

    /// Removes what is kept about a deleted Deployment.
    fn remove(&self, deployment: &Uid) {
        self.memory.remove(deployment);
        self.consistency.remove(deployment);
        self.meters.remove(deployment);
    }

    /// Clears the memory of a Deployment that was deleted during the sync. Its delete handler may have run before the
    /// sync stored something.
    fn clear_memory_of_deleted(&self, deployment: &Deployment) {
        if self.deployments.store().is_gone(&deployment.meta.namespace, &deployment.meta.name, &deployment.meta.uid) {
            self.remove(&deployment.meta.uid);
        }
    }
}
