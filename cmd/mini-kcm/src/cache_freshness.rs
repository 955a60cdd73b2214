//! Proves that the caches of a new leader are fresh. At the end of a term, collects the notes for the next leader.
//!
//! A new leader must not act on a cache that lacks a write of the old leader. When a mini-kcm leader released the
//! Lease, its notes contain the versions to wait for. In all other cases each informer is proved with a read from the
//! server. Only informers whose cache alone justifies writes are proved.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use api::Resource;
use client::{Api, Clients, Limits};
use clock::{BootInstant, Clock};
use controller::{Cache, Controller, Proof};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use informer::Watched;
use leader_election::{Notes, Takeover};
use tasks::{Spawner, Task};

/// How long a leaving leader waits until its informers show its writes. A successor waits as long for the versions of
/// the notes.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// The poll interval while a deletion is not in the cache yet.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The pause between two attempts of a proof. The server was probably not reachable.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A proof in progress. It runs even before a controller waits for it.
struct RunningProof {
    /// When the proof is done, the cache shows all writes from before this instant.
    begun_at: BootInstant,
    done: Shared<BoxFuture<'static, ()>>,
    task: Task,
}

/// The cache proofs of one manager.
pub struct CacheFreshness {
    /// The caches that alone justify writes.
    caches: BTreeMap<Resource, Cache>,
    api: Api,
    clock: Clock,
    spawner: Spawner,
    proofs: BTreeMap<Resource, RunningProof>,
}

