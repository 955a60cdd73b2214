//! Deletions whose outcome is unknown: the pod may be deleted already, or may still be.

use std::sync::Arc;

use api::{Pod, Typed, Uid};
use client::{Api, ApiError};
use clock::{Clock, Instant};
use informer::Store;

use crate::{CallLimit, REPEAT_FOR, RETRY_CHECK, end_of_request};

/// A deletion whose outcome is unknown. Its requests name the state of the pod ([`PodControl::delete_as_seen`]).
///
/// [`PodControl::delete_as_seen`]: crate::PodControl::delete_as_seen
#[derive(Debug, Clone)]
pub struct UnknownDeletion {
    /// The pod that was to be deleted, in this state.
    pub pod: Arc<Pod>,
    /// When to read the pod from the server. All requests have certainly ended then.
    pub check_at: Instant,
    /// Until when it may be sent again.
    pub repeat_until: Instant,
}

impl UnknownDeletion {
    /// What is known of a deletion after a failed request, and `earlier` ones. `None` if the pod was certainly not deleted.
    #[must_use]
    pub fn after(err: &ApiError, pod: Arc<Pod>, earlier: Option<&Self>, now: Instant) -> Option<Self> {
        // A refusal does not show what an earlier request has done.
        let check_at = end_of_request(err, now).max(earlier.map(|it| it.check_at))?;
        let repeat_until = match err {
            // The deletion names the state of the pod that has changed, so it can never succeed.
            ApiError::Conflict(_) => now,
            _ => earlier.map_or(now + REPEAT_FOR, |it| it.repeat_until),
        };
        Some(Self { pod, check_at, repeat_until })
    }

    /// When the next sync must look at it: the cache may show another state of the pod before the server is read.
    #[must_use]
    pub fn next_check(&self, now: Instant) -> Instant {
        self.check_at.min(now + RETRY_CHECK)
    }
}

/// Where outcomes are read.
pub struct DeletionReader<'a> {
    /// The server.
    pub api: &'a Api,
    /// The cached pods.
    pub cache: &'a Store<Pod>,
    /// The limit for concurrent reads.
    pub limit: &'a CallLimit,
    /// False while the manager stops: then only the cache is read.
    pub may_call: bool,
    /// The clock.
    pub clock: &'a Clock,
}

impl DeletionReader<'_> {
    /// Separates the deletions whose outcome is known (their pods) from those still unknown. It is known if the cache
    /// shows another state of the pod, or if all requests have ended and the server has the pod unchanged. `enqueue` is
    /// called when the cache has passed a change that only the server shows yet: not every change enqueues the owner.
    pub async fn resolve(
        &self,
        deletions: Vec<UnknownDeletion>,
        enqueue: impl Fn() + Clone + Send + Sync + 'static,
    ) -> (Vec<Uid>, Vec<UnknownDeletion>) {
        let results =
            self.limit.call_each(deletions.iter().collect(), |it| self.is_resolved(it, enqueue.clone())).await;
        // The reads took time.
        let now = self.clock.now();
        let (mut resolved, mut left) = (Vec::new(), Vec::new());
        for (mut deletion, is_resolved) in deletions.into_iter().zip(results) {
            if is_resolved {
                resolved.push(deletion.pod.meta.uid.clone());
                continue;
            }
            if deletion.check_at <= now {
                // The read failed, or the cache is late.
                deletion.check_at = now + RETRY_CHECK;
            }
            left.push(deletion);
        }
        (resolved, left)
    }

    async fn is_resolved(&self, deletion: &UnknownDeletion, enqueue: impl Fn() + Send + 'static) -> bool {
        let pod = &deletion.pod.meta;
        let is_unchanged = |it: &Pod| it.meta.uid == pod.uid && it.meta.version == pod.version;
        // If the cache cannot be read, it is read again later.
        let Ok(cached) = self.cache.get(&pod.namespace, &pod.name) else { return false };
        if !cached.is_some_and(|it| is_unchanged(&it)) {
            return true;
        }
        if self.clock.now() < deletion.check_at || !self.may_call {
            return false;
        }
        match self.api.find::<Pod>(&Pod::resource(), &pod.namespace, &pod.name).await {
            Ok(Some(live)) if is_unchanged(&live) => true,
            // The cache is late, or shows the change meanwhile.
            Ok(Some(live)) => self.cache.call_when_passed(live.meta.version.clone(), Box::new(enqueue)),
            // The pod is gone: resolved when the cache shows it. After an error the read is repeated.
            Ok(None) | Err(_) => false,
        }
    }
}
