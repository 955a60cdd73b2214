//! Empties terminating namespaces and lets them go.
//!
//! Promises: a namespace is let go only after everything in it was proved gone by lists taken at least five seconds after
//! its deletion was seen, and at most half a minute before its last pass, with every API group answering. Pods go first:
//! nothing else is touched while a list shows one. Where there are network policies, nothing else is touched either until a
//! list taken after those five seconds shows no pods: one may be let in meanwhile, and a policy goes with what owns it. A kind
//! or group that fails delays only itself, and is named in the conditions. What is the same for all namespaces (which kinds there are, which of them are empty in the whole cluster) is
//! asked once for all that wait for it.
//!
//! The course of one namespace: it is seen terminating, and its content is deleted at once. What is left is looked at again
//! when it may be gone. After the delay everything is proved anew, and the finalizer goes.
//!
//! Reading order: `handlers` (who wakes), `sync` (one namespace, top to bottom), `sweep` (its content); then the rules,
//! which are pure: `kinds` (what of discovery counts), `remains` (what a list says), `grace` (how long to wait),
//! `conditions` (what the user is told); then what is shared and remembered: `emptiness`, `memory`, `turns`, `wake`.

mod handlers;
mod sweep;
mod sync;

mod conditions;
mod grace;
mod kinds;
mod remains;

mod emptiness;
mod memory;
mod turns;
mod wake;

use std::{sync::Arc, time::Duration};

use api::{Atom, MetaRef, Namespace};
use client::Api;
use clock::Clock;
use controller::{Builder, Factor, Mark, Profile, Proof, Right};
use discovery::Discoveries;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use workqueue::Backoff;

use crate::{emptiness::Emptiness, memory::Memory, turns::Turns, wake::Wake};

/// The canonical name.
pub const NAME: &str = "namespace-controller";

/// As upstream's role of this controller grants it, as far as it is used.
pub const PROFILE: Profile = Profile {
    acts: &[
        Right { group: "", resource: "namespaces", verbs: &["get"] },
        Right { group: "", resource: "namespaces/finalize", verbs: &["update"] },
        Right { group: "", resource: "namespaces/status", verbs: &["update"] },
        Right { group: "*", resource: "*", verbs: &["delete", "deletecollection", "list"] },
    ],
    // Which kinds there are. Upstream's role lacks it, as everybody may by default.
    paths: &["/api", "/apis"],
    watches: &[Right { group: "", resource: "namespaces", verbs: &["list", "watch"] }],
    marks: &[Mark {
        list: "/api/v1/namespaces?fieldSelector=status.phase%3DTerminating&limit=500",
        subresource: "status",
    }],
};

/// Upstream's share of the common limits for this controller: it asks for every kind there is.
const FACTOR: Factor = Factor { qps: 20.0, burst: 100 };
/// A namespace that fails is tried again after 5 ms, at last every minute.
const BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(5), cap: Duration::from_secs(60), bucket: Some((10.0, 100)) };

/// What the user can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-namespace-syncs`
    pub workers: usize,
    /// `--namespace-sync-period`
    pub resync: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 10, resync: Duration::from_secs(300) }
    }
}

/// Declares the controller.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers, resync } = options;
    // Every write rests on a live read, so the cache need not be proved.
    let namespaces = builder.informer::<Namespace>(Proof::LiveReads);
    let queue = builder.queue::<Atom>("namespace", BACKOFF);
    let clock = builder.deps().clock.clone();
    let ctx = Arc::new(Ctx {
        api: builder.api(FACTOR),
        memory: Memory::default(),
        discoveries: Discoveries::new(clock.clone()),
        emptiness: Emptiness::new(clock.clone()),
        wake: Wake::new(builder.deps().informers.clone(), queue.clone()),
        turns: Turns::new((workers / 2).max(1)),
        rng: Mutex::new(builder.rng("conflicts")),
        stopping: builder.deps().stopping.clone(),
        clock,
    });
    let fed = ctx.clone();
    builder.feed(&namespaces, move |change| handlers::remember(&fed, change));
    let woken = (ctx.clone(), queue.clone());
    builder.on_change(&namespaces, Some(resync), move |change, lane| {
        let (ctx, queue) = &woken;
        handlers::wake(ctx, queue, change, lane);
    });
    builder.workers(&queue, workers, move |name: Atom| {
        let ctx = ctx.clone();
        async move { sync::sync(&ctx, &name).await }
    });
}

/// What all syncs share.
struct Ctx {
    api: Api,
    clock: Clock,
    memory: Memory,
    discoveries: Discoveries,
    emptiness: Emptiness,
    wake: Wake,
    /// Of slow namespaces, one for every other worker.
    turns: Turns,
    rng: Mutex<fastrand::Rng>,
    /// The manager stops: a pass ends between two calls.
    stopping: CancellationToken,
}

impl Ctx {
    /// A namespace is gone, and with the last one what was known for all.
    fn forget(&self, namespace: &MetaRef<'_>) {
        let was_last = self.memory.forget(namespace.uid);
        // After the memory: whoever begins to wait asks it once more when he stands in the list.
        self.wake.forget(&Atom::from(namespace.name));
        if was_last {
            self.discoveries.forget();
            self.emptiness.forget();
        }
    }
}
