//! When a new leader's caches are new enough, and what a leaver tells its successor about that.
//!
//! A new leader acts on nothing older than the old leader's last write. Where one of ours released the Lease it says
//! which versions that means; everywhere else each informer is proved against the server's own word. Only informers
//! whose cache alone justifies writes are proved.

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

/// The leaver waits this long for its informers to show its writes; the successor as long for what the notes say.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Between two looks whether a deletion shows.
const LOOK: Duration = Duration::from_millis(5);
/// Between two tries to prove: the server was not there, most likely.
const AGAIN: Duration = Duration::from_secs(1);

/// A proof that runs whether or not anybody waits for it yet.
struct Running {
    /// What was written before this instant is shown once the proof is done.
    begun: BootInstant,
    done: Shared<BoxFuture<'static, ()>>,
    task: Task,
}

/// The view of one manager.
pub struct View {
    /// Those whose cache alone justifies writes.
    caches: BTreeMap<Resource, Cache>,
    api: Api,
    clock: Clock,
    spawner: Spawner,
    proofs: BTreeMap<Resource, Running>,
}

impl View {
    /// The view through these controllers' informers.
    #[must_use]
    pub fn new(clients: &Clients, controllers: &[Controller], clock: Clock, spawner: Spawner) -> Self {
        let needed = controllers.iter().flat_map(Controller::caches).filter(|it| it.proof == Proof::Needed);
        let caches = needed.map(|it| (it.watched.resource().clone(), it.clone())).collect();
        // Proofs pass no token bucket: the term is waiting.
        let api = clients.unfenced("proof", Limits::NONE);
        Self { caches, api, clock, spawner, proofs: BTreeMap::new() }
    }

    /// Proves everything while the Lease of the last leader, one of ours, still stands: now, as it sends no more, and
    /// once more when the server stores no more of it, at `last_write`.
    pub fn prove_ahead(&mut self, last_write: BootInstant) {
        for (resource, Cache { watched, .. }) in self.caches.clone() {
            let (begun, api, clock) = (self.clock.boot(), self.api.clone(), self.clock.clone());
            self.begin(resource, begun, async move {
                // A cache that is far behind catches up in the meantime. That must not delay the proof that counts.
                let meantime = last_write.saturating_since(begun).saturating_sub(informer::AHEAD);
                let caught_up = prove(watched.clone(), api.clone(), clock.clone(), begun);
                let _ = tokio::time::timeout(meantime, caught_up).await;
                prove(watched, api, clock, last_write).await;
            });
        }
    }

    /// Decides what must still be shown before anything is written.
    pub fn take_over(&mut self, takeover: Takeover) {
        for (resource, cache) in self.caches.clone() {
            // What is proved as of the last write after the last sign of the last leader stays proved.
            let ahead = match takeover {
                Takeover::CrashOfOurs { last_change, .. } => {
                    self.proofs.get(&resource).is_some_and(|it| it.begun > last_change)
                }
                Takeover::First | Takeover::ReleasedByOurs(_) | Takeover::Other => false,
            };
            if ahead {
                continue;
            }
            let noted = match &takeover {
                Takeover::ReleasedByOurs(notes) => notes.versions.get(&resource.to_string()).cloned(),
                Takeover::First | Takeover::CrashOfOurs { .. } | Takeover::Other => None,
            };
            let (watched, api, clock) = (cache.watched, self.api.clone(), self.clock.clone());
            let now = self.clock.boot();
            let begun = match takeover {
                Takeover::CrashOfOurs { last_write, .. } => now.max(last_write),
                // Taking the Lease took longer than its last holder could write.
                Takeover::First | Takeover::ReleasedByOurs(_) | Takeover::Other => now,
            };
            self.begin(resource, begun, async move {
                let caught_up = match noted {
                    Some(version) => tokio::time::timeout(CATCH_UP, passed(&*watched, version)).await.is_ok(),
                    None => false,
                };
                if !caught_up {
                    prove(watched, api, clock, begun).await;
                }
            });
        }
    }

    /// Ends when all of these informers are proved; at once without a predecessor.
    pub fn proved(&self, caches: &[Cache]) -> impl Future<Output = ()> + Send + use<> {
        let awaited = caches.iter().filter_map(|it| Some(self.proofs.get(it.watched.resource())?.done.clone()));
        join_all(awaited.collect::<Vec<_>>()).map(drop)
    }

    /// Waits, a second at most, until our own informers show what we wrote and deleted, and notes for each type that
    /// they do show how far they are. A type without a note costs the successor a proof.
    pub async fn notes(&self, clients: &Clients) -> Notes {
        let shown = clients.ledger().written().into_iter().filter_map(|(resource, writes)| {
            let Cache { watched, is_gone_or_deleting, .. } = self.caches.get(&resource)?.clone();
            // What the server owes us may be anything.
            if watched.unanswered().is_some() {
                return None;
            }
            Some(async move {
                let shown = async {
                    if let Some(version) = writes.newest {
                        passed(&*watched, version).await;
                    }
                    // A deletion returns no version to wait for.
                    while !writes.deleted.iter().all(|key| is_gone_or_deleting(key)) {
                        tokio::time::sleep(LOOK).await;
                    }
                };
                let complete = !writes.untracked && tokio::time::timeout(CATCH_UP, shown).await.is_ok();
                let version = watched.last_event_version().filter(|_| complete)?;
                Some((resource.to_string(), version))
            })
        });
        let versions = join_all(shown.collect::<Vec<_>>()).await.into_iter().flatten().collect();
        Notes { versions }
    }

    /// Starts a proof in place of an older one, which would only get in its way.
    fn begin(&mut self, resource: Resource, begun: BootInstant, proof: impl Future<Output = ()> + Send + 'static) {
        let done = proof.boxed().shared();
        let task = self.spawner.spawn("proof", done.clone());
        if let Some(older) = self.proofs.insert(resource, Running { begun, done, task }) {
            older.task.stop();
        }
    }
}

async fn prove(watched: Arc<dyn Watched>, api: Api, clock: Clock, old_term_ended: BootInstant) {
    while let Err(err) = informer::prove(&*watched, &api, &clock, Some(old_term_ended)).await {
        tracing::warn!(%err, resource = %watched.resource(), "Cannot prove that the cache is new enough: its controllers wait");
        tokio::time::sleep(AGAIN).await;
    }
    tracing::debug!(target: "v2", resource = %watched.resource(), "The cache is proved");
}

/// Waits until the store passed `version`.
async fn passed(watched: &dyn Watched, version: api::Version) {
    let (tell, told) = tokio::sync::oneshot::channel();
    let wake = Box::new(move || {
        // Nobody waits any more: the patience was over.
        let _ = tell.send(());
    });
    if !watched.when_passed(version, wake) && told.await.is_err() {
        // The informer is gone and passes nothing any more.
        std::future::pending::<()>().await;
    }
}
