use std::{collections::HashSet, sync::Arc};

use api::{Atom, Meta, MetaRef, OwnerRef, Typed, Uid};
use client::ApiError;
use futures::{StreamExt, stream};

use crate::{ObjectWriter, Owner, control::is_gone};

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

/// The objects of an owner.
#[derive(Debug)]
pub struct Claimed<T> {
    /// All objects of the owner. Those that were just adopted are still in the state before the adoption.
    pub objects: Vec<Arc<T>>,
    /// The objects whose adoption was just answered. Their present state is not known.
    pub adopted: HashSet<Uid>,
    /// Whether one of these adoptions is stored, so that the cache will show it. If a webhook has removed the reference, the
    /// object counts all the same, as upstream: its replacement would lose the reference too.
    pub is_adoption_stored: bool,
}

/// Why the objects of an owner could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The owner could not be read.
    #[error("cannot read {owner} from the server")]
    Owner {
        /// The name of the owner.
        owner: Box<str>,
        /// The error of the request.
        #[source]
        source: ApiError,
    },
    /// The owner was replaced by another object of the same name.
    #[error("original {owner} is gone: its uid was {was} and is now {is}")]
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
    /// Some objects could not be patched. All were tried.
    #[error("cannot claim {count} {resource}, the first being {object}")]
    Objects {
        /// The plural name of their type.
        resource: Atom,
        /// The number of these objects.
        count: usize,
        /// The name of one of them.
        object: Box<str>,
        /// The error for that object.
        #[source]
        source: ApiError,
    },
}

/// Decides whether the owner keeps, adopts or releases an object (`BaseControllerRefManager.ClaimObject`). Pure.
///
/// The uid alone proves nothing: any user who may create objects may write any uid into them, in any namespace.
#[must_use]
pub fn claim_decision(owner: &Owner, object: MetaRef<'_>, matches: bool) -> Claim {
    if !owner.namespace.is_empty() && *object.namespace != owner.namespace {
        return Claim::Ignore;
    }
    let is_orphan = match object.controller() {
        Some(controller) if !is_named(owner, controller) => return Claim::Ignore,
        controller => controller.is_none(),
    };
    match (is_orphan, matches) {
        (false, true) => Claim::Keep,
        (false, false) if owner.deleting => Claim::Ignore,
        (false, false) => Claim::Release,
        (true, false) => Claim::Ignore,
        (true, true) if owner.deleting || object.deletion.is_some() => Claim::Ignore,
        (true, true) => Claim::Adopt,
    }
}

/// Whether a reference means this owner. The kind is compared as in the indexes; the API group need not be, because
/// uids are unique.
fn is_named(owner: &Owner, reference: &OwnerRef) -> bool {
    reference.uid == owner.uid && *reference.kind == *owner.resource.kind && *reference.name == *owner.name
}

/// Claims the owner's objects among the candidates: adopts and releases as needed. Before the first adoption the owner
/// is read from the server once (upstream's `RecheckDeletionTimestamp`), because the cache may not show that the owner
/// is being deleted and its objects must be left to others.
///
/// # Errors
/// If an object could not be adopted or released. All others were tried.
pub async fn claim<T: Typed>(
    writer: &ObjectWriter,
    owner: &Owner,
    candidates: Vec<Arc<T>>,
    matches: impl Fn(&T) -> bool,
) -> Result<Claimed<T>, ClaimError> {
    let (mut objects, mut to_adopt, mut to_release) = (Vec::with_capacity(candidates.len()), Vec::new(), Vec::new());
    for object in candidates {
        match claim_decision(owner, object.meta(), matches(&object)) {
            Claim::Keep => objects.push(object),
            Claim::Adopt => to_adopt.push(object),
            Claim::Release => to_release.push(object),
            Claim::Ignore => {}
        }
    }
    // An object that lost its owner while the cache was read is a candidate twice, and must not count twice.
    to_adopt.retain(|it| !objects.iter().any(|own| own.meta().uid == it.meta().uid));
    let released = release(writer, owner, to_release).await;
    let answered = if to_adopt.is_empty() { Ok(Vec::new()) } else { adopt(writer, owner, to_adopt).await };
    released?;
    let answered = answered?;
    let is_adoption_stored = answered.iter().any(|(_, is_stored)| *is_stored);
    let adopted = answered.iter().map(|(it, _)| it.meta().uid.clone()).collect();
    objects.extend(answered.into_iter().map(|(object, _)| object));
    Ok(Claimed { objects, adopted, is_adoption_stored })
}

/// Each object of which the patch was answered, and whether the reference is stored.
async fn adopt<T: Typed>(
    writer: &ObjectWriter,
    owner: &Owner,
    objects: Vec<Arc<T>>,
) -> Result<Vec<(Arc<T>, bool)>, ClaimError> {
    check_owner(writer, owner).await?;
    let calls = objects.into_iter().map(|object| async move {
        let outcome = writer.adopt(owner, &*object).await;
        (object, outcome)
    });
    let mut answered = Vec::new();
    let mut failed = Failed::default();
    let mut calls = stream::iter(calls).buffered(MAX_CONCURRENT);
    while let Some((object, outcome)) = calls.next().await {
        match outcome {
            Ok(is_stored) => answered.push((object, is_stored)),
            Err(err) if err.is_absence_of(object.meta().name) => {}
            Err(err) => failed.add(&*object, err),
        }
    }
    failed.into_result::<T>().map(|()| answered)
}

async fn release<T: Typed>(writer: &ObjectWriter, owner: &Owner, objects: Vec<Arc<T>>) -> Result<(), ClaimError> {
    let calls = objects.into_iter().map(|object| async move {
        let outcome = writer.release(owner, &*object).await;
        (object, outcome)
    });
    let mut failed = Failed::default();
    let mut calls = stream::iter(calls).buffered(MAX_CONCURRENT);
    while let Some((object, outcome)) = calls.next().await {
        match outcome {
            // The server answers Invalid also for an object without owners and for another object of this name.
            Ok(_) | Err(ApiError::Invalid(_)) => {}
            Err(err) if is_gone(&err, object.meta().name) => {}
            Err(err) => failed.add(&*object, err),
        }
    }
    failed.into_result::<T>()
}

/// Checks that the owner on the server has the same uid and is not being deleted. The cache may show that late.
async fn check_owner(writer: &ObjectWriter, owner: &Owner) -> Result<(), ClaimError> {
    let name = || owner.name.clone();
    let live = writer.api().get::<Meta>(&owner.resource, &owner.namespace, &owner.name).await;
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
    fn add(&mut self, object: &impl Typed, err: ApiError) {
        self.count += 1;
        self.first.get_or_insert_with(|| (object.meta().name.into(), err));
    }

    fn into_result<T: Typed>(self) -> Result<(), ClaimError> {
        let Self { count, first } = self;
        let Some((object, source)) = first else { return Ok(()) };
        Err(ClaimError::Objects { resource: T::resource().plural, count, object, source })
    }
}
