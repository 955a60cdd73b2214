use std::sync::Arc;

use client::Limits;
use serde_json::json;

use super::*;
use crate::fixture::{Call, World, bookmark, run_ready_tasks, set_end};

struct Proving(tokio::task::JoinHandle<Result<Proved, ApiError>>);

impl Proving {
    fn of(world: &World, watched: Arc<dyn Watched>, ended: Option<BootInstant>) -> Self {
        let (api, clock) = (world.clients.unfenced("proof", Limits::NONE), world.clock.clone());
        Self(tokio::spawn(async move { prove(&*watched, &api, &clock, ended).await }))
    }

    async fn done(self) -> Result<Proved, ApiError> {
        self.0.await.unwrap()
    }
}

/// Answers the request for the server's present version.
fn respond_with_version(call: Call, version: u64) {
    assert_eq!((call.parameter("limit"), call.parameter("resourceVersion"), call.parameter("watch")), ("1", "", ""));
    call.respond(200, &json!({ "metadata": { "resourceVersion": version.to_string() }, "items": [] }));
}

#[tokio::test(start_paused = true)]
async fn an_informer_at_the_servers_version_is_proved_at_once() {
    let (mut world, informer, _stream) = World::synced(&[], 9).await;
    let proving = Proving::of(&world, informer.watched(), None);
    respond_with_version(world.server.next().await, 9);
    assert_eq!(proving.done().await.unwrap(), Proved::AtOnce);
}

#[tokio::test(start_paused = true)]
async fn first_list_requested_after_the_old_term_needs_no_further_request() {
    let mut world = World::new();
    let ended = world.clock.boot();
    tokio::time::advance(Duration::from_secs(1)).await;
    let informer = world.informers.typed::<crate::fixture::Thing>();
    let proving = Proving::of(&world, informer.watched(), Some(ended));
    let (_, stream) = world.server.watch().await;
    stream.send_event(&set_end(9));
    assert_eq!(proving.done().await.unwrap(), Proved::ByEarlierList);
    let watched = informer.watched();
    assert!(!watched.has_consistent_list_since(world.clock.boot() + Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn older_version_is_proved_by_reopening_the_own_watch() {
    let (mut world, informer, stream) = World::synced(&[], 9).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let proving = Proving::of(&world, informer.watched(), Some(world.clock.boot()));
    respond_with_version(world.server.next().await, 50);
    let (call, proof) = world.server.watch().await;
    assert!(stream.is_closed(), "there is never a second watch at the same time");
    assert_eq!((call.is_set(), call.parameter("resourceVersion"), call.parameter("timeoutSeconds")), (false, "9", "3"));
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    proof.send_event(&bookmark(49));
    run_ready_tasks().await;
    assert!(!proving.0.is_finished());
    proof.send_event(&bookmark(50));
    assert_eq!(proving.done().await.unwrap(), Proved::ByWatch);
    tokio::time::sleep(Duration::from_millis(1_800)).await;
    drop(proof);
    let (call, _stream) = world.server.watch().await;
    assert!(
        !call.is_set() && call.parameter("timeoutSeconds") != "3",
        "then the watch continues with its usual timeout"
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_term_that_has_not_ended_is_waited_for_and_its_watch_is_reopened_just_before() {
    let (mut world, informer, stream) = World::synced(&[], 9).await;
    let begun = world.clock.boot();
    let after = |millis| begun + Duration::from_millis(millis);
    let proving = Proving::of(&world, informer.watched(), Some(after(4_000)));
    let (call, proof) = world.server.watch().await;
    assert_eq!((world.clock.boot(), call.parameter("timeoutSeconds")), (after(3_500), "3"));
    assert!(stream.is_closed());
    let call = world.server.next().await;
    assert_eq!(world.clock.boot(), after(4_000), "writes of the old term are covered");
    respond_with_version(call, 50);
    tokio::time::sleep(Duration::from_millis(700)).await;
    proof.send_event(&bookmark(50));
    assert_eq!(proving.done().await.unwrap(), Proved::ByWatch);
    assert_eq!(world.clock.boot(), after(4_700), "the watch is not reopened a second time");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_prove_it_twice_is_listed() {
    let (mut world, informer, _stream) = World::synced(&[], 9).await;
    let proving = Proving::of(&world, informer.watched(), None);
    respond_with_version(world.server.next().await, 50);
    let mut short_timeouts = Vec::new();
    let stream = loop {
        let (call, stream) = world.server.watch().await;
        if call.is_set() {
            assert_eq!(call.parameter("resourceVersion"), "");
            break stream;
        }
        short_timeouts.push(call.parameter("timeoutSeconds") == "3");
        tokio::time::sleep(Duration::from_secs(3)).await;
    };
    assert_eq!(short_timeouts.iter().filter(|it| **it).count(), 2, "{short_timeouts:?}");
    assert!(!proving.0.is_finished());
    stream.send_event(&set_end(60));
    assert_eq!(proving.done().await.unwrap(), Proved::ByNewList);
}

#[tokio::test(start_paused = true)]
async fn without_the_servers_version_nothing_is_proved() {
    let (mut world, informer, _stream) = World::synced(&[], 9).await;
    let proving = Proving::of(&world, informer.watched(), None);
    world.server.next().await.fail();
    assert!(proving.done().await.is_err());
}
