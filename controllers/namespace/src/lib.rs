//! Deletes the content of terminating namespaces, then removes their finalizer.
//!
//! Guarantees: the finalizer is removed only after lists proved that the namespace is empty. These lists are taken at
//! least five seconds after its deletion was observed and at most half a minute before its last pass, and every API
//! group must have answered. Pods are deleted first: nothing else is deleted while a list shows a pod. If there are
//! network policies, nothing else is deleted either until a list taken after those five seconds shows no pods: a pod
//! may still be admitted, and a policy is deleted with its owner. A kind or group that fails delays only itself, and
//! the conditions name it. What is the same for all namespaces (the served kinds, and which of them are empty in the
//! whole cluster) is requested once for all waiting namespaces.
//!
//! The steps for one namespace: when it is observed terminating, its content is deleted at once. What remains is listed
//! again when it may be gone. After the delay, everything is proved again, and the finalizer is removed.
//!
//! Reading order: `handlers` (enqueue), `sync` (one namespace, top to bottom), `sweep` (its content); then
//! `rules`, which decides and is pure: `kinds` (which kinds count), `remains` (what a list shows), `grace` (how long to
//! wait), `conditions` (what the user sees); then the shared state: `cluster_lists`, `terminating`, `slow_limit`,
//! `pod_watches`.

mod handlers;
mod sweep;
mod sync;

mod rules;

mod cluster_lists;
mod pod_watches;
mod slow_limit;
mod terminating;

use std::{sync::Arc, time::Duration};

use api::{Atom, MetaRef, Namespace};
use client::Api;
use client::discovery::Discoveries;
use clock::Clock;
use controller::{
    Backoff, Builder, ByDefault, ControllerFlag, Factor, FlagKind, Mark, Profile, Proof, Registration, Right, Settings,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster_lists::ClusterLists, pod_watches::PodWatches, slow_limit::SlowLimit, terminating::TerminatingNamespaces,
};

/// The canonical name of the controller.
pub const NAME: &str = "namespace-controller";

/// The part of upstream's role for this controller that is used.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "", resource: "namespaces", verbs: &["get"] },
        Right { group: "", resource: "namespaces/finalize", verbs: &["update"] },
        Right { group: "", resource: "namespaces/status", verbs: &["update"] },
        Right { group: "*", resource: "*", verbs: &["delete", "deletecollection", "list"] },
    ],
    // For discovery. Upstream's role lacks it, because every client may use it by default.
    paths: &["/api", "/apis"],
    // Upstream's role has no watch of pods. Where it is refused, the timer finds the end of the last pod.
    watches: &[Right { group: "", resource: "namespaces", verbs: &["list", "watch"] }],
    marks: &[Mark {
        list: "/api/v1/namespaces?fieldSelector=status.phase%3DTerminating&limit=500",
        subresource: "status",
    }],
};

/// Upstream's share of the common client limits: this controller sends requests for every kind.
const FACTOR: Factor = Factor { qps: 20.0, burst: 100 };
/// A failed namespace is retried after 5 ms, later at most after a minute.
const BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(5), cap: Duration::from_secs(60), bucket: Some((10.0, 100)) };

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "namespace",
    service_account: "namespace-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[
        ControllerFlag {
            section: "Namespace-controller flags",
            name: "concurrent-namespace-syncs",
            kind: FlagKind::Workers,
            default: "10",
            help: "Concurrent syncs of namespaces.",
            is_upstream: true,
        },
        ControllerFlag {
            section: "Namespace-controller flags",
            name: "namespace-sync-period",
            kind: FlagKind::Duration,
            default: "5m0s",
            help: "Resync period of terminating namespaces.",
            is_upstream: true,
        },
    ],
    gates: &[],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
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

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            workers: settings.workers("concurrent-namespace-syncs"),
            resync: settings.duration("namespace-sync-period"),
        }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers, resync } = options;
    // Every write depends on a live read, so the freshness of the cache need not be proved.
    let namespaces = builder.informer::<Namespace>(Proof::LiveReads);
    let queue = builder.queue::<Atom>("namespace", BACKOFF);
    let clock = builder.deps().clock.clone();
    let ctx = Arc::new(Ctx {
        api: builder.api(FACTOR),
        terminating: TerminatingNamespaces::default(),
        discoveries: Discoveries::new(clock.clone()),
        cluster_lists: ClusterLists::new(clock.clone()),
        pod_watches: PodWatches::new(builder.deps().informers.clone(), queue.clone()),
        slow_limit: SlowLimit::new((workers / 2).max(1)),
        rng: Mutex::new(builder.rng("conflicts")),
        stopping: builder.deps().stopping.clone(),
        clock,
    });
    let handler_ctx = ctx.clone();
    builder.on_every_change(&namespaces, move |change| handlers::record(&handler_ctx, change));
    let (handler_ctx, handler_queue) = (ctx.clone(), queue.clone());
    builder.on_change(&namespaces, Some(resync), move |change, lane| {
        handlers::enqueue(&handler_ctx, &handler_queue, change, lane);
    });
    builder.workers(&queue, workers, move |name: Atom| {
        let ctx = ctx.clone();
        async move { sync::sync(&ctx, &name).await }
    });
}

/// The state that all syncs share.
struct Ctx {
    api: Api,
    clock: Clock,
    terminating: TerminatingNamespaces,
    discoveries: Discoveries,
    cluster_lists: ClusterLists,
    pod_watches: PodWatches,
    /// Limits slow namespaces to half of the workers.
    slow_limit: SlowLimit,
    rng: Mutex<fastrand::Rng>,
    /// Cancelled when the manager stops: a pass then ends before its next request.
    stopping: CancellationToken,
}

impl Ctx {
    /// Removes the state of a deleted namespace, and the shared state with the last one.
    fn remove(&self, namespace: &MetaRef<'_>) {
        let was_last = self.terminating.remove(namespace.uid);
        // Remove it from `terminating` first: a sync that starts to wait for pods checks that after it was added to the
        // waiting list.
        self.pod_watches.remove(&Atom::from(namespace.name));
        if was_last {
            self.discoveries.forget();
            self.cluster_lists.clear();
        }
    }
}
