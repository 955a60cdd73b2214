//! A new leader does not act on a cache that lacks a write of its predecessor: the notes of a leaving leader, and the
//! waits of its successor, with an in-memory API server.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use api::{Namespace, Typed, Version};
use client::{Api, Clients, DeleteOptions, Limits, Propagation};
use clock::{Clock, Timestamp};
use controller::{Builder, Controller, Proof};
use futures::FutureExt;
use harness::Rig;
use informer::Informer;
use leader_election::{Notes, Takeover};
use mini_kcm::cache_freshness::CacheFreshness;
use serde_json::json;
use tasks::Scope;
use test_cluster::TestCluster;

const CONTROLLER: &str = "namespace-controller";

/// A manager with one controller that depends on its cache of namespaces.
struct Fixture {
    cluster: TestCluster,
    clients: Clients,
    controllers: Vec<Controller>,
    namespaces: Informer<Namespace>,
    api: Api,
    clock: Clock,
    scope: Scope,
}

impl Fixture {
    async fn new(proof: Proof) -> Self {
        let clock = Clock::virtual_from(Timestamp::UNIX_EPOCH);
        let cluster = TestCluster::new(clock.clone());
        let Rig { deps, scope, .. } = Rig::new(cluster.service(), clock.clone(), Limits::NONE);
        let clients = deps.clients.clone();
        let mut builder = Builder::new(CONTROLLER, deps);
        let namespaces = builder.informer::<Namespace>(proof);
        namespaces.watched().wait_for_sync().await;
        // A list that was requested before the end of the old term proves nothing.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let api = clients.controller(CONTROLLER, Limits::NONE);
        Self { cluster, clients, controllers: vec![builder.build()], namespaces, api, clock, scope }
    }

    fn freshness(&self) -> CacheFreshness {
        CacheFreshness::new(&self.clients, &self.controllers, self.clock.clone(), self.scope.spawner())
    }

    async fn wait_until_proved(&self, freshness: &CacheFreshness) {
        let proved = freshness.wait_until_proved(self.controllers[0].caches());
        tokio::time::timeout(Duration::from_secs(60), proved).await.unwrap();
    }

    async fn create(&self, name: &str) -> Version {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.api.create(&Namespace::resource(), "", &object).await.unwrap().version
    }

    async fn delete(&self, name: &str) {
        self.api.delete(&Namespace::resource(), "", name, &DeleteOptions::default()).await.unwrap();
    }

    fn cache_has(&self, name: &str) -> bool {
        self.namespaces.store().get("", name).unwrap().is_some()
    }

    fn proof_count(&self) -> usize {
        let lists = |it: &&test_cluster::Recorded| it.verb == "list" && it.resource == "namespaces";
        self.cluster.requests().iter().filter(lists).count()
    }

    async fn noted_version(&self) -> Option<Version> {
        self.freshness().collect_notes(&self.clients).await.versions.remove("namespaces")
    }
}

fn notes(version: Version) -> Takeover {
    Takeover::ReleasedByOurs(Notes { versions: [("namespaces".to_owned(), version)].into() })
}

#[tokio::test(start_paused = true)]
async fn leaving_leader_notes_the_version_that_shows_its_writes() {
    let fixture = Fixture::new(Proof::Needed).await;
    assert_eq!(fixture.noted_version().await, None, "nothing was written");
    let written = fixture.create("a").await;
    let noted = fixture.noted_version().await.unwrap();
    assert!(!noted.is_older_than(&written));
    fixture.delete("a").await;
    let noted = fixture.noted_version().await.unwrap();
    assert!(!noted.is_older_than(&written), "a deletion in the cache is noted");
}

/// A rollout deletes pods and creates others of the same name.
#[tokio::test(start_paused = true)]
async fn leaving_leader_notes_the_version_although_the_name_is_in_use_again() {
    let fixture = Fixture::new(Proof::Needed).await;
    fixture.create("a").await;
    fixture.noted_version().await.unwrap();
    let uid = Some(fixture.namespaces.store().get("", "a").unwrap().unwrap().meta.uid.clone());
    let options = DeleteOptions { uid, ..DeleteOptions::default() };
    fixture.api.delete(&Namespace::resource(), "", "a", &options).await.unwrap();
    fixture.cluster.remove("namespaces", "", "a");
    let written = fixture.create("a").await;
    assert_eq!(fixture.noted_version().await, Some(written));
}

