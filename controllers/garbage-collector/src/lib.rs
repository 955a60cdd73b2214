//! Deletes what nobody owns any more, orphans what was asked for, and lets owners go after their dependents.
//!
//! Promises: nothing is deleted while one of its owners lives. That an owner is gone is proved live, of matching uid, or by
//! the server's own word on a watch; never by silence, by an error, or by a type that is not served. Every DELETE names uid
//! and resourceVersion of the very state that was judged. What the graph knows is only a hint: it says where to look.
//!
//! Reading order: `graph` (what is known of objects and their owners, and what is due because of it), `due` (how monitors
//! tell it and workers ask); then one attempt, top to bottom, `delete` and `orphan`, with what they stand on: `evidence` (what
//! proves that an owner is gone) and `verdict` (what follows), both pure; `proofs` and `absent` (a proof serves all who need
//! it), `requests` and `late_types` (a type that answers late holds only some of the workers), `acted` (what we wrote and no
//! watch has shown), `patch`, `refs` and `finalizer` (the writes that are no DELETE),
//! `waits` and `breaker` (what holds back); `monitors` and `kinds` (where it all comes from); `metrics`, `pages`, `dump`,
//! `why` and `failed` (what people are told of it).

mod due;
mod graph;

mod delete;
mod orphan;

mod evidence;
mod verdict;

mod absent;
mod acted;
mod proofs;

mod late_types;
mod requests;

mod finalizer;
mod patch;
mod refs;
mod waits;

mod breaker;

mod kinds;
mod monitors;

mod dump;
mod failed;
mod metrics;
mod pages;
mod why;

use std::{sync::Arc, time::Duration};

use api::Uid;
use clock::Clock;
use controller::{Builder, Factor, Profile, Right};
use parking_lot::Mutex;
use runner::{Outcome, error_chain};
use tokio::sync::Semaphore;
use workqueue::Backoff;

use crate::{
    acted::Acted,
    breaker::Breaker,
    due::Known,
    failed::Failed,
    graph::{Coordinates, Graph, Item},
    kinds::Kinds,
    metrics::Meters,
    monitors::{Monitors, Unsynced},
    proofs::Proofs,
    requests::Requests,
    waits::{Patience, Waits},
};

/// The canonical name.
pub const NAME: &str = "garbage-collector-controller";

/// As upstream's role of this controller grants it.
pub const PROFILE: Profile = Profile {
    acts: &[
        Right { group: "*", resource: "*", verbs: &["get", "patch", "delete"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    // Which kinds there are. Upstream's role lacks it, as everybody may by default.
    paths: &["/api", "/apis"],
    watches: &[Right { group: "*", resource: "*", verbs: &["list", "watch"] }],
    // Whoever deletes an object leaves nothing on it that names him.
    marks: &[],
};

/// As upstream: twice the common rate, and the common burst.
const FACTOR: Factor = Factor { qps: 2.0, burst: 1 };
/// As upstream: 5 ms, doubled up to 1000 s, and ten failures a second for all.
const BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(5), cap: Duration::from_secs(1000), bucket: Some((10.0, 100)) };
/// So many patches of dependents are under way at once when owners are orphaned, over all owners.
const PATCHES: usize = 50;
/// When whoever waits for monitors looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// When whoever waits only for proofs, which take two seconds and come in the first minute of a term, does.
const LOOK_SOON: Duration = Duration::from_millis(250);

/// What the user can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-gc-syncs`: so many workers delete, and as many orphan.
    pub concurrent_syncs: usize,
    /// `--gc-max-deletes-per-minute`; zero: no bound.
    pub max_deletes_per_minute: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 20, max_deletes_per_minute: 0 }
    }
}

