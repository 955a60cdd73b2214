//! Whether the silence of a node can be confirmed now: the state of our watches, and live reads of Leases (KEP-5647).

use std::{sync::Arc, time::Duration};

use api::{Lease, Node, Typed};
use client::{ApiError, READ_TIMEOUT, within};
use clock::Timestamp;
use informer::prove;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use workload::{Missed, observe};

use crate::{Ctx, LEASES, State, nodes::Silence};

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// A proof that needs a new list takes longer than ten seconds.
const PROOF_TIMEOUT: Duration = Duration::from_secs(20);
/// The wait of a node whose silence could not be confirmed.
pub(crate) const RETRY: Duration = Duration::from_secs(1);
/// The wait of a node whose Lease could not be read. The other nodes are confirmed in the second half of it.
const READ_RETRY: Duration = Duration::from_secs(2);

/// Checks once a second, also on a standby, whether the watches of nodes and Leases work.
pub(crate) async fn watch_observation(ctx: Arc<Ctx>, end: CancellationToken) {
    let watches = [ctx.nodes.watched(), ctx.leases.watched()];
    // The first list of Leases may come much later than that of nodes. Renewals in between were not observed, so the
    // grace periods begin now.
    let begin = || ctx.state.lock().nodes.restart(ctx.clock.boot(), None);
    observe(&watches, end, begin, |interrupted, time| check(&ctx, interrupted, time)).await;
    // The controller was stopped, perhaps in the middle of a term. The alert about this gauge must end.
    ctx.meters.set_suspended(false);
}

fn check(ctx: &Ctx, interrupted: &[String], interrupted_for: Option<Duration>) {
    let now = ctx.clock.boot();
    let mut state = ctx.state.lock();
    match state.observation.check(now, interrupted_for) {
        None => {}
        Some(Missed::Time(missed)) => state.nodes.on_missed(missed, now),
        Some(Missed::All) => {
            tracing::warn!("Heartbeats of nodes may have been missed, so all grace periods start anew");
            state.nodes.restart(now, None);
        }
    }
    let is_suspended = are_watches_behind(ctx, &mut state);
    if is_suspended != state.is_suspended {
        state.is_suspended = is_suspended;
        ctx.meters.set_suspended(is_suspended);
        if is_suspended {
            let stale = state.stale_leases.as_ref().map(|(version, _)| version.to_string());
            tracing::warn!(
                watches = ?interrupted,
                stale,
                "Watches of nodes or Leases are interrupted or stale, so no node becomes Unknown or is tainted \
                 NoExecute"
            );
        } else {
            tracing::info!("The watches of nodes and Leases work again, so silent nodes become Unknown");
        }
    }
}

/// Whether no node may become Unknown or be tainted NoExecute now.
pub(crate) fn is_suspended(ctx: &Ctx, state: &mut State) -> bool {
    let is_unreadable = state.unreadable_until.is_some_and(|until| ctx.clock.boot() < until);
    is_unreadable || are_watches_behind(ctx, state)
}

/// Whether the watches are interrupted, or the cache of Leases is older than a live read.
fn are_watches_behind(ctx: &Ctx, state: &mut State) -> bool {
    // A new list makes the cache fresh, even with a lower version: etcd may have been restored.
    let is_fresh = state.stale_leases.as_ref().is_some_and(|(version, since)| {
        let leases = ctx.leases.watched();
        leases.has_passed(version) || leases.has_consistent_list_since(*since)
    });
    if is_fresh {
        state.stale_leases = None;
    }
    state.stale_leases.is_some() || state.observation.is_interrupted(ctx.clock.boot())
}

/// The result of [`confirm_silence`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The live read shows no sign of life either.
    Confirmed,
    /// The silence cannot be confirmed now. The node is synced again after this time.
    NotNow(Duration),
}