#[tokio::test(start_paused = true)]
async fn leader_notes_its_last_event_and_not_a_bookmark() {
    let fixture = Fixture::new(Proof::Needed).await;
    let written = fixture.create("a").await;
    fixture.noted_version().await.unwrap();
    for number in 0..5 {
        let name = format!("c{number}");
        fixture.cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}));
    }
    fixture.cluster.send_bookmarks();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(written.is_older_than(&fixture.namespaces.watched().store_version().unwrap()));
    assert_eq!(fixture.noted_version().await, Some(written));
}

#[tokio::test(start_paused = true)]
async fn leaving_leader_notes_no_version_when_its_cache_is_stale() {
    let fixture = Fixture::new(Proof::Needed).await;
    fixture.create("a").await;
    fixture.noted_version().await.unwrap();
    fixture.cluster.freeze_watches("namespaces");
    let begin = fixture.clock.now();
    fixture.create("b").await;
    assert_eq!(fixture.noted_version().await, None);
    assert_eq!(fixture.clock.now() - begin, Duration::from_secs(1), "the successor waits, so the timeout is short");

    let fixture = Fixture::new(Proof::Needed).await;
    fixture.create("a").await;
    fixture.noted_version().await.unwrap();
    fixture.cluster.freeze_watches("namespaces");
    fixture.delete("a").await;
    assert_eq!(fixture.noted_version().await, None, "a deletion that is not in the cache");
}

#[tokio::test(start_paused = true)]
async fn leaving_leader_notes_no_version_of_a_type_after_deletecollection() {
    let fixture = Fixture::new(Proof::Needed).await;
    fixture.create("a").await;
    let _ = fixture.api.delete_collection(&Namespace::resource(), "", Propagation::Background).await;
    assert_eq!(fixture.noted_version().await, None);
}

