//! Deletes objects without owners, orphans dependents on request, and deletes owners after their dependents.
//!
//! Guarantees: no object is deleted while one of its owners exists. The proof that an owner is gone is a live read of
//! the matching uid, or the DELETED event of a watch. Silence, an error, or a type that is not served is never a proof.
//! Every DELETE names the uid and resourceVersion of the checked state. The graph is only a hint: it shows which objects
//! to check.
//!
//! Reading order: `graph` (known objects, their owners, and the items that are due), `shared_graph` (the interface for
//! monitors and workers); then one attempt, top to bottom, `delete` and `orphan`, and what they use: `owners` (how an
//! owner is read), `rules` (what proves that it is gone, and what follows; pure), `requests` and `late_types` (a type
//! that responds late uses only some of the workers); `monitors` (the sources of the graph); `metrics` and `debug`
//! (what users see).

mod graph;
mod shared_graph;

mod rules;

mod owners;

mod delete;
mod orphan;

mod late_types;
mod requests;

mod monitors;

mod debug;
mod metrics;

use std::{sync::Arc, time::Duration};

use api::Uid;
use clock::Clock;
use controller::{
    Backoff, Builder, ByDefault, ControllerFlag, Factor, FlagKind, Outcome, Profile, Registration, Right, Settings,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{
    debug::last_errors::FailedAttempts,
    delete::{delete_limiter::DeleteLimiter, pending_writes::PendingWrites},
    graph::{Coordinates, Graph, Item},
    metrics::Meters,
    monitors::{Monitors, Unsynced},
    owners::{
        kinds::Kinds,
        owner_reads::OwnerReads,
        owner_waits::{OwnerWaits, WaitState},
    },
    requests::Requests,
    shared_graph::SharedGraph,
};

/// The canonical name of the controller.
pub const NAME: &str = "garbage-collector-controller";

/// The permissions of upstream's role for this controller.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "*", resource: "*", verbs: &["get", "patch", "delete"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    // For discovery. Upstream's role lacks it, because every client may use it by default.
    paths: &["/api", "/apis"],
    watches: &[Right { group: "*", resource: "*", verbs: &["list", "watch"] }],
    // A DELETE leaves nothing on an object that shows which manager sent it.
    marks: &[],
};

