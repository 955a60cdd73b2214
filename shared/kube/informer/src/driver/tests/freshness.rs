//! The freshness that an informer reports.

use api::Resource;
use client::Limits;

use super::*;
use crate::{Scope, fixture::refusal};

#[tokio::test(start_paused = true)]
async fn waiting_for_the_rate_limiter_is_not_silence() {
    let mut world = World::limited(Limits { qps: 1.0, burst: 1 });
    let informer = world.informers.typed::<Thing>();
    let (_, stream) = world.server.watch().await;
    stream.send_event(&set_end(9));
    informer.watched().wait_for_sync().await;
    let silent_since = world.clock.now();
    tokio::time::advance(70 * SECOND).await;
    let start = |number| {
        let plural = format!("widgets{number}");
        world.informers.dynamic(Resource::namespaced("example.io", "v1", &plural, "Widget"), Scope::Cluster)
    };
    let _dynamic: Vec<_> = (0..50).map(start).collect();
    // At 75 s the typed watch must be reopened, and its request waits behind all of these.
    let healthy = |world: &World| {
        for family in ["frozen_watches", "failures"] {
            let labels = "{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}";
            assert_eq!(world.metric(&format!("mini_kcm_informer_{family}_total{labels}")), Some(0.0), "{family}");
        }
    };
    let mut streams = Vec::new();
    for _ in 0..50 {
        let (call, stream) = world.server.watch().await;
        assert_eq!((call.path.contains("widgets"), informer.watched().unanswered_for()), (true, None));
        healthy(&world);
        stream.send_event(&set_end(9));
        streams.push(stream);
    }
    let (call, _reopened) = world.server.watch().await;
    assert!(call.path.ends_with("things") && !call.is_set(), "{call:?}");
    assert!(world.clock.now() - silent_since > 110 * SECOND);
    run_ready_tasks().await;
    healthy(&world);
    assert!(informer.watched().unanswered_for().is_none() && informer.watched().silent_for().unwrap() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_last_event_is_the_newest_that_was_shown_and_no_bookmark() {
    let mut world = World::new();
    let informer = world.informers.typed::<Thing>();
    let watched = informer.watched();
    let last = || watched.last_event_version();
    let (_, stream) = world.server.watch().await;
    stream.added("a", 5);
    stream.added("b", 4);
    run_ready_tasks().await;
    assert_eq!(last(), None, "an incomplete set does not count");
    stream.send_event(&set_end(9));
    watched.wait_for_sync().await;
    assert_eq!(last(), Some(5.into()), "the newest object, at any position");
    stream.send_event(&bookmark(70));
    run_ready_tasks().await;
    assert_eq!((last(), watched.store_version()), (Some(5.into()), Some(70.into())));
    stream.added("c", 71);
    stream.send_event(&deleted("c", 72));
    stream.send_event(&bookmark(73));
    run_ready_tasks().await;
    assert_eq!(last(), Some(72.into()), "a deletion is an event");

    // After a relist it is the newest object. After a relist that shows a deletion it is the list's version, because
    // the version of the deletion is not known.
    stream.send_event(&event("ERROR", &refusal(410, "Expired")));
    let (_, stream) = world.server.watch().await;
    stream.added("a", 80);
    stream.added("b", 4);
    stream.send_event(&set_end(99));
    run_ready_tasks().await;
    assert_eq!(last(), Some(80.into()));
    stream.send_event(&event("ERROR", &refusal(410, "Expired")));
    let (_, stream) = world.server.watch().await;
    stream.added("b", 4);
    stream.send_event(&set_end(199));
    run_ready_tasks().await;
    assert_eq!(last(), Some(199.into()));
}

#[tokio::test(start_paused = true)]
async fn the_last_event_of_a_paged_list_is_its_newest_object_and_an_empty_set_has_none() {
    for (items, want) in [(vec![object("a", 5, "red"), object("b", 4, 7)], Some(5.into())), (vec![], None)] {
        let mut world = World::new();
        let informer = world.informers.typed::<Thing>();
        world.server.next().await.respond(422, &refusal(422, "Invalid"));
        world.server.next().await.list(9, &items);
        informer.watched().wait_for_sync().await;
        assert_eq!(informer.watched().last_event_version(), want);
    }
}
