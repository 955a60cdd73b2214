use std::{collections::HashSet, sync::Arc};

use api::{Meta, MetaRef, OwnerRef, Pod, Uid};
use client::ApiError;
use futures::{StreamExt, stream};

use crate::{Owner, PodControl, control::is_gone};

/// The maximum of concurrent patches for one owner.
const MAX_CONCURRENT: usize = 16;

/// What to do with a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The owner controls it and selects it.
    Keep,
    /// Another owner controls it, or it does not concern this owner.
    Ignore,
    /// It has no controller and the owner selects it.
    Adopt,
    /// The owner controls it and does not select it any more.
    Release,
}

/// The pods of an owner.
#[derive(Debug, Default)]
pub struct Claimed {
    /// All pods of the owner. Those that were just adopted are still in the state before the adoption.
    pub pods: Vec<Arc<Pod>>,
    /// The pods that were just adopted.
    pub adopted: HashSet<Uid>,
}

/// Why the pods of an owner could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The owner could not be read.
    #[error("cannot look at {owner} before adopting pods")]
    Owner {
        /// The name of the owner.
        owner: Box<str>,
        /// The error of the request.
        #[source]
        source: ApiError,
    },
    /// The owner was replaced by another object of the same name.
    #[error("original {owner} is gone: its uid was {was}, it is {is}")]
    Replaced {
        /// The name of the owner.
        owner: Box<str>,
        /// The uid in the cache.
        was: Uid,
        /// The uid on the server.
        is: Uid,
    },
    /// The owner is being deleted, so it must not adopt.
    #[error("{owner} has just been deleted")]
    Deleted {
        /// The name of the owner.
        owner: Box<str>,
    },
    /// Some pods could not be patched. All were tried.
    #[error("cannot claim {count} pods, the first being {pod}")]
    Pods {
        /// The number of these pods.
        count: usize,
        /// The name of one of them.
        pod: Box<str>,
        /// The error for that pod.
        #[source]
        source: ApiError,
    },
}

/// Decides whether the owner keeps, adopts or releases a pod (`BaseControllerRefManager.ClaimObject`). Pure.
///
/// The uid alone proves nothing: any user who may create pods may write any uid into them, in any namespace.
#[must_use]
pub fn claim_decision(owner: &Owner, pod: MetaRef<'_>, matches: bool) -> Claim {
    if !owner.namespace.is_empty() && *pod.namespace != owner.namespace {
        return Claim::Ignore;
    }
    let is_orphan = match pod.controller() {
        Some(controller) if !is_named(owner, controller) => return Claim::Ignore,
        controller => controller.is_none(),
    };
    match (is_orphan, matches) {
        (false, true) => Claim::Keep,
        (false, false) if owner.deleting => Claim::Ignore,
        (false, false) => Claim::Release,
        (true, false) => Claim::Ignore,
        (true, true) if owner.deleting || pod.deletion.is_some() => Claim::Ignore,
        (true, true) => Claim::Adopt,
    }
}

/// Whether a reference means this owner. The kind is compared as in the indexes; the API group need not be, because
/// uids are unique.
fn is_named(owner: &Owner, reference: &OwnerRef) -> bool {
    reference.uid == owner.uid && *reference.kind == *owner.resource.kind && *reference.name == *owner.name
}

/// Claims the owner's pods among the candidates: adopts and releases as needed. Before the first adoption the owner is
/// read from the server once (upstream's `RecheckDeletionTimestamp`), because the cache may not show that the owner is
/// being deleted and its pods must be left to others.
///
/// # Errors
/// If a pod could not be adopted or released. All others were tried.
pub async fn claim(
    control: &PodControl,
    owner: &Owner,
    candidates: Vec<Arc<Pod>>,
    matches: impl Fn(&Pod) -> bool,
) -> Result<Claimed, ClaimError> {
    let (mut pods, mut to_adopt, mut to_release) = (Vec::with_capacity(candidates.len()), Vec::new(), Vec::new());
    for pod in candidates {
        match claim_decision(owner, pod.meta.as_ref(), matches(&pod)) {
            Claim::Keep => pods.push(pod),
            Claim::Adopt => to_adopt.push(pod),
            Claim::Release => to_release.push(pod),
            Claim::Ignore => {}
        }
    }
    let released = release(control, owner, to_release).await;
    let adopted = if to_adopt.is_empty() { Ok(Vec::new()) } else { adopt(control, owner, to_adopt).await };
    released?;
    let adopted = adopted?;
    let uids = adopted.iter().map(|it| it.meta.uid.clone()).collect();
    pods.extend(adopted);
    Ok(Claimed { pods, adopted: uids })
}

async fn adopt(control: &PodControl, owner: &Owner, pods: Vec<Arc<Pod>>) -> Result<Vec<Arc<Pod>>, ClaimError> {
    may_adopt(control, owner).await?;
    let calls = pods.into_iter().map(|pod| async move {
        let outcome = control.adopt(owner, &pod).await;
        (pod, outcome)
    });
    let mut adopted = Vec::new();
    let mut failed = Failed::default();
    let mut calls = stream::iter(calls).buffered(MAX_CONCURRENT);
    while let Some((pod, outcome)) = calls.next().await {
        match outcome {
            Ok(_) => adopted.push(pod),
            Err(err) if err.is_absence_of(&pod.meta.name) => {}
            Err(err) => failed.add(&pod, err),
        }
    }
    failed.into_result().map(|()| adopted)
}

async fn release(control: &PodControl, owner: &Owner, pods: Vec<Arc<Pod>>) -> Result<(), ClaimError> {
    let calls = pods.into_iter().map(|pod| async move {
        let outcome = control.release(owner, &pod).await;
        (pod, outcome)
    });
    let mut failed = Failed::default();
    let mut calls = stream::iter(calls).buffered(MAX_CONCURRENT);
    while let Some((pod, outcome)) = calls.next().await {
        match outcome {
            // The server answers Invalid also for a pod without owners and for another pod of this name.
            Ok(_) | Err(ApiError::Invalid(_)) => {}
            Err(err) if is_gone(&err, &pod.meta.name) => {}
            Err(err) => failed.add(&pod, err),
        }
    }
    failed.into_result()
}

/// Checks that the owner on the server has the same uid and is not being deleted.
async fn may_adopt(control: &PodControl, owner: &Owner) -> Result<(), ClaimError> {
    let name = || owner.name.clone();
    let live = control.api().get::<Meta>(&owner.resource, &owner.namespace, &owner.name).await;
    let live = live.map_err(|source| ClaimError::Owner { owner: name(), source })?;
    if live.uid != owner.uid {
        return Err(ClaimError::Replaced { owner: name(), was: owner.uid.clone(), is: live.uid });
    }
    if live.deletion.is_some() {
        return Err(ClaimError::Deleted { owner: name() });
    }
    Ok(())
}

/// The number of failures, and the first of them.
#[derive(Default)]
struct Failed {
    count: usize,
    first: Option<(Box<str>, ApiError)>,
}

impl Failed {
    fn add(&mut self, pod: &Pod, err: ApiError) {
        self.count += 1;
        self.first.get_or_insert_with(|| (pod.meta.name.clone(), err));
    }

    fn into_result(self) -> Result<(), ClaimError> {
        let Self { count, first } = self;
        first.map_or(Ok(()), |(pod, source)| Err(ClaimError::Pods { count, pod, source }))
    }
}
