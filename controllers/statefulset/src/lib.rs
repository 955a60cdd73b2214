//! Runs pods with a stable identity and storage, in order.
//!
//! Guarantees: there are never two pods of one ordinal, because a pod is created only when the one before it is gone
//! from the API. With the policy OrderedReady pods are created and scaled down one at a time. An update deletes no pod
//! below the partition. A claim is never deleted by this controller; the retention policy sets its owner references,
//! and the garbage collector acts on them.
//!
//! Reading order: `sync` (one set, top to bottom), `handlers` (which events enqueue a set). Then `rules`, which decides
//! and is pure. Then the writes: `apply` (pods), `volume_claims`. Last the shared state: `memory`, `metrics`.

mod handlers;
mod sync;

mod apply;
mod volume_claims;

mod memory;
mod metrics;
mod pod_index;

mod rules;

#[cfg(test)]
mod testing;

use std::sync::Arc;

use api::{ControllerRevision, ObjectKey, PersistentVolumeClaim, Pod, StatefulSet, Typed, Uid};
use client::Api;
use clock::{Clock, Instant};
use controller::{
    Backoff, Builder, ByDefault, ConsistencyStore, ControllerFlag, Factor, FlagKind, Mark, Profile, Proof, Queue,
    Registration, Right, Settings,
};
use events::{EventType, Recorder};
use informer::{Index, Informer};
use revisions::{HashLabel, RevisionControl};
use tokio_util::sync::CancellationToken;
use workload::{CallLimit, ObjectWriter, Owner, RETRY_CHECK};

use crate::{
    memory::{LONGEST_LAG, Memory},
    metrics::Meters,
    rules::snapshot::Gates,
};

/// The canonical name.
pub const NAME: &str = "statefulset-controller";