/// Declares the controller.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { concurrent_syncs, max_deletes_per_minute } = options;
    let api = builder.api(FACTOR);
    let recorder = builder.recorder(api.clone());
    let deletes = builder.queue::<Item>("garbage_collector_attempt_to_delete", BACKOFF);
    let orphans = builder.queue::<Uid>("garbage_collector_attempt_to_orphan", BACKOFF);
    let graph = Graph::new(builder.deps().seed);
    let known = Arc::new(Known::new(graph, deletes.clone(), orphans.clone(), recorder));
    let meters = Arc::new(Meters::new(&builder.deps().metrics));
    let (kinds, monitors) = monitors::declare(builder, &api, &known, &meters);
    let clock = builder.deps().clock.clone();
    let ctx = Arc::new(Ctx {
        requests: Requests::new(api, concurrent_syncs, clock.clone()),
        clock: clock.clone(),
        rng: Mutex::new(builder.rng("finalizers")),
        known: known.clone(),
        kinds,
        monitors,
        proofs: Proofs::default(),
        acted: Acted::default(),
        waits: Waits::default(),
        failed: Failed::default(),
        patches: Semaphore::new(PATCHES),
        breaker: Mutex::new(Breaker::new(max_deletes_per_minute)),
        meters,
    });
    pages::declare(builder, &ctx);
    builder.with_the_term(move || known.begin(clock.now()));
    let deleting = ctx.clone();
    builder.workers(&deletes, concurrent_syncs, move |item: Item| {
        let ctx = deleting.clone();
        async move {
            let outcome = ctx.failed.deletes.note(&item, delete::collect(&ctx, &item).await);
            ctx.keep_apart(&item, outcome)
        }
    });
    builder.workers(&orphans, concurrent_syncs, move |owner: Uid| {
        let ctx = ctx.clone();
        async move { ctx.failed.orphans.note(&owner, orphan::orphan(&ctx, &owner).await) }
    });
}

/// What all attempts share.
struct Ctx {
    requests: Requests,
    clock: Clock,
    rng: Mutex<fastrand::Rng>,
    known: Arc<Known>,
    kinds: Arc<Kinds>,
    monitors: Arc<Monitors>,
    proofs: Proofs,
    acted: Acted,
    waits: Waits,
    failed: Failed,
    /// Turns of patches by which owners are orphaned.
    patches: Semaphore,
    breaker: Mutex<Breaker>,
    meters: Arc<Meters>,
}

impl Ctx {
    /// Has the item looked at again, less and less often. That is no failure: there is nothing that anybody could mend here.
    /// There may be thousands of them, so that those who fail must not wait for their turn behind them.
    fn later(&self, item: &Item) -> Outcome {
        Outcome::Parked(self.known.deletes.add_backed_off(item.clone()))
    }

    /// An owner that cannot be read is a failure, but as a rule one of its type: what depends on others must not wait for it.
    fn keep_apart(&self, item: &Item, result: Result<Outcome, delete::Error>) -> Result<Outcome, delete::Error> {
        match result {
            Err(err @ (delete::Error::Unjudged { .. } | delete::Error::Unproved { .. })) => {
                let outcome = self.later(item);
                tracing::error!(err = error_chain(&err), ?outcome, "Sync failed");
                Ok(outcome)
            }
            other => other,
        }
    }

    /// How long an owner must wait yet before it may lose this finalizer of ours: the graph may not know all its
    /// dependents. What is not known is waited for until it, or the owner, had its time; then the log names it.
    fn wait_for_monitors(&self, owner: &Coordinates, finalizer: &'static str) -> Option<Duration> {
        self.wait_for(owner, finalizer, &self.monitors.unsynced())
    }

    /// The same of types that were unsynced before somebody looked at its dependents.
    fn wait_for(&self, owner: &Coordinates, finalizer: &'static str, unsynced: &[Unsynced]) -> Option<Duration> {
        if unsynced.is_empty() {
            return None;
        }
        // Without any answer of discovery it is not even known what is not known.
        if unsynced.iter().any(Unsynced::is_everything) {
            return Some(LOOK_AGAIN);
        }
        self.monitors.prove_soon(unsynced);
        let (now, began) = (self.clock.now(), self.known.began());
        let has_time = unsynced.iter().any(|it| it.has_time(waits::PATIENCE, began, now));
        match self.waits.ask(&owner.uid, finalizer, has_time, now) {
            Patience::Lasts if unsynced.iter().all(Unsynced::is_proved_soon) => Some(LOOK_SOON),
            Patience::Lasts => Some(LOOK_AGAIN),
            Patience::Ends { is_news } => {
                if is_news {
                    let types: Vec<String> = unsynced.iter().map(ToString::to_string).collect();
                    tracing::warn!(
                        %owner, finalizer, types = types.join(", "),
                        "An owner loses its finalizer though not all types are synced: \
                         dependents of these types may be overlooked"
                    );
                }
                None
            }
        }
    }

    /// Brings the gauge of held deletes up to date.
    fn show_held(&self) {
        let held = self.breaker.lock().held();
        self.meters.held.set(i64::try_from(held).unwrap_or(i64::MAX));
    }
}
