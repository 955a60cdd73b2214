//! One node, top to bottom: whether it is silent; its conditions, taints and labels; and which of its pods are marked.

use std::{sync::Arc, time::Duration};

use api::{Atom, ConditionStatus, Node, Typed};
use client::{ApiError, Patch, READ_TIMEOUT, WRITE_TIMEOUT, within};
use controller::Outcome;
use informer::StoreError;

use crate::{
    Ctx, Key,
    handlers::send_node_event,
    live::{self, Confirmation, RETRY, confirm_silence},
    nodes::{Marking, Silence},
    pass::update_modes,
    rules::{
        conditions::{self, readiness, unknown_conditions, with_conditions},
        taints::{self, NoExecute, has_no_execute, has_other_no_execute},
    },
};

/// A node that keeps changing backs off after this many attempts, as upstream's `UpdateTaintBackoff`.
const ATTEMPTS: u32 = 5;
/// The wait between two attempts is between one and two times this long.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the node from the cache")]
    Cache(#[source] StoreError),
    #[error("cannot read the pods of the node from the cache")]
    Pods(#[source] StoreError),
    #[error("cannot read the node")]
    Read(#[source] ApiError),
    #[error("cannot write the status of the node")]
    Status(#[source] ApiError),
    #[error("cannot write taints and labels of the node")]
    Patch(#[source] ApiError),
}

impl SyncError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Status(ApiError::Conflict(_)) | Self::Patch(ApiError::Conflict(_)))
    }
}

/// Brings one node up to date.
pub(crate) async fn sync(ctx: &Ctx, name: &Atom) -> Result<Outcome, SyncError> {
    let started = ctx.clock.now();
    let cached = ctx.nodes.store().get("", name).map_err(|err| {
        withdraw(ctx, name);
        SyncError::Cache(err)
    })?;
    let Some(mut node) = cached else { return Ok(Outcome::Done) };
    let mut has_turn = false;
    let mut attempt = 1;
    let result = loop {
        let result = reconcile(ctx, node, &mut has_turn).await;
        if attempt == ATTEMPTS || !result.as_ref().is_err_and(SyncError::is_conflict) {
            break result;
        }
        attempt += 1;
        let jitter = ctx.rng.lock().f64();
        tokio::time::sleep(PAUSE.mul_f64(1.0 + jitter)).await;
        // The node has changed since it was read, so the next attempt uses a live read.
        node = match read(ctx, name).await {
            Ok(Some(live)) => Arc::new(live),
            Ok(None) => return Ok(Outcome::Done),
            Err(err) => break Err(err),
        };
    };
    if let Err(SyncError::Status(err) | SyncError::Patch(err)) = &result
        && err.is_absence_of(name)
    {
        // It was deleted; the cache will show it.
        return Ok(Outcome::Done);
    }
    if result.is_err() {
        // It must not delay the other nodes of its zone. Without the pause two nodes that fail would enqueue each other.
        postpone(ctx, name, RETRY);
    }
    ctx.meters.record_node(ctx.clock.now().saturating_duration_since(started));
    result
}

async fn read(ctx: &Ctx, name: &Atom) -> Result<Option<Node>, SyncError> {
    let live = within(READ_TIMEOUT, ctx.api.get_opt::<Node>(&Node::resource(), "", name)).await;
    let live = live.map_err(SyncError::Read)?;
    if let Some(live) = &live {
        observe(ctx, live);
    }
    Ok(live)
}

/// Records a state that is newer than the cached one.
fn observe(ctx: &Ctx, node: &Node) {
    let mut state = ctx.state.lock();
    if let Some(left) = state.nodes.on_live(node, ctx.clock.boot()) {
        state.pacing.withdraw(&left, &(&*node.meta.name).into());
    }
}

/// `has_turn` becomes true when the node takes the turn of its zone. It remains true for further attempts.
async fn reconcile(ctx: &Ctx, node: Arc<Node>, has_turn: &mut bool) -> Result<Outcome, SyncError> {
    let (node, silence) = set_unknown_if_silent(ctx, node).await?;
    let marking = mark_pods(ctx, &node)?;
    let no_execute = no_execute(ctx, &node, silence, has_turn).await;
    write_taints_and_labels(ctx, &node, no_execute).await?;
    let waits = [silence.wait(), marking].into_iter().flatten().min();
    Ok(waits.map_or(Outcome::Done, Outcome::After))
}

/// What [`set_unknown_if_silent`] found.
#[derive(Debug, Clone, Copy)]
enum NodeSilence {
    /// The node has this time left, or its silence could not be confirmed and it is synced again after this time.
    NotYet(Duration),
    /// It is silent. `is_confirmed` is true if this sync has made the live read.
    Silent { is_confirmed: bool },
}

impl NodeSilence {
    fn wait(self) -> Option<Duration> {
        match self {
            Self::NotYet(wait) => Some(wait),
            Self::Silent { .. } => None,
        }
    }
}

/// Sets the conditions of a node to Unknown if it has been silent for its grace period. Returns the node as stored.
async fn set_unknown_if_silent(ctx: &Ctx, node: Arc<Node>) -> Result<(Arc<Node>, NodeSilence), SyncError> {
    if let Silence::Remaining(remaining) = live::silence(ctx, &node) {
        return Ok((node, NodeSilence::NotYet(remaining)));
    }
    let Some(changes) = unknown_conditions(&node, ctx.clock.wall()) else {
        return Ok((node, NodeSilence::Silent { is_confirmed: false }));
    };
    if let Confirmation::NotNow(wait) = confirm_silence(ctx, &node).await {
        return Ok((node, NodeSilence::NotYet(wait)));
    }
    let patch = Patch::Strategic(conditions::patch(&node, &changes));
    let resource = Node::resource();
    let call = ctx.api.patch(&resource, "", &node.meta.name, Some("status"), &patch);
    let written = within(WRITE_TIMEOUT, call).await.map_err(SyncError::Status)?;
    tracing::info!(node = &*node.meta.name, "The node is silent: its conditions are Unknown now");
    if readiness(&node) == Some(&ConditionStatus::True) {
        send_node_event(ctx, &node.meta.as_ref(), "NodeNotReady", "status is now: NodeNotReady");
    }
    let mut stored = with_conditions(&node, changes);
    stored.meta.version = written.version;
    observe(ctx, &stored);
    // It may have renewed its Lease during the write.
    let silence = match live::silence(ctx, &stored) {
        Silence::Over => NodeSilence::Silent { is_confirmed: true },
        Silence::Remaining(remaining) => NodeSilence::NotYet(remaining),
    };
    Ok((Arc::new(stored), silence))
}

/// Enqueues the pods of a node that is not ready, unless this process has done so for this status (k/k#125618,
/// k/k#135205). Returns the wait until the next sync, if one is needed.
fn mark_pods(ctx: &Ctx, node: &Node) -> Result<Option<Duration>, SyncError> {
    let name: Atom = (&*node.meta.name).into();
    let pods = {
        let mut state = ctx.state.lock();
        if state.nodes.readiness(&name).is_none_or(|it| *it == ConditionStatus::True) {
            return Ok(None);
        }
        let pods = ctx.pods_of_node.get(&name).map_err(SyncError::Pods)?;
        match state.nodes.begin_marking(&name, ctx.clock.boot()) {
            Marking::Done => return Ok(None),
            Marking::After(wait) => return Ok(Some(wait)),
            Marking::Now => pods,
        }
    };
    for pod in pods {
        ctx.pod_queue.add(pod.meta.as_ref().key());
    }
    Ok(None)
}

/// What to do about the NoExecute taints. A node without one waits for its turn in the zone. One of the two taints
/// replaces the other one without a turn.
async fn no_execute(ctx: &Ctx, node: &Node, silence: NodeSilence, has_turn: &mut bool) -> NoExecute {
    let name: Atom = (&*node.meta.name).into();
    let (wants_taint, is_confirmed) = match (readiness(node), silence) {
        (Some(ConditionStatus::True), _) => {
            withdraw(ctx, &name);
            return NoExecute::Remove;
        }
        (Some(ConditionStatus::False), _) => (true, true),
        (Some(ConditionStatus::Unknown), NodeSilence::Silent { is_confirmed }) => (true, is_confirmed),
        // Its Lease is renewed, though its kubelet has not written the status yet.
        (Some(ConditionStatus::Unknown), NodeSilence::NotYet(_)) => (false, false),
        (None | Some(ConditionStatus::Other(_)), _) => (false, false),
    };
    if !wants_taint {
        withdraw(ctx, &name);
        let is_disrupted = ctx.state.lock().disrupted_since.is_some();
        return if is_disrupted { NoExecute::Remove } else { NoExecute::Keep };
    }
    let mut decision = decide(ctx, node, &name, has_turn, is_confirmed);
    enqueue_next(ctx, &name, Duration::ZERO);
    // The node may have waited long for its turn, so it may not be silent any more.
    if matches!(decision, TaintDecision::Confirm) {
        if let Confirmation::NotNow(wait) = confirm_silence(ctx, node).await {
            // Otherwise nodes that cannot be confirmed would enqueue each other without a pause.
            postpone(ctx, &name, RETRY);
            ctx.queue.add_after(Key::Node(name), wait);
            return NoExecute::Keep;
        }
        decision = decide(ctx, node, &name, has_turn, true);
    }
    let no_execute = match decision {
        TaintDecision::Final(no_execute) => no_execute,
        TaintDecision::Confirm => NoExecute::Keep,
    };
    // The pass enqueues only nodes that wait for a first taint.
    if no_execute == NoExecute::Keep && has_other_no_execute(node) {
        ctx.queue.add_after(Key::Node(name), RETRY);
    }
    no_execute
}

/// The result of [`decide`].
enum TaintDecision {
    Final(NoExecute),
    /// The node is tainted if it is still silent.
    Confirm,
}

/// Determines the modes, decides and takes the turn under one lock, so that nothing changes in between.
fn decide(ctx: &Ctx, node: &Node, name: &Atom, has_turn: &mut bool, is_confirmed: bool) -> TaintDecision {
    let mut state = ctx.state.lock();
    update_modes(ctx, &mut state);
    let Some(zone) = state.nodes.zone(name).cloned() else { return TaintDecision::Final(NoExecute::Keep) };
    if state.disrupted_since.is_some() {
        return TaintDecision::Final(NoExecute::Remove);
    }
    let is_suspended = live::is_suspended(ctx, &mut state);
    if has_no_execute(node) {
        state.pacing.withdraw(&zone, name);
        return match is_suspended {
            true => TaintDecision::Final(NoExecute::Keep),
            false if !is_confirmed && has_other_no_execute(node) => TaintDecision::Confirm,
            false => TaintDecision::Final(NoExecute::Set),
        };
    }
    state.pacing.add(&zone, name);
    let now = ctx.clock.boot();
    if is_suspended {
        return TaintDecision::Final(NoExecute::Keep);
    }
    if !is_confirmed {
        let is_turn = *has_turn || state.pacing.is_turn(&zone, name, now);
        return if is_turn { TaintDecision::Confirm } else { TaintDecision::Final(NoExecute::Keep) };
    }
    *has_turn = *has_turn || state.pacing.take_turn(&zone, name, now);
    TaintDecision::Final(if *has_turn { NoExecute::Set } else { NoExecute::Keep })
}

/// Removes a node that needs no NoExecute taint any more from the queue of its zone.
fn withdraw(ctx: &Ctx, name: &Atom) {
    let has_waited = {
        let mut state = ctx.state.lock();
        let zone = state.nodes.zone(name).cloned();
        zone.is_some_and(|zone| state.pacing.withdraw(&zone, name))
    };
    if has_waited {
        enqueue_next(ctx, name, Duration::ZERO);
    }
}

/// Moves a node that could not be tainted in its turn behind the others of its zone. The next one follows after at least
/// `pause`.
fn postpone(ctx: &Ctx, name: &Atom, pause: Duration) {
    {
        let mut state = ctx.state.lock();
        if let Some(zone) = state.nodes.zone(name).cloned() {
            state.pacing.postpone(&zone, name);
        }
    }
    enqueue_next(ctx, name, pause);
}

/// Enqueues the node of the same zone whose turn is next, after at least `pause`.
fn enqueue_next(ctx: &Ctx, name: &Atom, pause: Duration) {
    let next = {
        let state = ctx.state.lock();
        state.nodes.zone(name).and_then(|zone| state.pacing.next(zone, ctx.clock.boot()))
    };
    // A node does not enqueue itself at once. Otherwise a node whose sync fails would be retried without a pause.
    if let Some((node, wait)) = next.filter(|(node, wait)| node != name || !wait.is_zero()) {
        ctx.queue.add_after(Key::Node(node), wait.max(pause));
    }
}

async fn write_taints_and_labels(ctx: &Ctx, node: &Node, no_execute: NoExecute) -> Result<(), SyncError> {
    let Some(edit) = taints::edit(node, no_execute, ctx.clock.wall().as_second()) else { return Ok(()) };
    let patch = Patch::Strategic(taints::patch(node, &edit));
    let resource = Node::resource();
    let call = ctx.api.patch(&resource, "", &node.meta.name, None, &patch);
    within(WRITE_TIMEOUT, call).await.map_err(SyncError::Patch)?;
    if no_execute == NoExecute::Set && !has_no_execute(node) {
        let name: Atom = (&*node.meta.name).into();
        let zone = {
            let mut state = ctx.state.lock();
            let zone = state.nodes.zone(&name).cloned().unwrap_or_default();
            state.pacing.on_tainted(&zone, ctx.clock.boot());
            zone
        };
        withdraw(ctx, &name);
        ctx.meters.record_eviction(&zone);
        tracing::info!(node = &*name, zone = &*zone, "The node is tainted NoExecute");
    }
    Ok(())
}
