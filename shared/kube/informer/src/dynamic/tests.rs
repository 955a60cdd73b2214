use std::collections::BTreeMap;

use api::{MetaRef, Resource, Typed};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::fixture::{Thing, World, event, object, refusal, run_ready_tasks, set_end};

fn widgets() -> Resource {
    Resource::namespaced("example.io", "v2", "widgets", "Widget")
}

#[tokio::test(start_paused = true)]
async fn stopped_dynamic_informer_leaves_nothing_running() {
    let mut world = World::new();
    let dynamic = world.informers.dynamic(widgets(), Scope::Namespace("blue".into()));
    let (call, stream) = world.server.watch().await;
    assert_eq!(call.path, "/apis/example.io/v2/namespaces/blue/widgets");
    stream.added("a", 3);
    stream.send_event(&set_end(9));
    dynamic.watched().wait_for_sync().await;
    assert_eq!(dynamic.store().get("ns", "a").unwrap().unwrap().version, 3.into());
    assert!(world.informers.all().is_empty(), "readiness does not wait for a dynamic informer");
    assert!(world.metrics.encode().contains("widgets"));
    let watched = Arc::downgrade(&dynamic.watched());
    dynamic.stop().await;
    assert!(stream.is_closed() && world.scope.is_empty());
    assert!(watched.upgrade().is_none());
    assert!(!world.metrics.encode().contains("widgets"), "{}", world.metrics.encode());
}

#[tokio::test(start_paused = true)]
async fn dropped_dynamic_informer_stops_and_shut_down_stops_the_others() {
    let mut world = World::new();
    let dropped = world.informers.dynamic(widgets(), Scope::Cluster);
    let (call, stream) = world.server.watch().await;
    assert_eq!(call.path, "/apis/example.io/v2/widgets");
    let seconds: u64 = call.parameter("timeoutSeconds").parse().unwrap();
    assert!(seconds >= 300);
    drop(dropped);
    run_ready_tasks().await;
    assert!(stream.is_closed() && world.scope.is_empty());
    let _living = world.informers.dynamic(widgets(), Scope::Cluster);
    let (_, stream) = world.server.watch().await;
    world.informers.shut_down().await;
    assert!(stream.is_closed() && world.scope.is_empty());
}

#[tokio::test(start_paused = true)]
async fn informers_of_one_resource_share_their_series_until_the_last_stops() {
    let mut world = World::new();
    let mut dynamic = Vec::new();
    let mut streams = Vec::new();
    for namespace in ["blue", "green"] {
        dynamic.push(world.informers.dynamic(widgets(), Scope::Namespace(namespace.into())));
        let (_, stream) = world.server.watch().await;
        stream.send_event(&set_end(9));
        streams.push(stream);
    }
    run_ready_tasks().await;
    let labels = "{group=\"example.io\",resource=\"widgets\",version=\"v2\",view=\"metadata\"}";
    let series = |world: &World, family: &str| world.metric(&format!("mini_kcm_informer_{family}{labels}"));
    tokio::time::advance(20 * Duration::from_secs(1)).await;
    streams[1].send_text("no JSON at all\n");
    let (_, green) = world.server.watch().await;
    run_ready_tasks().await;
    assert!(series(&world, "silence_seconds").unwrap() >= 20.0, "the longest silence, not the latest");
    assert_eq!(series(&world, "failures_total"), Some(1.0));
    dynamic.remove(0).stop().await;
    assert_eq!(series(&world, "failures_total"), Some(1.0), "the counter of the other informer continues");
    assert!(series(&world, "silence_seconds").unwrap() < 20.0);
    drop((dynamic, green));
    run_ready_tasks().await;
    assert!(!world.metrics.encode().contains("widgets"), "{}", world.metrics.encode());
}

/// Stores versions by name.
#[derive(Default)]
struct Versions(Mutex<BTreeMap<String, String>>);

impl Versions {
    fn now(&self) -> String {
        let versions = self.0.lock();
        versions.iter().map(|(name, version)| format!("{name}@{version}")).collect::<Vec<_>>().join(" ")
    }
}

impl Sink for Versions {
    type List = BTreeMap<String, String>;

    fn collect(&self, list: &mut Self::List, object: Meta) {
        list.insert(object.name.to_string(), object.version.to_string());
    }