/// The rights of upstream's ClusterRole `system:controller:statefulset-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "apps", resource: "statefulsets", verbs: &["get"] },
        Right { group: "apps", resource: "statefulsets/status", verbs: &["update"] },
        // Required by the admission plugin OwnerReferencesPermissionEnforcement for `blockOwnerDeletion`.
        Right { group: "apps", resource: "statefulsets/finalizers", verbs: &["update"] },
        Right { group: "", resource: "pods/finalizers", verbs: &["update"] },
        Right { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        Right { group: "", resource: "persistentvolumeclaims", verbs: &["get", "create", "update"] },
        Right { group: "apps", resource: "controllerrevisions", verbs: &["get", "create", "delete", "patch"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "apps", resource: "statefulsets", verbs: &["list", "watch"] },
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
        Right { group: "", resource: "persistentvolumeclaims", verbs: &["list", "watch"] },
        Right { group: "apps", resource: "controllerrevisions", verbs: &["list", "watch"] },
    ],
    marks: &[Mark { list: "/apis/apps/v1/statefulsets?limit=50", subresource: "status" }],
};

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "statefulset",
    service_account: "statefulset-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Statefulset-controller flags",
        name: "concurrent-statefulset-syncs",
        kind: FlagKind::Workers,
        default: "5",
        help: "Concurrent syncs of StatefulSets.",
        is_upstream: true,
    }],
    gates: &[
        "StaleControllerConsistencyStatefulSet",
        "StatefulSetSemanticRevisionComparison",
        "MaxUnavailableStatefulSet",
        "StatefulSetRecreateStrategy",
    ],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-statefulset-syncs`
    pub workers: usize,
    /// The feature gate StaleControllerConsistencyStatefulSet: a set waits until the caches show the last writes for
    /// it.
    pub read_own_writes: bool,
    /// The feature gate StatefulSetSemanticRevisionComparison: new defaults of the server are no change of the
    /// template.
    pub compare_semantically: bool,
    /// The feature gate MaxUnavailableStatefulSet.
    pub max_unavailable: bool,
    /// The feature gate StatefulSetRecreateStrategy.
    pub recreate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, read_own_writes: true, compare_semantically: true, max_unavailable: false, recreate: false }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            workers: settings.workers("concurrent-statefulset-syncs"),
            read_own_writes: settings.is_enabled("StaleControllerConsistencyStatefulSet"),
            compare_semantically: settings.is_enabled("StatefulSetSemanticRevisionComparison"),
            max_unavailable: settings.is_enabled("MaxUnavailableStatefulSet"),
            recreate: settings.is_enabled("StatefulSetRecreateStrategy"),
        }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers, read_own_writes, compare_semantically, max_unavailable, recreate } = options;
    let sets = builder.informer::<StatefulSet>(Proof::Needed);
    let pods = builder.informer::<Pod>(Proof::Needed);
    let claims = builder.informer::<PersistentVolumeClaim>(Proof::Needed);
    let revisions = builder.informer::<ControllerRevision>(Proof::Needed);
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder(api.clone());
    let metrics = builder.deps().metrics.clone();
    let clock = builder.deps().clock.clone();
    let consistency =
        ConsistencyStore::new("statefulset_controller", "StatefulSet", read_own_writes, &metrics, clock.clone());
    let consistency = Arc::new(consistency);
    let queue = builder.queue("statefulset", Backoff::default());
    let pod_writer = ObjectWriter::recording(api.clone(), consistency.clone(), pods.watched(), queue.clone());
    let revision_writer = ObjectWriter::recording(api, consistency.clone(), revisions.watched(), queue.clone());
    let ctx = Arc::new(Ctx {
        writer: pod_writer,
        history: RevisionControl::new(revision_writer.clone(), HashLabel::First),
        revision_writer,
        recorder,
        memory: Memory::default(),
        consistency,
        compare_semantically,
        gates: Gates { max_unavailable, recreate },
        queue,
        meters: Meters::new(&metrics),
        call_limit: CallLimit::default(),
        clock,
        stopping: builder.deps().stopping.clone(),
        sets: sets.clone(),
        orphans: pods.store().declare_index("statefulset: orphan", pod_index::set_of_orphan),
        pods: pods.clone(),
        claims: claims.clone(),
        revisions,
    });
    let handler_ctx = ctx.clone();
    builder.on_change(&sets, None, move |change, lane| handlers::on_set(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::on_pod(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&claims, None, move |change, lane| handlers::on_claim(&handler_ctx, change, lane));
    let queue = ctx.queue.clone();
    builder.workers(&queue, workers, move |key: ObjectKey| {
        let ctx = ctx.clone();
        async move { sync::sync(&ctx, &key).await }
    });
}

/// The state that all syncs share.
struct Ctx {
    /// Writes the metadata of pods.
    writer: ObjectWriter,
    /// Writes the metadata of revisions.
    revision_writer: ObjectWriter,
    history: RevisionControl,
    recorder: Recorder,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    orphans: Index<Pod, ObjectKey>,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Informer<ControllerRevision>,
    queue: Queue<ObjectKey>,
    memory: Memory,
    consistency: Arc<ConsistencyStore>,
    compare_semantically: bool,
    gates: Gates,
    meters: Meters,
    call_limit: CallLimit,
    clock: Clock,
    /// Cancelled when the manager stops. A sync then ends between two calls.
    stopping: CancellationToken,
}

impl Ctx {
    fn api(&self) -> &Api {
        self.writer.api()
    }

    /// Records that a DELETE was sent. From `check_at` on, a live read shows its outcome.
    fn record_deletion(&self, set: &StatefulSet, pod: &Pod, check_at: Instant) {
        self.memory.record_deletion(&set.meta.uid, &pod.meta.uid, self.clock.wall(), check_at);
    }

    /// Reads a pod whose deletion has an unknown outcome. Forgets the deletion if the pod exists and is not being
    /// deleted; otherwise records it, with the time of the next read.
    async fn resolve_deletion(&self, set: &StatefulSet, pod: &Pod) {
        let live = self.api().find::<Pod>(&Pod::resource(), &pod.meta.namespace, &pod.meta.name).await;
        let check_after = match live {
            Ok(Some(it)) if it.meta.uid == pod.meta.uid && it.meta.deletion.is_none() => {
                self.memory.forget_deletion(&set.meta.uid, &pod.meta.uid);
                return;
            }
            Ok(_) => LONGEST_LAG,
            Err(err) => {
                let (pod, err) = (&pod.meta.name, client::error_chain(&err));
                tracing::warn!(statefulset = %set.meta.as_ref().key(), %pod, err, "Cannot read a pod that may be deleted");
                RETRY_CHECK
            }
        };
        self.record_deletion(set, pod, self.clock.now() + check_after);
    }

    fn send_event(&self, owner: &Owner, type_: EventType, reason: &str, message: String) {
        self.recorder.event(owner.reference(), type_, reason, message);
    }

    /// Removes what is kept about a deleted set.
    fn remove(&self, set: &Uid) {
        self.memory.remove(set);
        self.consistency.remove(set);
        self.meters.remove(set);
    }

    /// Clears the memory of a set that was deleted during the sync. Its delete handler may have run before the sync
    /// stored something.
    fn clear_memory_of_deleted(&self, set: &StatefulSet) {
        if self.sets.store().is_gone(&set.meta.namespace, &set.meta.name, &set.meta.uid) {
            self.remove(&set.meta.uid);
        }
    }
}
