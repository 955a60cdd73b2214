use api::{Pod, PodIndex, Selector};
use workload::{Claimed, Owner, claim};

use crate::{Ctx, error::SyncError, rules::snapshot::sort_pods};

/// The pods of the set, sorted. Orphans that match are adopted; own pods that are not selected any more are released.
pub(crate) async fn claim_pods(ctx: &Ctx, owner: &Owner, selector: &Selector) -> Result<Claimed<Pod>, SyncError> {
    let store = ctx.pods.store();
    // In this order an orphan that is adopted in between is in both.
    let mut candidates = store.by_index(&PodIndex::Orphans(owner.namespace.clone()))?;
    candidates.extend(store.by_index(&PodIndex::Owner(owner.uid.clone()))?);
    let claimed = claim(ctx.control.writer(), owner, candidates, |it| selector.matches(&it.labels)).await;
    let mut claimed = claimed.map_err(SyncError::Pods)?;
    sort_pods(&mut claimed.objects);
    Ok(claimed)
}