    fn discard(&self, list: &mut Self::List, object: Meta) {
        list.remove(&*object.name);
    }

    fn replace(&self, list: Self::List) {
        *self.0.lock() = list;
    }

    fn apply(&self, batch: Vec<(Event, Meta)>) {
        for (event, object) in batch {
            let mut versions = self.0.lock();
            match event {
                Event::Deleted => drop(versions.remove(&*object.name)),
                Event::Added | Event::Modified => {
                    versions.insert(object.name.to_string(), object.version.to_string());
                }
            }
        }
    }

    fn object_count(&self) -> usize {
        self.0.lock().len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_stores_what_it_needs_and_gets_whole_sets() {
    let mut world = World::new();
    let sink = Arc::new(Versions::default());
    let dynamic = world.informers.dynamic_into(widgets(), Scope::Cluster, sink.clone());
    let (_, stream) = world.server.watch().await;
    stream.added("a", 3);
    stream.added("b", 4);
    stream.send_event(&event("DELETED", &object("b", 5, "red")));
    run_ready_tasks().await;
    assert_eq!(sink.now(), "");
    stream.send_event(&set_end(9));
    dynamic.watched().wait_for_sync().await;
    assert_eq!(sink.now(), "a@3");
    stream.added("c", 10);
    run_ready_tasks().await;
    assert_eq!((sink.now().as_str(), dynamic.watched().len()), ("a@3 c@10", 2));
    assert!(dynamic.watched().has_passed(&10.into()));
    let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    stream.send_event(&event("ERROR", &gone));
    let (call, stream) = world.server.watch().await;
    assert!(call.is_set());
    stream.added("c", 11);
    stream.send_event(&set_end(12));
    run_ready_tasks().await;
    assert_eq!((sink.now().as_str(), dynamic.watched().len()), ("c@11", 1));
}

#[tokio::test(start_paused = true)]
async fn a_typed_informer_delivers_metadata_from_watch_and_relist() {
    let set = ["a", "b"].map(|name| object(name, 3, "red"));
    let (mut world, _informer, stream) = World::synced(&set, 9).await;
    let other = Resource { version: "v2".into(), ..Thing::resource() };
    assert!(world.informers.existing_metadata(&other, "meta", |_| ()).is_none(), "watched in another version");
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let calls = recorded.clone();
    let side = |it: Option<MetaRef<'_>>| it.map_or_else(String::new, |it| format!("{}@{}", it.name, it.version));
    let handler = move |it: crate::MetaChange<'_>| {
        calls.lock().push(format!("{:?} {} -> {}", it.cause, side(it.old), side(it.new)));
    };
    let registration = world.informers.existing_metadata(&Thing::resource(), "meta", handler).unwrap();
    registration.wait_for_sync().await;
    stream.send_event(&event("DELETED", &object("a", 10, "red")));
    run_ready_tasks().await;
    let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    stream.send_event(&event("ERROR", &gone));
    let (_, stream) = world.server.watch().await;
    stream.send_event(&set_end(12));
    run_ready_tasks().await;
    let want = ["Initial  -> a@3", "Initial  -> b@3", "Watch a@10 -> ", "Relist b@3 -> "];
    assert_eq!(*recorded.lock(), want);
    world.server.expect_no_request_for(Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_partial_metadata_is_read_from_whole_objects() {
    let mut world = World::new();
    let dynamic = world.informers.dynamic(widgets(), Scope::Cluster);
    // A server without partial metadata answers 406 unless the Accept header has plain JSON too.
    let takes_json = |accept: &str| accept.split(',').any(|it| it == "application/json");
    let watch = world.server.next().await;
    assert!(takes_json(&watch.accept), "{}", watch.accept);
    watch.respond(422, &refusal(422, "Invalid"));
    let list = world.server.next().await;
    assert!(takes_json(&list.accept), "{}", list.accept);
    list.list(9, &[object("a", 3, "red")]);
    dynamic.watched().wait_for_sync().await;
    let (watch, stream) = world.server.watch().await;
    assert!(takes_json(&watch.accept), "{}", watch.accept);
    stream.added("b", 10);
    run_ready_tasks().await;
    for name in ["a", "b"] {
        let meta = dynamic.store().get("ns", name).unwrap().unwrap();
        assert_eq!((meta.uid.to_string(), meta.owners.len()), (format!("uid-{name}"), 1));
    }
}