impl CacheFreshness {
    /// For the informers of these controllers.
    #[must_use]
    pub fn new<'a>(
        clients: &Clients,
        controllers: impl IntoIterator<Item = &'a Controller>,
        clock: Clock,
        spawner: Spawner,
    ) -> Self {
        let needed = controllers.into_iter().flat_map(Controller::caches).filter(|it| it.proof == Proof::Needed);
        let caches = needed.map(|it| (it.watched.resource().clone(), it.clone())).collect();
        // Proofs have no rate limit, because the start of the term waits for them.
        let api = clients.unfenced("proof", Limits::NONE);
        Self { caches, api, clock, spawner, proofs: BTreeMap::new() }
    }

    /// Starts proofs before the Lease of the last leader expires, when that leader was mini-kcm. The first proof starts
    /// now, as the old leader no longer sends. The second starts at `last_write`, when the server stores no more of its
    /// writes.
    pub fn prove_ahead(&mut self, last_write: BootInstant) {
        for (resource, Cache { watched, .. }) in self.caches.clone() {
            let (begun_at, api, clock) = (self.clock.boot(), self.api.clone(), self.clock.clone());
            self.start_proof(resource, begun_at, async move {
                // A stale cache catches up during the first proof. The first proof must not delay the second one.
                let meantime = last_write.saturating_since(begun_at).saturating_sub(informer::REOPEN_AHEAD);
                let caught_up = prove(watched.clone(), api.clone(), clock.clone(), begun_at);
                let _ = tokio::time::timeout(meantime, caught_up).await;
                prove(watched, api, clock, last_write).await;
            });
        }
    }

    /// Decides which proofs are still needed before the first write.
    pub fn take_over(&mut self, takeover: Takeover) {
        for (resource, cache) in self.caches.clone() {
            // A proof from `prove_ahead` stays valid when it began after the last renewal of the last leader.
            let is_proved_ahead = match takeover {
                Takeover::CrashOfOurs { last_change, .. } => {
                    self.proofs.get(&resource).is_some_and(|it| it.begun_at > last_change)
                }
                Takeover::First | Takeover::ReleasedByOurs(_) | Takeover::Other => false,
            };
            if is_proved_ahead {
                continue;
            }
            let noted_version = match &takeover {
                Takeover::ReleasedByOurs(notes) => notes.versions.get(&resource.to_string()).cloned(),
                Takeover::First | Takeover::CrashOfOurs { .. } | Takeover::Other => None,
            };
            let (watched, api, clock) = (cache.watched, self.api.clone(), self.clock.clone());
            let now = self.clock.boot();
            let begun_at = match takeover {
                Takeover::CrashOfOurs { last_write, .. } => now.max(last_write),
                // Acquiring the Lease took longer than the last holder was able to write.
                Takeover::First | Takeover::ReleasedByOurs(_) | Takeover::Other => now,
            };
            self.start_proof(resource, begun_at, async move {
                let caught_up = match noted_version {
                    Some(version) => {
                        tokio::time::timeout(CATCH_UP_TIMEOUT, wait_for_version(&*watched, version)).await.is_ok()
                    }
                    None => false,
                };
                if !caught_up {
                    prove(watched, api, clock, begun_at).await;
                }
            });
        }
    }

    /// Starts one new proof of each of these informers in the middle of a term: another manager may have written until
    /// now. Until `last_write` the server may store a create of this process whose outcome is not awaited any more.
    pub fn prove_again<'a>(&mut self, caches: impl IntoIterator<Item = &'a Cache>, last_write: Option<BootInstant>) {
        let begun_at = self.clock.boot();
        let begun_at = last_write.map_or(begun_at, |it| it.max(begun_at));
        let needed = caches.into_iter().filter(|it| it.proof == Proof::Needed);
        let informers: BTreeMap<Resource, Arc<dyn Watched>> =
            needed.map(|it| (it.watched.resource().clone(), it.watched.clone())).collect();
        for (resource, watched) in informers {
            let (api, clock) = (self.api.clone(), self.clock.clone());
            // The proof that is replaced may have waited for a later write.
            let begun_at = self.proofs.get(&resource).map_or(begun_at, |it| it.begun_at.max(begun_at));
            self.start_proof(resource, begun_at, prove(watched, api, clock, begun_at));
        }
    }

    /// Completes when all of these informers are proved; at once without a previous leader.
    pub fn wait_until_proved(&self, caches: &[Cache]) -> impl Future<Output = ()> + Send + use<> {
        let awaited = caches.iter().filter_map(|it| Some(self.proofs.get(it.watched.resource())?.done.clone()));
        join_all(awaited.collect::<Vec<_>>()).map(drop)
    }

    /// Waits, for one second at most, until the informers show the writes and deletions of this process. Then notes the
    /// version of each such type. A type without a note costs the successor a proof.
    pub async fn collect_notes(&self, clients: &Clients) -> Notes {
        let pending = clients.recent_writes().writes().into_iter().filter_map(|(resource, writes)| {
            let Cache { watched, is_gone_or_deleting, .. } = self.caches.get(&resource)?.clone();
            // The watch does not answer, so the version may be old.
            if watched.unanswered_for().is_some() {
                return None;
            }
            Some(async move {
                let caught_up = async {
                    if let Some(version) = writes.newest {
                        wait_for_version(&*watched, version).await;
                    }
                    // A delete call returns no version to wait for.
                    while !writes.deleted.iter().all(|it| is_gone_or_deleting(it)) {
                        tokio::time::sleep(POLL_INTERVAL).await;
                    }
                };
                let complete = !writes.untracked && tokio::time::timeout(CATCH_UP_TIMEOUT, caught_up).await.is_ok();
                let version = watched.last_event_version().filter(|_| complete)?;
                Some((resource.to_string(), version))
            })
        });
        let versions = join_all(pending.collect::<Vec<_>>()).await.into_iter().flatten().collect();
        Notes { versions }
    }

    /// Starts a proof and stops an older one of the same resource, which is no longer needed.
    fn start_proof(
        &mut self,
        resource: Resource,
        begun_at: BootInstant,
        proof: impl Future<Output = ()> + Send + 'static,
    ) {
        let done = proof.boxed().shared();
        let task = self.spawner.spawn("proof", done.clone());
        if let Some(older) = self.proofs.insert(resource, RunningProof { begun_at, done, task }) {
            older.task.stop();
        }
    }
}

async fn prove(watched: Arc<dyn Watched>, api: Api, clock: Clock, old_term_ended: BootInstant) {
    while let Err(err) = informer::prove(&*watched, &api, &clock, Some(old_term_ended)).await {
        tracing::warn!(%err, resource = %watched.resource(), "Cannot prove that the cache is new enough: its controllers wait");
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    tracing::debug!(target: "v2", resource = %watched.resource(), "The cache is proved");
}

/// Waits until the store has passed `version`.
async fn wait_for_version(watched: &dyn Watched, version: api::Version) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let wake = Box::new(move || {
        // The other end is dropped after a timeout.
        let _ = sender.send(());
    });
    if !watched.call_when_passed(version, wake) && receiver.await.is_err() {
        // The informer is gone and will never pass the version.
        std::future::pending::<()>().await;
    }
}
