//! A new leader does not act on a cache that lacks a write of its predecessor: the notes of a leaving leader, and the
//! waits of its successor, with an in-memory API server.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::time::Duration;

use api::{Namespace, Typed, Version};
use client::{Api, Clients, DeleteOptions, Limits, Propagation};
use clock::{Clock, Timestamp};
use controller::{Builder, Controller, Proof};
use futures::FutureExt;
use informer::Informer;
use leader_election::{Notes, Takeover};
use mini_kcm::view::View;
use serde_json::json;
use tasks::Scope;
use test_cluster::TestCluster;
use testing::Rig;

const CONTROLLER: &str = "namespace-controller";

/// A manager with one controller that depends on its cache of namespaces.
struct World {
    cluster: TestCluster,
    clients: Clients,
    controllers: Vec<Controller>,
    namespaces: Informer<Namespace>,
    api: Api,
    clock: Clock,
    scope: Scope,
}

impl World {
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

    fn view(&self) -> View {
        View::new(&self.clients, &self.controllers, self.clock.clone(), self.scope.spawner())
    }

    async fn proved(&self, view: &View) {
        let proved = view.proved(self.controllers[0].caches());
        tokio::time::timeout(Duration::from_secs(60), proved).await.unwrap();
    }

    async fn create(&self, name: &str) -> Version {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.api.create(&Namespace::resource(), "", &object).await.unwrap().version
    }

    async fn delete(&self, name: &str) {
        self.api.delete(&Namespace::resource(), "", name, &DeleteOptions::default()).await.unwrap();
    }

    fn shows(&self, name: &str) -> bool {
        self.namespaces.store().get("", name).unwrap().is_some()
    }

    fn proofs(&self) -> usize {
        let lists = |it: &&test_cluster::Recorded| it.verb == "list" && it.resource == "namespaces";
        self.cluster.requests().iter().filter(lists).count()
    }

    async fn noted(&self) -> Option<Version> {
        self.view().notes(&self.clients).await.versions.remove("namespaces")
    }
}

fn notes(version: Version) -> Takeover {
    Takeover::ReleasedByOurs(Notes { versions: [("namespaces".to_owned(), version)].into() })
}

#[tokio::test(start_paused = true)]
async fn a_leaver_notes_how_far_its_caches_show_its_writes() {
    let world = World::new(Proof::Needed).await;
    assert_eq!(world.noted().await, None, "nothing was written");
    let written = world.create("a").await;
    let noted = world.noted().await.unwrap();
    assert!(!noted.is_older_than(&written));
    world.delete("a").await;
    let noted = world.noted().await.unwrap();
    assert!(!noted.is_older_than(&written), "a deletion that shows is noted");
}

#[tokio::test(start_paused = true)]
async fn a_leader_notes_its_last_event_not_a_bookmark_that_its_successor_may_get_later() {
    let world = World::new(Proof::Needed).await;
    let written = world.create("a").await;
    world.noted().await.unwrap();
    for number in 0..5 {
        let name = format!("c{number}");
        world.cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}));
    }
    world.cluster.send_bookmarks();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(written.is_older_than(&world.namespaces.watched().store_version().unwrap()));
    assert_eq!(world.noted().await, Some(written));
}

#[tokio::test(start_paused = true)]
async fn a_leaver_notes_nothing_that_its_caches_do_not_show_in_time() {
    let world = World::new(Proof::Needed).await;
    world.create("a").await;
    world.noted().await.unwrap();
    world.cluster.freeze_watches("namespaces");
    let begin = world.clock.now();
    world.create("b").await;
    assert_eq!(world.noted().await, None);
    assert_eq!(world.clock.now() - begin, Duration::from_secs(1), "the successor waits, so patience is short");

    let world = World::new(Proof::Needed).await;
    world.create("a").await;
    world.noted().await.unwrap();
    world.cluster.freeze_watches("namespaces");
    world.delete("a").await;
    assert_eq!(world.noted().await, None, "a deletion that does not show");
}

