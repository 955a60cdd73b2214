use std::{collections::HashSet, sync::Arc};

use api::{Meta, MetaRef, OwnerRef, Pod, Uid};
use client::ApiError;
use futures::{StreamExt, stream};

use crate::{Owner, PodControl, control::is_gone};

/// So many patches of one owner are under way at once.
const AT_ONCE: usize = 16;

/// What becomes of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It is the owner's.
    Keep,
    /// It is somebody else's, or nobody's business.
    Ignore,
    /// It is nobody's and suits the owner.
    Adopt,
    /// It is the owner's and does not suit it any more.
    Release,
}

/// The pods of an owner.
#[derive(Debug, Default)]
pub struct Claimed {
    /// All of them, those that were just adopted too, which still look as they did before.
    pub pods: Vec<Arc<Pod>>,
    /// Which of them were just adopted.
    pub adopted: HashSet<Uid>,
}

/// Why the pods of an owner could not be told.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The owner could not be looked at.
    #[error("cannot look at {owner} before adopting pods")]
    Owner {
        /// Its name.
        owner: Box<str>,
        /// Why.
        #[source]
        source: ApiError,
    },
    /// It is another one by now.
    #[error("original {owner} is gone: its uid was {was}, it is {is}")]
    Replaced {
        /// Its name.
        owner: Box<str>,
        /// As the cache has it.
        was: Uid,
        /// As the server has it.
        is: Uid,
    },
    /// It adopts no more.
    #[error("{owner} has just been deleted")]
    Deleted {
        /// Its name.
        owner: Box<str>,
    },
    /// Pods could not be patched; all were tried.
    #[error("cannot claim {count} pods, the first being {pod}")]
    Pods {
        /// How many.
        count: usize,
        /// The name of one.
        pod: Box<str>,
        /// What the server said of it.
        #[source]
        source: ApiError,
    },
}

/// Whether a pod is the owner's, or may become or must cease to be. Pure.
///
/// A uid alone proves nothing: whoever may create pods, anywhere, may write any uid into them.
#[must_use]
pub fn verdict(owner: &Owner, pod: MetaRef<'_>, matches: bool) -> Claim {
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

/// True where a reference means this owner. By kind, as indexes have it: the uid tells groups apart.
fn is_named(owner: &Owner, reference: &OwnerRef) -> bool {
    reference.uid == owner.uid && *reference.kind == *owner.resource.kind && *reference.name == *owner.name
}

/// Sorts out whose the candidates are, adopts and releases. Before the first adoption the owner itself is looked at on
/// the server, once: the cache may lag behind a deletion that leaves the pods to others.
///
/// # Errors
/// If a pod that is to be adopted or released could not be; all others were tried.
pub async fn claim(
    control: &PodControl,
    owner: &Owner,
    candidates: Vec<Arc<Pod>>,
    matches: impl Fn(&Pod) -> bool,
) -> Result<Claimed, ClaimError> {
    let (mut pods, mut orphans, mut strays) = (Vec::with_capacity(candidates.len()), Vec::new(), Vec::new());
    for pod in candidates {
        match verdict(owner, pod.meta.as_ref(), matches(&pod)) {
            Claim::Keep => pods.push(pod),
            Claim::Adopt => orphans.push(pod),
            Claim::Release => strays.push(pod),
            Claim::Ignore => {}
        }
    }
    let released = release(control, owner, strays).await;
    let adopted = if orphans.is_empty() { Ok(Vec::new()) } else { adopt(control, owner, orphans).await };
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
    let mut calls = stream::iter(calls).buffered(AT_ONCE);
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
    let mut calls = stream::iter(calls).buffered(AT_ONCE);
    while let Some((pod, outcome)) = calls.next().await {
        match outcome {
            // Also said of a pod without owners, or of another one by this name.
            Ok(_) | Err(ApiError::Invalid(_)) => {}
            Err(err) if is_gone(&err, &pod.meta.name) => {}
            Err(err) => failed.add(&pod, err),
        }
    }
    failed.into_result()
}

/// The owner as the server has it must be the very same, and stay.
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

/// What went wrong, of which one is told in full.
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
