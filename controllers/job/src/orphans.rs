//! Pods that our finalizer holds for nobody: their Job has ended or is gone, or they have no controller. The second queue.

use std::{fmt, sync::Arc, time::Duration};

use api::{Atom, Job, MetaRef, ObjectKey, OwnerRef, Pod, PodIndex, Typed, Uid};
use client::ApiError;
use informer::StoreError;
use pod_control::{has_finalizer, is_gone};
use runner::Outcome;

use crate::{Ctx, handlers::suitors, snapshot::FINALIZER};

/// Bounds how long a pod is held whose finalizer was asked to go when its Job ended, and did not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What to look at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum OrphanKey {
    /// A pod without a controller.
    Pod(ObjectKey),
    /// All pods of a namespace without a controller: a Job is gone whose selector might have chosen any of them.
    Namespace(Atom),
    /// All pods of a Job that has ended or is gone.
    Job {
        /// Where it is or was.
        namespace: Atom,
        /// Its name.
        name: Atom,
        /// Its identity: a successor of the name has pods of its own.
        uid: Uid,
    },
}

impl OrphanKey {
    pub(crate) fn of_job(job: &MetaRef<'_>) -> Self {
        Self::Job { namespace: job.namespace.clone(), name: job.name.into(), uid: job.uid.clone() }
    }
}

impl fmt::Display for OrphanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "{key}"),
            Self::Namespace(namespace) => write!(f, "{namespace}/"),
            Self::Job { namespace, name, uid } => write!(f, "{namespace}/{name} ({uid})"),
        }
    }
}

/// Why pods are still held. The key is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrphanError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    #[error("cannot look at the Job of pods that its cache does not know")]
    Job(#[source] ApiError),
    #[error("cannot take the finalizer off {count} pods, the first being {pod}")]
    Pods {
        count: usize,
        pod: Box<str>,
        #[source]
        source: ApiError,
    },
}

/// Lets the pods of a key go, if they are to.
pub(crate) async fn release(ctx: &Ctx, key: &OrphanKey) -> Result<Outcome, OrphanError> {
    let held = candidates(ctx, key)?.into_iter().filter(|it| is_stuck(ctx, it));
    let is_leaving = |pod: &Arc<Pod>| ctx.memory.is_leaving(&pod.meta.uid);
    let (leaving, held): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = held.partition(is_leaving);
    // Their finalizers are on their way out, since before the Job ended: what does not go by itself is asked again.
    let outcome = if leaving.is_empty() { Outcome::Done } else { Outcome::After(LOOK_AGAIN) };
    if held.is_empty() {
        return Ok(outcome);
    }
    if let OrphanKey::Job { namespace, name, uid } = key
        && !is_over(ctx, namespace, name, uid).await?
    {
        return Ok(outcome);
    }
    let none = Uid::default();
    let release = |pod: Arc<Pod>| {
        let none = &none;
        async move {
            // Somebody may adopt it meanwhile, and needs the finalizer.
            let outcome = ctx.control.remove_finalizer_as_seen(none, &pod, FINALIZER).await;
            (pod, outcome.map(drop))
        }
    };
    let outcomes = ctx.calls.each(held, release).await;
    let mut failed = outcomes.into_iter().filter_map(|(pod, outcome)| Some((pod, outcome.err()?)));
    let mut failed = failed.by_ref().filter(|(pod, err)| !is_gone(err, &pod.meta.name));
    match failed.next() {
        None => Ok(outcome),
        Some((pod, source)) => Err(OrphanError::Pods { count: 1 + failed.count(), pod: pod.meta.name.clone(), source }),
    }
}

fn candidates(ctx: &Ctx, key: &OrphanKey) -> Result<Vec<Arc<Pod>>, StoreError> {
    let store = ctx.pods.store();
    match key {
        OrphanKey::Pod(key) => {
            let pod = store.get(&key.namespace, &key.name)?;
            // With a controller it has come to belong to somebody.
            Ok(pod.into_iter().filter(|it| it.meta.as_ref().controller().is_none()).collect())
        }
        OrphanKey::Namespace(namespace) => store.by_index(&PodIndex::Orphans(namespace.clone())),
        OrphanKey::Job { namespace, name, uid } => {
            let mut pods = store.by_index(&PodIndex::JobWork(uid.clone()))?;
            pods.extend(store.by_index(&PodIndex::JobOrphans(uid.clone()))?);
            // Only those that name it as the key does: what is found out about this name says nothing of the Job that
            // pods elsewhere, or with another name, belong to.
            pods.retain(|it| it.meta.namespace == *namespace && is_named(it, name));
            Ok(pods)
        }
    }
}

/// True where the controller, if there is one, bears this name.
fn is_named(pod: &Pod, job: &str) -> bool {
    pod.meta.as_ref().controller().is_none_or(|it| *it.name == *job)
}

/// Our finalizer holds it, and nobody will adopt it: who does needs the finalizer where it is.
fn is_stuck(ctx: &Ctx, pod: &Pod) -> bool {
    let is_owned = pod.meta.as_ref().controller().is_some();
    has_finalizer(pod, FINALIZER) && may_be_ours(pod) && (is_owned || suitors(ctx, pod).is_empty())
}

/// Another kind of controller, whatever its name, may put the same finalizer there for reasons of its own.
fn may_be_ours(pod: &Pod) -> bool {
    let is_job = |owner: &OwnerRef| &*owner.kind == "Job" && *owner.api_version == *Job::resource().api_version();
    pod.meta.as_ref().controller().is_none_or(is_job)
}

/// True when nobody will count the pods of this Job any more: it has ended, or is gone. A Job that the cache does not know
/// may be newer than the cache, so the server is asked.
async fn is_over(ctx: &Ctx, namespace: &str, name: &str, uid: &Uid) -> Result<bool, OrphanError> {
    let is_over = |job: &Job| job.is_managed_by_us() && job.is_finished();
    if let Some(job) = ctx.jobs.store().get(namespace, name)?
        && job.meta.uid == *uid
    {
        return Ok(is_over(&job));
    }
    match ctx.control.api().get::<Job>(&Job::resource(), namespace, name).await {
        Ok(job) if job.meta.uid == *uid => Ok(is_over(&job)),
        Ok(_) => Ok(true),
        Err(err) if err.is_absence_of(name) => Ok(true),
        Err(err) => Err(OrphanError::Job(err)),
    }
}
