//! The revisions of a set: one has the present template, and its hash is the label of new pods.

use std::{collections::HashSet, sync::Arc};

use api::{ControllerRevision, DaemonSet, Pod, RevisionIndex, Selector};
use revisions::{NewRevision, REVISION_LABEL, Stored};
use serde_json::{Map, Value, value::RawValue};
use workload::{Owner, claim};

use crate::{
    Ctx,
    error::SyncError,
    pods::claim_pods,
    rules::history::{Current, current, hash, others, surplus},
};

/// The revisions of a set.
pub(crate) struct History {
    /// The hash of the one with the present template.
    pub(crate) hash: Box<str>,
    /// How often the name of a new revision was in use.
    pub(crate) collision_count: Option<i32>,
    /// Those with other templates, sorted.
    older: Vec<Arc<ControllerRevision>>,
    /// Pods got another label. The cache must show it before the pods are looked at.
    pub(crate) has_relabelled: bool,
}

/// Finds the revision with the present template, or creates it (`constructHistory`).
pub(crate) async fn find(ctx: &Ctx, set: &DaemonSet, owner: &Owner, selector: &Selector) -> Result<History, SyncError> {
    let sorted = claim_all(ctx, owner, selector).await?;
    let known = |at: usize, has_relabelled: bool| History {
        hash: hash(&sorted[at]).into(),
        collision_count: set.status.collision_count,
        older: others(&sorted, &[at]),
        has_relabelled,
    };
    if let Some(at) = ctx.memory.current(&set.meta.uid, set.generation, &sorted) {
        return Ok(known(at, false));
    }
    for revision in sorted.iter().filter(|it| it.labels.get(REVISION_LABEL).is_none()) {
        let labelled = ctx.revision_writer.set_label(owner, &**revision, REVISION_LABEL, &revision.meta.name).await;
        labelled.map_err(SyncError::Label)?;
    }
    let template: &RawValue = serde_json::from_str(&set.spec.template).map_err(SyncError::Template)?;
    let data = revisions::template_data(template).map_err(SyncError::Template)?;
    match current(&sorted, &data) {
        Current::Exists { at, number, duplicates } => {
            let is_final = number.is_none() && duplicates.is_empty();
            let has_relabelled = remove_duplicates(ctx, owner, selector, &sorted, at, &duplicates).await?;
            if let Some(number) = number {
                ctx.history.set_number(owner, &sorted[at], number).await?;
            }
            if is_final {
                ctx.memory.set_current(&set.meta.uid, set.generation, &sorted, at);
            }
            let present: Vec<usize> = duplicates.into_iter().chain([at]).collect();
            Ok(History { older: others(&sorted, &present), ..known(at, has_relabelled) })
        }
        Current::Create { number } => {
            let raw_metadata: Map<String, Value> =
                serde_json::from_str(api::StatusOwner::raw_metadata(set).get()).map_err(SyncError::Template)?;
            let annotations = raw_metadata.get("annotations").and_then(Value::as_object).into_iter().flatten();
            let annotations = annotations.filter_map(|(key, value)| Some((&**key, value.as_str()?))).collect();
            let labels = revisions::template_labels(template).map_err(SyncError::Template)?;
            let new = NewRevision { data: &data, revision: number, labels: &labels, annotations };
            let before = set.status.collision_count;
            let Stored { hash, collision_count, .. } =
                ctx.history.create(owner, &new, before.unwrap_or_default()).await?;
            let collision_count = if collision_count == 0 { before } else { Some(collision_count) };
            Ok(History { hash: hash.into(), collision_count, older: sorted, has_relabelled: false })
        }
    }
}

/// The revisions of the set, sorted. Orphans that match are adopted, and own ones that do not match are released.
async fn claim_all(ctx: &Ctx, owner: &Owner, selector: &Selector) -> Result<Vec<Arc<ControllerRevision>>, SyncError> {
    let store = ctx.revisions.store();
    let mut candidates = store.by_index(&RevisionIndex::Owner(owner.uid.clone()))?;
    candidates.extend(store.by_index(&RevisionIndex::Orphans(owner.namespace.clone()))?);
    let claimed = claim(&ctx.revision_writer, owner, candidates, |it| selector.matches(&it.labels)).await;
    let mut history = claimed.map_err(SyncError::Revisions)?.objects;
    revisions::sort(&mut history);
    Ok(history)
}

/// Deletes other revisions with the present template (`dedupCurHistories`). Their pods get the label of the one that
/// stays first, so that they are not replaced. Returns whether there were such pods.
async fn remove_duplicates(
    ctx: &Ctx,
    owner: &Owner,
    selector: &Selector,
    sorted: &[Arc<ControllerRevision>],
    kept: usize,
    duplicates: &[usize],
) -> Result<bool, SyncError> {
    if duplicates.is_empty() {
        return Ok(false);
    }
    let removed = duplicates.iter().map(|at| hash(&sorted[*at]));
    let hash = hash(&sorted[kept]);
    // A copy of a revision may have its label too. Then the pods have the right one already.
    let removed: HashSet<&str> = removed.filter(|it| *it != hash).collect();
    let is_of_removed = |it: &&Arc<Pod>| it.labels.get(REVISION_LABEL).is_some_and(|it| removed.contains(it));
    let mut has_relabelled = false;
    let pods = claim_pods(ctx, owner, selector).await?.objects;
    for pod in pods.iter().filter(is_of_removed) {
        has_relabelled = true;
        match ctx.control.writer().set_label(owner, &**pod, REVISION_LABEL, hash).await {
            Err(err) if !workload::is_gone(&err, &pod.meta.name) => return Err(SyncError::Label(err)),
            _ => {}
        }
    }
    for at in duplicates {
        ctx.history.delete(&sorted[*at]).await?;
    }
    Ok(has_relabelled)
}

/// Deletes the oldest revisions that are over the limit and that no pod has.
pub(crate) async fn truncate(
    ctx: &Ctx,
    set: &DaemonSet,
    history: &History,
    pods: &[Arc<Pod>],
) -> Result<(), SyncError> {
    let hashes: HashSet<&str> = pods.iter().filter_map(|it| it.labels.get(REVISION_LABEL)).collect();
    for revision in surplus(&history.older, set.spec.history_limit, &hashes) {
        if ctx.stopping.is_cancelled() {
            break;
        }
        ctx.history.delete(revision).await?;
    }
    Ok(())
}