/// As upstream: twice the common QPS, and the common burst.
const FACTOR: Factor = Factor { qps: 2.0, burst: 1 };
/// The number of concurrent patches of dependents during orphaning, for all owners together.
const PATCHES: usize = 50;
/// The retry interval of an item that waits for monitors.
const MONITOR_RETRY: Duration = Duration::from_secs(1);
/// The retry interval of an item that waits only for proofs. They take two seconds, in the first minute of a term.
const PROOF_RETRY: Duration = Duration::from_millis(250);

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "garbagecollector",
    service_account: "generic-garbage-collector",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[
        ControllerFlag {
            section: "Garbage-collector-controller flags",
            name: "concurrent-gc-syncs",
            kind: FlagKind::Workers,
            default: "20",
            help: "Concurrent syncs of objects to collect, and as many of objects to orphan.",
            is_upstream: true,
        },
        ControllerFlag {
            section: "Mini-kcm flags",
            name: "gc-max-deletes-per-minute",
            kind: FlagKind::Count,
            default: "0",
            help: "Maximum number of objects that the garbage collector deletes per minute; it logs the delayed ones; 0: no limit.",
            is_upstream: false,
        },
    ],
    gates: &[],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-gc-syncs`: the number of workers that delete, and also of workers that orphan.
    pub concurrent_syncs: usize,
    /// `--gc-max-deletes-per-minute`; zero: no limit.
    pub max_deletes_per_minute: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 20, max_deletes_per_minute: 0 }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            concurrent_syncs: settings.workers("concurrent-gc-syncs"),
            max_deletes_per_minute: settings.count("gc-max-deletes-per-minute"),
        }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { concurrent_syncs, max_deletes_per_minute } = options;
    let api = builder.api(FACTOR);
    let recorder = builder.recorder(api.clone());
    let deletes = builder.queue::<Item>("garbage_collector_attempt_to_delete", Backoff::default());
    let orphans = builder.queue::<Uid>("garbage_collector_attempt_to_orphan", Backoff::default());
    let graph = Graph::new(builder.deps().seed);
    let graph = Arc::new(SharedGraph::new(graph, deletes.clone(), orphans.clone(), recorder));
    let meters = Arc::new(Meters::new(&builder.deps().metrics));
    let (kinds, monitors) = monitors::declare(builder, &api, &graph, &meters);
    let clock = builder.deps().clock.clone();
    let ctx = Arc::new(Ctx {
        requests: Requests::new(api, concurrent_syncs, clock.clone()),
        clock: clock.clone(),
        rng: Mutex::new(builder.rng("finalizers")),
        graph: graph.clone(),
        kinds,
        monitors,
        owner_reads: OwnerReads::default(),
        pending_writes: PendingWrites::default(),
        owner_waits: OwnerWaits::default(),
        failed_attempts: FailedAttempts::default(),
        patches: Semaphore::new(PATCHES),
        delete_limiter: Mutex::new(DeleteLimiter::new(max_deletes_per_minute)),
        meters,
    });
    debug::pages::declare(builder, &ctx);
    builder.on_term_start(move || graph.begin_term(clock.now()));
    let deleting = ctx.clone();
    builder.workers(&deletes, concurrent_syncs, move |item: Item| {
        let ctx = deleting.clone();
        async move {
            let outcome = ctx.failed_attempts.deletes.record(&item, delete::collect(&ctx, &item).await);
            ctx.back_off_separately(&item, outcome)
        }
    });
    builder.workers(&orphans, concurrent_syncs, move |owner: Uid| {
        let ctx = ctx.clone();
        async move { ctx.failed_attempts.orphans.record(&owner, orphan::orphan(&ctx, &owner).await) }
    });
}

/// The state that all attempts share.
struct Ctx {
    requests: Requests,
    clock: Clock,
    rng: Mutex<fastrand::Rng>,
    graph: Arc<SharedGraph>,
    kinds: Arc<Kinds>,
    monitors: Arc<Monitors>,
    owner_reads: OwnerReads,
    pending_writes: PendingWrites,
    owner_waits: OwnerWaits,
    failed_attempts: FailedAttempts,
    /// Limits the concurrent patches of dependents.
    patches: Semaphore,
    delete_limiter: Mutex<DeleteLimiter>,
    meters: Arc<Meters>,
}

impl Ctx {
    /// Requeues the item with growing delays. This is no failure, because a user cannot repair anything here. There may
    /// be thousands of such items, and failed items must not wait behind them.
    fn requeue_later(&self, item: &Item) -> Outcome {
        Outcome::Parked(self.graph.deletes.add_backed_off(item.clone()))
    }

    /// A failed read of an owner usually concerns its whole type. The item backs off separately, so that items of other
    /// types do not wait behind it.
    fn back_off_separately(
        &self,
        item: &Item,
        result: Result<Outcome, delete::Error>,
    ) -> Result<Outcome, delete::Error> {
        match result {
            Err(err @ (delete::Error::OwnersUnknown { .. } | delete::Error::Unproved { .. })) => {
                let outcome = self.requeue_later(item);
                tracing::error!(err = client::error_chain(&err), ?outcome, "Sync failed");
                Ok(outcome)
            }
            other => other,
        }
    }

    /// How long an owner must still wait before this finalizer may be removed, because the graph may not know all its
    /// dependents. The wait ends with the time limit of the missing types or of the owner; the log then names the
    /// missing types.
    fn wait_for_monitors(&self, owner: &Coordinates, finalizer: &'static str) -> Option<Duration> {
        self.wait_for_unsynced(owner, finalizer, &self.monitors.unsynced())
    }

    /// The same for types that were unsynced before its dependents were read.
    fn wait_for_unsynced(
        &self,
        owner: &Coordinates,
        finalizer: &'static str,
        unsynced: &[Unsynced],
    ) -> Option<Duration> {
        if unsynced.is_empty() {
            return None;
        }
        // Without any discovery answer, it is unknown which types are missing.
        if unsynced.iter().any(Unsynced::is_before_discovery) {
            return Some(MONITOR_RETRY);
        }
        self.monitors.request_proofs(unsynced);
        let (now, began) = (self.clock.now(), self.graph.term_start());
        let is_within_limit = unsynced.iter().any(|it| it.is_within_limit(owners::owner_waits::MAX_WAIT, began, now));
        match self.owner_waits.check(&owner.uid, finalizer, is_within_limit, now) {
            WaitState::Waiting if unsynced.iter().all(Unsynced::needs_proof) => Some(PROOF_RETRY),
            WaitState::Waiting => Some(MONITOR_RETRY),
            WaitState::Expired { is_first } => {
                if is_first {
                    let types: Vec<String> = unsynced.iter().map(ToString::to_string).collect();
                    tracing::warn!(
                        %owner, finalizer, types = types.join(", "),
                        "The finalizer of an owner is removed although not all types are synced: \
                         dependents of these types may be missed"
                    );
                }
                None
            }
        }
    }

    /// Updates the gauge of held deletes.
    fn update_held_gauge(&self) {
        let held = self.delete_limiter.lock().held_count();
        self.meters.held.set(i64::try_from(held).unwrap_or(i64::MAX));
    }
}
