//! The passes over all pods. `rules::plan` decides which of them are deleted.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use api::{Atom, Entry, Node, Pod, Typed};
use client::{READ_TIMEOUT, error_chain, within};
use controller::Outcome;
use futures::{StreamExt, stream};
use informer::Store;

use crate::{
    Ctx, PERIOD, QUARANTINE, collect,
    rules::{
        plan::{Plan, is_out_of_service, plan},
        steps::Reason,
    },
};

/// The wait of the pass over terminated pods while orphans are deleted.
const YIELD: Duration = Duration::from_secs(1);

/// The key of a pass in the work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    /// Terminating pods of out-of-service nodes (`gcTerminating`), and those without a node
    /// (`gcUnscheduledTerminating`).
    Terminating,
    /// Terminated pods above the threshold (`gcTerminated`).
    Terminated,
}

impl Pass {
    pub(crate) const ALL: [Self; 2] = [Self::Terminating, Self::Terminated];
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminating => "terminating pods",
            Self::Terminated => "terminated pods",
        })
    }
}

/// How many nodes that are out of service are collected concurrently. With more, a pod would be deleted long after its node
/// was read, because the calls wait for the rate limiter.
const MAX_NODES: usize = 4;

/// One pass. An action that fails is repeated by the next pass.
pub(crate) async fn run(ctx: &Ctx, pass: Pass) -> Outcome {
    match pass {
        Pass::Terminating => collect_terminating(ctx).await,
        Pass::Terminated => collect_terminated(ctx).await,
    }
}

async fn collect_terminating(ctx: &Ctx) -> Outcome {
    ctx.recreations.lock().forget_old(ctx.clock.now());
    enqueue_missing_nodes(ctx);
    let Plan { out_of_service, unscheduled, terminated: _ } = current_plan(ctx);
    // A call that hangs must not delay the pods of other nodes.
    let nodes = stream::iter(out_of_service);
    nodes.for_each_concurrent(MAX_NODES, |(node, pods)| collect_out_of_service(ctx, node, pods)).await;
    collect::collect_each(ctx, unscheduled, Reason::Unscheduled, || true).await;
    Outcome::After(PERIOD)
}

/// Begins the quarantine of missing nodes whose pods were observed before the cache of nodes was filled. A quarantine
/// that has begun is not prolonged.
fn enqueue_missing_nodes(ctx: &Ctx) {
    let is_missing = |node: &Atom| !node.is_empty() && matches!(ctx.nodes.get("", node), Ok(None));
    let nodes: BTreeSet<Atom> = ctx.pods.entries().iter().filter_map(|it| Some(it.readable()?.node.clone())).collect();
    for node in nodes.into_iter().filter(is_missing) {
        ctx.node_queue.add_after(node, QUARANTINE);
    }
}

/// Deletes terminating pods of a node that the cache shows as out of service.
///
/// The node is read first, because the cache may be behind: its kubelet may run again, or an administrator may have
/// removed the taint. The old pod may then still run, and its replacement would use the same volume (KEP-2268).
async fn collect_out_of_service(ctx: &Ctx, node: Atom, pods: Vec<Arc<Pod>>) {
    if ctx.stopping.is_cancelled() {
        return;
    }
    match within(READ_TIMEOUT, ctx.api.get::<Node>(&Node::resource(), "", &node)).await {
        Ok(live) if is_out_of_service(&live) => {}
        Ok(_) => return tracing::debug!(%node, "The node is not out of service any more"),
        // The pods of a missing node are orphans.
        Err(err) if err.is_absence_of(&node) => return,
        Err(err) if collect::is_end_of_term(&err) => return,
        Err(err) => return tracing::error!(err = error_chain(&err), %node, "Failed to get node"),
    }
    let is_still_out_of_service =
        || ctx.nodes.get("", &node).is_ok_and(|it| it.is_some_and(|it| is_out_of_service(&it)));
    collect::collect_each(ctx, pods, Reason::OutOfService, is_still_out_of_service).await;
}

/// Deletes terminated pods. The pods of missing nodes are deleted first, because their owners wait to replace them.
async fn collect_terminated(ctx: &Ctx) -> Outcome {
    if ctx.has_orphan_work() {
        return Outcome::After(YIELD);
    }
    let Plan { terminated, out_of_service: _, unscheduled: _ } = current_plan(ctx);
    if !terminated.is_empty() {
        tracing::info!(numPods = terminated.len(), "Garbage collecting pods");
    }
    collect::collect_each(ctx, terminated, Reason::Terminated, || !ctx.has_orphan_work()).await;
    Outcome::After(if ctx.has_orphan_work() { YIELD } else { PERIOD })
}

fn current_plan(ctx: &Ctx) -> Plan {
    plan(readable(&ctx.pods), &readable(&ctx.nodes), ctx.threshold)
}

/// The objects that decode. An object that does not decode must not prevent the deletion of the others.
fn readable<T: Typed>(store: &Store<T>) -> Vec<Arc<T>> {
    store.entries().iter().filter_map(Entry::readable).cloned().collect()
}