/// Reads the Lease of a node that is silent according to the cache. If it is newer than the cached one, our watch is
/// stale. Then no node becomes Unknown until the cache contains this version.
pub(crate) async fn confirm_silence(ctx: &Ctx, node: &Node) -> Confirmation {
    if is_suspended(ctx, &mut ctx.state.lock()) {
        return Confirmation::NotNow(RETRY);
    }
    let name = &*node.meta.name;
    let live = match read_lease(ctx, name).await {
        Ok(live) => live,
        Err(err) => {
            ctx.meters.record_failed_read();
            tracing::error!(
                node = name,
                %err,
                "The silence of the node is not confirmed, because its Lease cannot be read; retrying"
            );
            // The other silent nodes wait too. Otherwise they could occupy all workers and repeat the error.
            ctx.state.lock().unreadable_until = Some(ctx.clock.boot() + RETRY);
            return Confirmation::NotNow(READ_RETRY);
        }
    };
    // If the cached Lease cannot be read, there is nothing to compare the live one with.
    let cached = match ctx.leases.store().get(LEASES, name) {
        Ok(cached) => cached,
        Err(err) => {
            tracing::error!(
                node = name,
                %err,
                "The silence of the node is not confirmed, because its cached Lease cannot be read; retrying"
            );
            return Confirmation::NotNow(RETRY);
        }
    };
    if live.is_none()
        && cached.is_none()
        && let Some(wait) = prove_no_lease(ctx, name).await
    {
        return Confirmation::NotNow(wait);
    }
    // Also by its version: the clock of the node may have been set back.
    let is_newer = |live: &Lease| {
        cached
            .as_ref()
            .is_none_or(|it| live.renew_micros > it.renew_micros || it.meta.version.is_older_than(&live.meta.version))
    };
    {
        let mut state = ctx.state.lock();
        if live.is_none() && cached.is_some() {
            // The cache is behind. The Lease may have been renewed before it was deleted.
            state.nodes.on_renewal(name, ctx.clock.boot());
            return Confirmation::NotNow(RETRY);
        }
        if let Some(live) = live.filter(is_newer) {
            tracing::warn!(node = name, "The Lease was renewed, but the cache does not show it");
            let now = ctx.clock.boot();
            state.nodes.on_renewal(name, now);
            if !ctx.leases.watched().has_passed(&live.meta.version) {
                state.stale_leases = Some((live.meta.version, now));
            }
            return Confirmation::NotNow(RETRY);
        }
        // The watches may have been interrupted during the read, and the response may be old.
        if is_suspended(ctx, &mut state) {
            return Confirmation::NotNow(RETRY);
        }
    }
    match silence(ctx, node) {
        Silence::Over => Confirmation::Confirmed,
        Silence::Remaining(remaining) => Confirmation::NotNow(remaining),
    }
}

/// A Lease may be created and deleted while its watch is frozen, and neither the cache nor a live read shows it then. So
/// this waits until the cache contains all events until now. A new list does not show such a Lease either: after it,
/// a whole grace period is waited for. Returns when to try again, `None` if there was no Lease.
async fn prove_no_lease(ctx: &Ctx, node: &str) -> Option<Duration> {
    let leases = ctx.leases.watched();
    let is_listed = || leases.has_list_since(ctx.clock.boot() - ctx.grace);
    if !is_listed()
        && let Err(err) = within(PROOF_TIMEOUT, prove(&*leases, &ctx.reads, &ctx.clock, None)).await
    {
        tracing::error!(
            node,
            %err,
            "The silence of the node is not confirmed, because the cache of Leases is not proved; retrying"
        );
        return Some(RETRY);
    }
    is_listed().then_some(RETRY)
}

/// Reads the Lease from the server: by a GET, or by a list if the manager may not get it. The role of the built-in manager
/// allows only the list. A list can take 100 ms longer in a quiet cluster, until the watch cache of the server is as new as
/// etcd (KEP-2340).
async fn read_lease(ctx: &Ctx, name: &str) -> Result<Option<Lease>, ApiError> {
    let resource = Lease::resource();
    if may_get_leases(ctx).await {
        match within(READ_TIMEOUT, ctx.reads.get_opt::<Lease>(&resource, LEASES, name)).await {
            // The right was removed.
            Err(ApiError::Refused(_)) => ctx.state.lock().may_get_leases = Some(false),
            read => return read,
        }
    }
    within(READ_TIMEOUT, ctx.reads.find::<Lease>(&resource, LEASES, name)).await
}

/// Asks the server once, so that no GET is refused.
async fn may_get_leases(ctx: &Ctx) -> bool {
    if let Some(known) = ctx.state.lock().may_get_leases {
        return known;
    }
    let right = json!({ "group": "coordination.k8s.io", "resource": "leases", "namespace": LEASES, "verb": "get" });
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": right } });
    let is_allowed = match within(READ_TIMEOUT, ctx.reads.post(ACCESS_REVIEWS, &review)).await {
        Ok(answer) => serde_json::from_slice(&answer).is_ok_and(|it: Value| it["status"]["allowed"] == true),
        Err(ApiError::Refused(_)) => false,
        Err(_) => return false,
    };
    ctx.state.lock().may_get_leases = Some(is_allowed);
    is_allowed
}

/// Whether the node has been silent for its grace period, by what this process observed.
pub(crate) fn silence(ctx: &Ctx, node: &Node) -> Silence {
    let lease = ctx.leases.store().get(LEASES, &node.meta.name).ok().flatten();
    let renewed = lease.and_then(|it| it.renew_micros).and_then(|it| Timestamp::from_microsecond(it).ok());
    ctx.state.lock().nodes.silence(node, renewed, ctx.clock.boot(), ctx.clock.wall())
}
