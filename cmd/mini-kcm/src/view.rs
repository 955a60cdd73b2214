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
use tasks::Spawner;

/// The leaver waits this long for its informers to show its writes; the successor as long for what the notes say.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Between two looks whether a deletion shows.
const LOOK: Duration = Duration::from_millis(5);
/// Between two tries to prove: the server was not there, most likely.
const AGAIN: Duration = Duration::from_secs(1);

type Proved = Shared<BoxFuture<'static, ()>>;

/// The view of one manager.
pub struct View {
    /// Those whose cache alone justifies writes.
    caches: BTreeMap<Resource, Cache>,
    api: Api,
    clock: Clock,
    spawner: Spawner,
    proofs: BTreeMap<Resource, Proved>,
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

    /// Proves everything now: the last leader, one of ours, can write no more though its Lease still stands.
    pub fn prove_ahead(&mut self) {
        for (resource, cache) in &self.caches {
            // The last leader's fence closed before this signal: a set asked for from now on needs no further proof.
            let proof = prove(cache.watched.clone(), self.api.clone(), self.clock.clone(), Some(self.clock.boot()));
            self.proofs.insert(resource.clone(), self.begin(proof));
        }
    }

    /// Decides what must still be shown before anything is written.
    pub fn take_over(&mut self, takeover: Takeover) {
        let ahead = match &takeover {
            // What was proved after the last leader's fence stays proved.
            Takeover::CrashOfOurs { .. } => std::mem::take(&mut self.proofs),
            _ => BTreeMap::new(),
        };
        self.proofs = ahead;
        for (resource, cache) in &self.caches {
            if self.proofs.contains_key(resource) {
                continue;
            }
            let noted = match &takeover {
                Takeover::ReleasedByOurs(notes) => notes.versions.get(&resource.to_string()).cloned(),
                _ => None,
            };
            let (watched, api, clock) = (cache.watched.clone(), self.api.clone(), self.clock.clone());
            // Taking the Lease took longer than its last holder could write.
            let old_term_ended = self.clock.boot();
            let proof = self.begin(async move {
                let caught_up = match noted {
                    Some(version) => tokio::time::timeout(CATCH_UP, passed(&*watched, version)).await.is_ok(),
                    None => false,
                };
                if !caught_up {
                    prove(watched, api, clock, Some(old_term_ended)).await;
                }
            });
            self.proofs.insert(resource.clone(), proof);
        }
    }

    /// Ends when all of these informers are proved; at once without a predecessor.
    pub fn proved(&self, caches: &[Cache]) -> impl Future<Output = ()> + Send + use<> {
        let awaited = caches.iter().filter_map(|it| self.proofs.get(it.watched.resource()).cloned());
        join_all(awaited.collect::<Vec<_>>()).map(drop)
    }

    /// Waits, a second at most, until our own informers show what we wrote and deleted, and notes for each type that
    /// they do show how far they are. A type without a note costs the successor a proof.
    pub async fn notes(&self, clients: &Clients) -> Notes {
        let shown = clients.ledger().written().into_iter().filter_map(|(resource, writes)| {
            let Cache { watched, shows_gone, .. } = self.caches.get(&resource)?.clone();
            Some(async move {
                let shown = async {
                    if let Some(version) = writes.newest {
                        passed(&*watched, version).await;
                    }
                    // A deletion returns no version to wait for.
                    while !writes.deleted.iter().all(|key| shows_gone(key)) {
                        tokio::time::sleep(LOOK).await;
                    }
                };
                let complete = !writes.untracked && tokio::time::timeout(CATCH_UP, shown).await.is_ok();
                let version = watched.store_version().filter(|_| complete)?;
                Some((resource.to_string(), version))
            })
        });
        let versions = join_all(shown.collect::<Vec<_>>()).await.into_iter().flatten().collect();
        Notes { versions }
    }

    /// Runs whether or not anybody waits yet.
    fn begin(&self, proof: impl Future<Output = ()> + Send + 'static) -> Proved {
        let proof = proof.boxed().shared();
        self.spawner.spawn("proof", proof.clone());
        proof
    }
}

async fn prove(watched: Arc<dyn Watched>, api: Api, clock: Clock, old_term_ended: Option<BootInstant>) {
    while let Err(err) = informer::prove(&*watched, &api, &clock, old_term_ended).await {
        tracing::warn!(resource = %watched.resource(), %err, "cannot prove that the cache is new enough; its controllers wait");
        tokio::time::sleep(AGAIN).await;
    }
    tracing::debug!(resource = %watched.resource(), "the cache is proved");
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