#[tokio::test(start_paused = true)]
async fn successor_waits_for_the_noted_version_without_a_list() {
    let fixture = Fixture::new(Proof::Needed).await;
    let version = fixture.create("a").await;
    let mut freshness = fixture.freshness();
    freshness.take_over(notes(version));
    fixture.wait_until_proved(&freshness).await;
    assert!(fixture.cache_has("a"));
    assert_eq!(fixture.proof_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn cache_that_does_not_reach_the_noted_version_is_proved() {
    let fixture = Fixture::new(Proof::Needed).await;
    fixture.cluster.freeze_watches("namespaces");
    let version = fixture.create("a").await;
    let mut freshness = fixture.freshness();
    freshness.take_over(notes(version));
    let proved = freshness.wait_until_proved(fixture.controllers[0].caches());
    assert!(proved.now_or_never().is_none(), "workers wait");
    fixture.wait_until_proved(&freshness).await;
    assert!(fixture.cache_has("a"), "the frozen watch was replaced");
}

#[tokio::test(start_paused = true)]
async fn cache_is_proved_after_any_other_holder() {
    for takeover in [Takeover::First, Takeover::Other, Takeover::ReleasedByOurs(Notes::default())] {
        let fixture = Fixture::new(Proof::Needed).await;
        fixture.cluster.freeze_watches("namespaces");
        fixture.create("a").await;
        let mut freshness = fixture.freshness();
        freshness.take_over(takeover.clone());
        fixture.wait_until_proved(&freshness).await;
        assert!(fixture.cache_has("a"), "{takeover:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cache_proved_ahead_of_a_crash_needs_no_proof_at_the_take_over() {
    let fixture = Fixture::new(Proof::Needed).await;
    fixture.create("a").await;
    let mut freshness = fixture.freshness();
    let last_change = fixture.clock.boot() - Duration::from_secs(10);
    freshness.prove_ahead(fixture.clock.boot() + Duration::from_secs(4));
    for second in 0..50 {
        // The server's version is always newer than the cache's, so that only a bookmark proves the cache.
        let name = format!("c{second}");
        fixture.cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let proofs_before = fixture.proof_count();
    assert!(proofs_before > 0, "the proof sent a list");
    freshness.take_over(Takeover::CrashOfOurs { last_change, last_write: last_change });
    let proved = freshness.wait_until_proved(fixture.controllers[0].caches());
    assert!(proved.now_or_never().is_some(), "at once");
    assert_eq!(fixture.proof_count(), proofs_before);
}

#[tokio::test(start_paused = true)]
async fn create_stored_between_the_end_of_the_fence_and_the_last_write_is_in_the_cache_before_workers_start() {
    let fixture = Fixture::new(Proof::Needed).await;
    let mut freshness = fixture.freshness();
    let last_change = fixture.clock.boot() - Duration::from_secs(10);
    freshness.prove_ahead(fixture.clock.boot() + Duration::from_secs(4));
    tokio::time::sleep(Duration::from_secs(3)).await;
    // A webhook delayed the create of the last leader, and the watch that was reopened for the first proof is silent.
    fixture.cluster.freeze_watches("namespaces");
    fixture.create("late").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    freshness.take_over(Takeover::CrashOfOurs { last_change, last_write: last_change });
    fixture.wait_until_proved(&freshness).await;
    assert!(fixture.cache_has("late"));
}

#[tokio::test(start_paused = true)]
async fn first_proof_without_response_does_not_delay_the_second() {
    let fixture = Fixture::new(Proof::Needed).await;
    fixture.create("a").await;
    let mut hung = 0;
    fixture.cluster.intercept(move |call| {
        let first = call.verb == "list" && call.resource == "namespaces" && hung == 0;
        hung += i32::from(first);
        if first { test_cluster::Interception::Hang } else { test_cluster::Interception::Pass }
    });
    let mut freshness = fixture.freshness();
    let last_change = fixture.clock.boot() - Duration::from_secs(10);
    freshness.prove_ahead(fixture.clock.boot() + Duration::from_secs(4));
    tokio::time::sleep(Duration::from_secs(5)).await;
    freshness.take_over(Takeover::CrashOfOurs { last_change, last_write: last_change });
    let begin = fixture.clock.now();
    fixture.wait_until_proved(&freshness).await;
    let waited = fixture.clock.now() - begin;
    assert!(waited <= Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn proof_ahead_does_not_count_after_a_later_renewal_or_another_takeover() {
    for crash in [false, true] {
        let fixture = Fixture::new(Proof::Needed).await;
        let mut freshness = fixture.freshness();
        freshness.prove_ahead(fixture.clock.boot() + Duration::from_secs(4));
        tokio::time::sleep(Duration::from_secs(5)).await;
        // The leader renewed its Lease and continued to write.
        let last_change = fixture.clock.boot();
        fixture.cluster.freeze_watches("namespaces");
        fixture.create("late").await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let last_write = last_change;
        freshness.take_over(if crash { Takeover::CrashOfOurs { last_change, last_write } } else { Takeover::Other });
        fixture.wait_until_proved(&freshness).await;
        assert!(fixture.cache_has("late"), "crash {crash}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_proof_is_retried_and_workers_wait() {
    let fixture = Fixture::new(Proof::Needed).await;
    let down_until = fixture.clock.now() + Duration::from_secs(20);
    fixture.cluster.intercept(move |call| {
        let down = call.verb == "list" && call.at < down_until;
        if down {
            test_cluster::Interception::status(500, "InternalError", "down")
        } else {
            test_cluster::Interception::Pass
        }
    });
    let begin = fixture.clock.now();
    let mut freshness = fixture.freshness();
    freshness.take_over(Takeover::Other);
    fixture.wait_until_proved(&freshness).await;
    assert!(fixture.clock.now() - begin >= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn cache_with_live_reads_is_not_proved() {
    let fixture = Fixture::new(Proof::LiveReads).await;
    let mut freshness = fixture.freshness();
    freshness.take_over(Takeover::Other);
    assert!(freshness.wait_until_proved(fixture.controllers[0].caches()).now_or_never().is_some());
    assert_eq!(fixture.proof_count(), 0);
}

/// With a lease duration that is hardly longer than its renew deadline, the server may store a write of the last leader
/// after the take-over.
#[tokio::test(start_paused = true)]
async fn write_stored_after_the_take_over_is_in_the_cache_before_workers_start() {
    let fixture = Fixture::new(Proof::Needed).await;
    let mut freshness = fixture.freshness();
    let now = fixture.clock.boot();
    let second = Duration::from_secs(1);
    freshness.take_over(Takeover::CrashOfOurs { last_change: now - 11 * second, last_write: now + second / 2 });
    tokio::time::sleep(second / 4).await;
    fixture.cluster.freeze_watches("namespaces");
    fixture.create("late").await;
    fixture.wait_until_proved(&freshness).await;
    assert!(fixture.cache_has("late"));
}