#[tokio::test(start_paused = true)]
async fn a_leaver_notes_nothing_of_a_type_of_which_it_deleted_a_whole_collection() {
    let world = World::new(Proof::Needed).await;
    world.create("a").await;
    let _ = world.api.delete_collection(&Namespace::resource(), "", Propagation::Background).await;
    assert_eq!(world.noted().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_successor_of_ours_waits_for_exactly_what_was_noted_and_lists_nothing() {
    let world = World::new(Proof::Needed).await;
    let version = world.create("a").await;
    let mut view = world.view();
    view.take_over(notes(version));
    world.proved(&view).await;
    assert!(world.shows("a"));
    assert_eq!(world.proofs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_note_that_the_cache_does_not_reach_costs_a_proof() {
    let world = World::new(Proof::Needed).await;
    world.cluster.freeze_watches("namespaces");
    let version = world.create("a").await;
    let mut view = world.view();
    view.take_over(notes(version));
    let proved = view.proved(world.controllers[0].caches());
    assert!(proved.now_or_never().is_none(), "workers wait");
    world.proved(&view).await;
    assert!(world.shows("a"), "the frozen watch was replaced");
}

#[tokio::test(start_paused = true)]
async fn after_any_other_holder_the_cache_is_proved_against_the_server() {
    for takeover in [Takeover::First, Takeover::Other, Takeover::ReleasedByOurs(Notes::default())] {
        let world = World::new(Proof::Needed).await;
        world.cluster.freeze_watches("namespaces");
        world.create("a").await;
        let mut view = world.view();
        view.take_over(takeover.clone());
        world.proved(&view).await;
        assert!(world.shows("a"), "{takeover:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_ours_that_was_proved_ahead_costs_nothing_at_the_take_over() {
    let world = World::new(Proof::Needed).await;
    world.create("a").await;
    let mut view = world.view();
    let last_change = world.clock.boot() - Duration::from_secs(10);
    view.prove_ahead(world.clock.boot() + Duration::from_secs(4));
    for second in 0..50 {
        // The server's version is always newer than the cache's, so that only a bookmark proves the cache.
        let name = format!("c{second}");
        world.cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asked = world.proofs();
    assert!(asked > 0, "the server was asked how far it is");
    view.take_over(Takeover::CrashOfOurs { last_change, last_write: last_change });
    let proved = view.proved(world.controllers[0].caches());
    assert!(proved.now_or_never().is_some(), "at once");
    assert_eq!(world.proofs(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_stored_between_the_end_of_the_fence_and_the_last_write_is_shown_before_workers_start() {
    let world = World::new(Proof::Needed).await;
    let mut view = world.view();
    let last_change = world.clock.boot() - Duration::from_secs(10);
    view.prove_ahead(world.clock.boot() + Duration::from_secs(4));
    tokio::time::sleep(Duration::from_secs(3)).await;
    // A webhook delayed the create of the last leader, and the watch that was reopened for the first proof is silent.
    world.cluster.freeze_watches("namespaces");
    world.create("late").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    view.take_over(Takeover::CrashOfOurs { last_change, last_write: last_change });
    world.proved(&view).await;
    assert!(world.shows("late"));
}

#[tokio::test(start_paused = true)]
async fn a_first_proof_that_gets_no_answer_does_not_delay_the_second() {
    let world = World::new(Proof::Needed).await;
    world.create("a").await;
    let mut hung = 0;
    world.cluster.intercept(move |call| {
        let first = call.verb == "list" && call.resource == "namespaces" && hung == 0;
        hung += i32::from(first);
        if first { test_cluster::Verdict::Hang } else { test_cluster::Verdict::Pass }
    });
    let mut view = world.view();
    let last_change = world.clock.boot() - Duration::from_secs(10);
    view.prove_ahead(world.clock.boot() + Duration::from_secs(4));
    tokio::time::sleep(Duration::from_secs(5)).await;
    view.take_over(Takeover::CrashOfOurs { last_change, last_write: last_change });
    let begin = world.clock.now();
    world.proved(&view).await;
    let waited = world.clock.now() - begin;
    assert!(waited <= Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_proved_ahead_of_another_end_or_before_a_later_renewal_does_not_count() {
    for crash in [false, true] {
        let world = World::new(Proof::Needed).await;
        let mut view = world.view();
        view.prove_ahead(world.clock.boot() + Duration::from_secs(4));
        tokio::time::sleep(Duration::from_secs(5)).await;
        // The leader renewed its Lease and continued to write.
        let last_change = world.clock.boot();
        world.cluster.freeze_watches("namespaces");
        world.create("late").await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let last_write = last_change;
        view.take_over(if crash { Takeover::CrashOfOurs { last_change, last_write } } else { Takeover::Other });
        world.proved(&view).await;
        assert!(world.shows("late"), "crash {crash}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_proof_that_the_server_does_not_answer_is_tried_again_and_workers_wait() {
    let world = World::new(Proof::Needed).await;
    let down_until = world.clock.now() + Duration::from_secs(20);
    world.cluster.intercept(move |call| {
        let down = call.verb == "list" && call.at < down_until;
        if down { test_cluster::Verdict::status(500, "InternalError", "down") } else { test_cluster::Verdict::Pass }
    });
    let begin = world.clock.now();
    let mut view = world.view();
    view.take_over(Takeover::Other);
    world.proved(&view).await;
    assert!(world.clock.now() - begin >= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn caches_behind_live_reads_are_not_proved() {
    let world = World::new(Proof::LiveReads).await;
    let mut view = world.view();
    view.take_over(Takeover::Other);
    assert!(view.proved(world.controllers[0].caches()).now_or_never().is_some());
    assert_eq!(world.proofs(), 0);
}

/// With a lease duration that is hardly longer than its renew deadline, the server may store a write of the last leader
/// after the take-over.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_stored_after_the_take_over_is_shown_before_workers_start() {
    let world = World::new(Proof::Needed).await;
    let mut view = world.view();
    let now = world.clock.boot();
    let second = Duration::from_secs(1);
    view.take_over(Takeover::CrashOfOurs { last_change: now - 11 * second, last_write: now + second / 2 });
    tokio::time::sleep(second / 4).await;
    world.cluster.freeze_watches("namespaces");
    world.create("late").await;
    world.proved(&view).await;
    assert!(world.shows("late"));
}
