mod freshness;

use std::{sync::Arc, time::Duration};

use api::Typed;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    StoreError,
    fixture::{Log, Thing, World, bookmark, event, object, refusal, run_ready_tasks, set_end, successor},
};

const SECOND: Duration = Duration::from_secs(1);

fn deleted(name: &str, version: u64) -> Value {
    event("DELETED", &object(name, version, "red"))
}

fn modified(name: &str, version: u64) -> Value {
    event("MODIFIED", &object(name, version, "red"))
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_001_002_one_stream_brings_the_first_set_and_the_events_after_it() {
    let mut world = World::new();
    let informer = world.informers.typed::<Thing>();
    let (log, watched) = (Log::default(), informer.watched());
    let seen = watched.clone();
    let registration = informer.add_handler("log", None, log.handler());
    informer.add_handler("early", None, move |_| assert!(!seen.has_synced(), "synced before all calls were made"));
    let (call, stream) = world.server.watch().await;
    assert!(call.is_set() && call.path == "/apis/test.io/v1/things");
    assert_eq!((call.parameter("resourceVersionMatch"), call.parameter("resourceVersion")), ("NotOlderThan", ""));
    assert_eq!(call.parameter("allowWatchBookmarks"), "true");
    stream.added("a", 3);
    stream.added("b", 4);
    run_ready_tasks().await;
    assert!(log.take().is_empty() && !registration.has_synced());
    assert!(matches!(informer.store().get("ns", "a"), Err(StoreError::NotSynced { .. })));
    stream.send_event(&set_end(9));
    registration.wait_for_sync().await;
    watched.wait_for_sync().await;
    assert_eq!(log.take(), ["Initial  -> a@3", "Initial  -> b@4"]);
    assert_eq!(informer.store().version(), Some(9.into()));
    stream.send_event(&modified("a", 10));
    world.server.expect_no_request_for(30 * SECOND).await;
    assert_eq!(informer.store().get("ns", "a").unwrap().unwrap().meta.version, 10.into());
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_003_a_refused_stream_is_listed_in_pages() {
    let mut world = World::new();
    let informer = world.informers.typed::<Thing>();
    world.server.next().await.respond(422, &refusal(422, "Invalid"));
    let page = world.server.next().await;
    assert_eq!((page.parameter("limit"), page.parameter("resourceVersion"), page.parameter("watch")), ("500", "0", ""));
    let items = [object("a", 3, "red")];
    page.respond(200, &json!({ "metadata": { "resourceVersion": "9", "continue": "more" }, "items": items }));
    let page = world.server.next().await;
    assert_eq!(
        (page.parameter("limit"), page.parameter("resourceVersion"), page.parameter("continue")),
        ("500", "", "more")
    );
    assert!(!informer.watched().has_synced(), "one page is not the whole list");
    page.list(9, &[object("b", 4, "red")]);
    informer.watched().wait_for_sync().await;
    assert_eq!(informer.store().len(), 2);
    let (call, _stream) = world.server.watch().await;
    assert!(!call.is_set() && call.parameter("resourceVersion") == "9");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_005_010_a_watch_that_ends_is_resumed_from_the_last_bookmark() {
    let (mut world, informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
    stream.send_event(&bookmark(70));
    run_ready_tasks().await;
    assert!(informer.store().has_passed(&70.into()), "a bookmark is progress");
    tokio::time::advance(5 * SECOND).await;
    drop(stream);
    let before = world.clock.now();
    let (call, stream) = world.server.watch().await;
    assert_eq!(world.clock.now(), before);
    assert!(!call.is_set() && call.parameter("resourceVersion") == "70");
    let seconds: u64 = call.parameter("timeoutSeconds").parse().unwrap();
    assert!((60..75).contains(&seconds));
    stream.added("b", 71);
    run_ready_tasks().await;
    assert_eq!(informer.store().len(), 2);
    assert_eq!(
        world.metric(
            "mini_kcm_informer_relists_total{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}"
        ),
        Some(0.0)
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_006_011_012_017_a_relist_reports_the_missed_changes_and_no_others() {
    let first = ["gone", "same", "replaced", "changed"];
    let first: Vec<_> = first.iter().zip(1..).map(|(name, version)| object(name, version, "red")).collect();
    let (mut world, informer, stream) = World::synced(&first, 9).await;
    let log = Log::default();
    let registration = informer.add_handler("log", None, log.handler());
    registration.wait_for_sync().await;
    log.take();
    let same = informer.store().get("ns", "same").unwrap().unwrap();

    stream.send_event(&event("ERROR", &refusal(410, "Expired")));
    let (call, stream) = world.server.watch().await;
    assert!(call.is_set() && call.parameter("resourceVersion") == "9", "{call:?}");
    for object in
        [object("same", 2, "red"), successor("replaced", 20), object("changed", 21, "red"), object("new", 22, "red")]
    {
        stream.send_event(&event("ADDED", &object));
    }
    run_ready_tasks().await;
    assert_eq!(informer.store().len(), 4, "readers see the old set until the new one is complete");
    assert!(informer.store().get("ns", "new").unwrap().is_none());
    stream.send_event(&set_end(30));
    let recorded = log.next(4).await;
    assert_eq!(recorded[0], "Relist gone@1 ->  stale");
    assert_eq!(
        recorded[1..],
        ["Relist replaced@3 -> replaced@20", "Relist changed@4 -> changed@21", "Relist  -> new@22"]
    );
    assert!(Arc::ptr_eq(&same, &informer.store().get("ns", "same").unwrap().unwrap()));

    // The same once more without a change: no handler is called. This time the server refuses the version itself.
    stream.send_event(&event("ERROR", &refusal(410, "Expired")));
    let (call, stream) = world.server.watch().await;
    assert_eq!(call.parameter("resourceVersion"), "30");
    stream.send_event(&event("ERROR", &refusal(410, "Expired")));
    let (call, stream) = world.server.watch().await;
    assert!(call.is_set() && call.parameter("resourceVersion").is_empty());
    for object in
        [object("same", 2, "red"), successor("replaced", 20), object("changed", 21, "red"), object("new", 22, "red")]
    {
        stream.send_event(&event("ADDED", &object));
    }
    stream.send_event(&set_end(40));
    run_ready_tasks().await;
    assert!(informer.store().has_passed(&40.into()));
    assert!(log.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_012_a_successor_is_one_update_with_another_uid() {
    let (_world, informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
    let uids = Arc::new(Mutex::new(Vec::new()));
    let seen = uids.clone();
    let registration = informer.add_handler("uids", None, move |change| {
        let uid = |it: Option<&api::Entry<Thing>>| it.map(|it| it.meta().uid.to_string());
        seen.lock().push((uid(change.old), uid(change.new)));
    });
    registration.wait_for_sync().await;
    stream.send_event(&event("MODIFIED", &successor("a", 10)));
    run_ready_tasks().await;
    let a = || Some("uid-a".to_owned());
    assert_eq!(*uids.lock(), [(None, a()), (a(), Some("uid-a-2".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_013_018_presence_decides_and_handlers_get_the_stored_objects() {
    let (_world, informer, stream) = World::synced(&[], 9).await;
    let store = informer.store().clone();
    informer.add_handler("identity", None, move |change| {
        let Some(new) = change.new.and_then(|it| it.readable()) else { return };
        let stored = store.get("ns", &new.meta.name).unwrap().unwrap();
        assert!(Arc::ptr_eq(new, &stored));
    });
    let log = Log::default();
    informer.add_handler("log", None, log.handler()).wait_for_sync().await;
    stream.send_event(&modified("a", 10));
    run_ready_tasks().await;
    stream.send_event(&event("ADDED", &object("a", 11, "red")));
    run_ready_tasks().await;
    stream.send_event(&deleted("a", 12));
    run_ready_tasks().await;
    assert_eq!(log.take(), ["Watch  -> a@10", "Watch a@10 -> a@11", "Watch a@12 -> "], "deleted: the last state");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_022_shut_down_ends_streams_and_calls() {
    let (world, informer, stream) = World::synced(&[], 9).await;
    let log = Log::default();
    informer.add_handler("log", None, log.handler()).wait_for_sync().await;
    stream.added("a", 10);
    world.informers.shut_down().await;
    run_ready_tasks().await;
    assert!(log.take().is_empty(), "no handler is called after shut_down began");
    assert!(stream.is_closed() && world.scope.is_empty());
    let late = informer.add_handler("late", None, log.handler());
    run_ready_tasks().await;
    assert!(!late.has_synced() && log.take().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_machinery_022_shut_down_waits_for_the_running_call_and_no_further_one_begins() {
    let (world, informer, stream) = World::synced(&[], 9).await;
    let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (released, returned) = (Mutex::new(released), Arc::new(Mutex::new(Vec::new())));
    let keep = returned.clone();
    let registration = informer.add_handler("blocked", None, move |change| {
        let name = change.new.map_or("", |it| it.meta().name).to_owned();
        began.send(name.clone()).unwrap();
        released.lock().recv().unwrap();
        keep.lock().push(name);
    });
    registration.wait_for_sync().await;
    // Both frames are in one batch, so the second call would follow the first at once.
    let frame = |name| event("ADDED", &object(name, 10, "red"));
    stream.send_text(&format!("{}\n{}\n", frame("a"), frame("b")));
    assert_eq!(begun.recv().await.as_deref(), Some("a"));

    let mut shut_down = Box::pin(world.informers.shut_down());
    for _ in 0..100 {
        assert!(futures::poll!(&mut shut_down).is_pending(), "a call is running");
        tokio::task::yield_now().await;
    }
    assert!(returned.lock().is_empty());
    // Two permits, enough for both calls if there were a second one.
    release.send(()).unwrap();
    release.send(()).unwrap();
    shut_down.await;
    assert_eq!(*returned.lock(), ["a"]);
    assert!(begun.try_recv().is_err() && stream.is_closed());
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_023_a_forbidden_type_never_syncs_and_is_requested_with_backoff() {
    let mut world = World::new();
    let informer = world.informers.typed::<Thing>();
    let log = Log::default();
    let registration = informer.add_handler("log", None, log.handler());
    let began = world.clock.now();
    let mut requests = 0;
    while world.clock.now() - began < 600 * SECOND {
        for is_set in [true, false] {
            let call = world.server.next().await;
            assert_eq!(call.is_set(), is_set, "each attempt is a stream, then a list");
            call.respond(403, &refusal(403, "Forbidden"));
        }
        requests += 2;
    }
    assert!((10..60).contains(&requests), "{requests}");
    run_ready_tasks().await;
    assert!(!registration.has_synced() && !informer.watched().has_synced() && log.take().is_empty());
    let series =
        "mini_kcm_informer_failures_total{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}";
    assert!(world.metric(series).unwrap() >= 10.0);
    assert!(informer.watched().unanswered_for().is_none(), "a refusal is a response");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_025_ten_thousand_events_for_one_key_are_delivered_in_order() {
    let (_world, informer, stream) = World::synced(&[], 1).await;
    let log = Log::default();
    informer.add_handler("log", None, log.handler()).wait_for_sync().await;
    let mut want = vec!["Watch  -> a@2".to_owned()];
    let mut text = String::new();
    for version in 2..10_002_u64 {
        text.push_str(&format!("{}\n", modified("a", version)));
        if version > 2 {
            want.push(format!("Watch a@{} -> a@{version}", version - 1));
        }
    }
    // The chunks do not end at line ends.
    for chunk in text.as_bytes().chunks(70_001) {
        stream.send_text(std::str::from_utf8(chunk).unwrap());
    }
    assert_eq!(log.next(10_000).await, want);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_watch_on_a_working_connection_is_reopened_within_90_s_without_list() {
    let (mut world, informer, _stream) = World::synced(&[object("a", 3, "red")], 9).await;
    // The stream of the first set becomes silent, and the connection accepts no new stream.
    let silent_since = world.clock.now();
    let unanswered = world.server.next().await;
    assert!(!unanswered.is_set());
    assert_eq!(world.clock.now() - silent_since, 75 * SECOND);
    let (call, stream) = world.server.watch().await;
    assert!(world.clock.now() - silent_since < 90 * SECOND);
    assert!(!call.is_set() && call.parameter("resourceVersion") == "9");

    // The short watch freezes.
    let series =
        "mini_kcm_informer_frozen_watches_total{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}";
    assert_eq!(world.metric(series), Some(1.0));
    stream.send_event(&bookmark(20));
    let opened = world.clock.now();
    let (call, _healed) = world.server.watch().await;
    assert!(world.clock.now() - opened <= 85 * SECOND);
    assert!(!call.is_set() && call.parameter("resourceVersion") == "20");
    run_ready_tasks().await;
    assert!(stream.is_closed());
    assert_eq!(world.metric(series), Some(2.0));
    assert!(informer.watched().silent_for().unwrap() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_idle_type_that_is_answered_in_time_is_not_frozen() {
    let (mut world, informer, first) = World::synced(&[], 9).await;
    let (call, mut stream) = world.server.watch().await;
    run_ready_tasks().await;
    assert!(first.is_closed(), "one watch, not two");
    let mut time: u64 = call.parameter("timeoutSeconds").parse().unwrap();
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(time)).await;
        drop(stream);
        let (call, next) = world.server.watch().await;
        assert!(!call.is_set());
        time = call.parameter("timeoutSeconds").parse().unwrap();
        stream = next;
        run_ready_tasks().await;
        assert_eq!(informer.watched().unanswered_for(), None);
    }
    let labels = "{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}";
    assert_eq!(world.metric(&format!("mini_kcm_informer_frozen_watches_total{labels}")), Some(0.0));
    assert_eq!(world.metric(&format!("mini_kcm_informer_reopened_watches_total{labels}")), Some(21.0));
}

#[tokio::test(start_paused = true)]
async fn a_response_is_overdue_until_an_unreachable_server_is_back() {
    let (mut world, informer, stream) = World::synced(&[], 9).await;
    tokio::time::advance(5 * SECOND).await;
    drop(stream);
    let began = world.clock.now();
    while world.clock.now() - began < 100 * SECOND {
        world.server.next().await.fail();
    }
    let call = world.server.next().await;
    assert!(!call.is_set(), "the version is kept without a response");
    let watched = informer.watched();
    assert!(watched.unanswered_for().unwrap() >= 100 * SECOND && watched.silent_for().unwrap() >= 100 * SECOND);
    let (_, _stream) = call.open();
    run_ready_tasks().await;
    assert_eq!(watched.unanswered_for(), None);
}

#[tokio::test(start_paused = true)]
async fn a_first_set_that_does_not_come_by_stream_is_listed() {
    let mut world = World::new();
    let informer = world.informers.typed::<Thing>();
    let (_, stream) = world.server.watch().await;
    stream.added("a", 3);
    let opened = world.clock.now();
    let list = world.server.next().await;
    assert_eq!((world.clock.now() - opened, list.parameter("resourceVersion")), (30 * SECOND, "0"));
    assert!(stream.is_closed());
    list.list(9, &[object("b", 4, "red")]);
    informer.watched().wait_for_sync().await;
    assert!(informer.store().get("ns", "a").unwrap().is_none() && informer.store().get("ns", "b").unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn objects_deleted_or_changed_while_their_set_arrives_have_their_last_state() {
    let mut world = World::new();
    let informer = world.informers.typed::<Thing>();
    let (_, stream) = world.server.watch().await;
    stream.added("a", 3);
    stream.added("b", 4);
    stream.send_event(&deleted("a", 5));
    stream.send_event(&modified("b", 6));
    stream.send_event(&set_end(9));
    informer.watched().wait_for_sync().await;
    assert_eq!(informer.store().len(), 1);
    assert_eq!(informer.store().get("ns", "b").unwrap().unwrap().meta.version, 6.into());
}

#[tokio::test(start_paused = true)]
async fn garbage_closes_the_stream_and_reads_are_errors_until_a_list_succeeds() {
    let (mut world, informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
    stream.added("b", 10);
    stream.send_text("no JSON at all\n");
    stream.added("c", 11);
    run_ready_tasks().await;
    assert!(stream.is_closed());
    assert!(matches!(informer.store().get("ns", "a"), Err(StoreError::Broken { .. })));
    assert!(informer.store().has_passed(&10.into()) && !informer.store().has_passed(&11.into()));
    let (call, stream) = world.server.watch().await;
    assert!(call.is_set() && call.parameter("resourceVersion") == "10");
    stream.added("c", 11);
    stream.send_event(&set_end(12));
    run_ready_tasks().await;
    assert!(informer.store().get("ns", "a").unwrap().is_none() && informer.store().get("ns", "c").unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn line_beyond_the_limit_is_listed_with_growing_delays() {
    let chunk = Bytes::from(vec![b'x'; (16 << 20) / 8 + 1]);
    for pause in [Duration::ZERO, SECOND / 2] {
        let (mut world, informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
        let (mut streams, mut version, began) = (vec![stream], 9, world.clock.now());
        while world.clock.now() - began < 600 * SECOND {
            // Each stream brings the line, the stream of a set too.
            if let Some(stream) = streams.last() {
                for _ in 0..8 {
                    tokio::time::sleep(pause).await;
                    stream.send(chunk.clone());
                }
            }
            let call = world.server.next().await;
            if call.parameter("watch") == "true" {
                streams.push(call.open().1);
                assert!(streams.len() < 100, "{pause:?}: opened without a pause");
            } else {
                version += 10;
                call.list(version, &[object("a", version, "red")]);
            }
        }
        run_ready_tasks().await;
        assert!(informer.store().has_passed(&19.into()), "{pause:?}: {version}");
        assert!(informer.store().get("ns", "a").is_ok(), "{pause:?}");
        let series =
            "mini_kcm_informer_failures_total{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}";
        assert!(world.metric(series).unwrap() >= 10.0, "{pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_delivered_stored_and_counted() {
    let (world, informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
    let log = Log::default();
    informer.add_handler("log", None, log.handler()).wait_for_sync().await;
    log.take();
    stream.send_event(&event("MODIFIED", &object("a", 10, 7)));
    assert_eq!(log.next(1).await, ["Watch a@3 -> a@10?"]);
    assert!(
        matches!(informer.store().get("ns", "a"), Err(StoreError::Unreadable { why, .. }) if why.contains("color"))
    );
    let series =
        "mini_kcm_informer_unreadable_objects{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}";
    assert_eq!(world.metric(series), Some(1.0));
    stream.send_event(&deleted("a", 11));
    assert_eq!(log.next(1).await, ["Watch a@11 -> "]);
    assert_eq!(world.metric(series), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn upstream_metrics_follow_the_store() {
    let (world, _informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
    let labels = "{group=\"test.io\",name=\"kube-controller-manager\",resource=\"things\",version=\"v1\"}";
    assert_eq!(world.metric(&format!("informer_store_resource_version{labels}")), Some(9.0));
    stream.send_event(&bookmark(7_000_000_000_000_012));
    stream.added("b", 7_000_000_000_000_013);
    run_ready_tasks().await;
    assert_eq!(world.metric(&format!("informer_store_resource_version{labels}")), Some(13.0));
    assert_eq!(world.metric(&format!("informer_processing_latency_seconds_count{labels}")), Some(2.0));
    tokio::time::advance(20 * SECOND).await;
    let silence =
        "mini_kcm_informer_silence_seconds{group=\"test.io\",resource=\"things\",version=\"v1\",view=\"typed\"}";
    assert_eq!(world.metric(silence), Some(20.0));
}

#[tokio::test(start_paused = true)]
async fn a_type_has_one_informer() {
    let mut world = World::new();
    assert!(world.informers.existing::<Thing>().is_none());
    let informer = world.informers.typed::<Thing>();
    assert_eq!(world.informers.typed::<Thing>().resource(), &Thing::resource());
    assert!(world.informers.existing::<Thing>().is_some());
    let (_call, stream) = world.server.watch().await;
    stream.send_event(&set_end(9));
    informer.watched().wait_for_sync().await;
    world.server.expect_no_request_for(60 * SECOND).await;
    assert_eq!(world.informers.all().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_send_equal_requests() {
    let mut timeouts = Vec::new();
    for _ in 0..2 {
        let (mut world, _informer, stream) = World::synced(&[], 9).await;
        tokio::time::advance(5 * SECOND).await;
        drop(stream);
        timeouts.push(world.server.watch().await.0.parameter("timeoutSeconds").to_owned());
    }
    assert_eq!(timeouts[0], timeouts[1]);
}
