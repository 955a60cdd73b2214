//! The task that looks, on an API server in memory. Nothing here leads: whatever is seen is what a standby does.

use std::collections::BTreeSet;

use api::{Namespace, Pod, Uid};
use client::Limits;
use clock::Timestamp;
use controller::{Controller, Factor};
use serde_json::{Value, json};
use test_cluster::{Call, DiscoveryFault, TestCluster, Verdict};
use testing::Rig;

use super::*;
use crate::graph::{Graph, Item};

const SEC: Duration = Duration::from_secs(1);

/// A process that does not lead.
pub(crate) struct Standby {
    pub(crate) cluster: TestCluster,
    pub(crate) known: Arc<Known>,
    pub(crate) monitors: Arc<Monitors>,
    kinds: Arc<Kinds>,
    rig: Rig,
    /// Begun when the test says so.
    controller: Controller,
    log: testing::Log,
}

pub(crate) fn standby() -> Standby {
    let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
    let cluster = TestCluster::new(clock.clone());
    let log = testing::listen();
    let rig = Rig::new(cluster.service(), clock, Limits::NONE);
    let mut builder = Builder::new(crate::NAME, rig.deps.clone());
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder(api.clone());
    let deletes = builder.queue::<Item>("deletes", crate::BACKOFF);
    let orphans = builder.queue::<Uid>("orphans", crate::BACKOFF);
    let known = Arc::new(Known::new(Graph::new(7), deletes, orphans, recorder));
    let meters = Arc::new(Meters::new(&rig.deps.metrics));
    let (kinds, monitors) = declare(&mut builder, &api, &known, &meters);
    Standby { cluster, known, monitors, kinds, controller: builder.build(), rig, log }
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn widgets(versions: &[&str]) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = |(index, name): (usize, &&str)| json!({ "name": name, "served": true, "storage": index == 0, "schema": schema });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

impl Standby {
    async fn begin(&mut self) {
        self.controller.begin();
        pass(SEC).await;
    }

    /// `pods`, `widgets.example.com`: whatever has a monitor, and has synced or not.
    fn monitored(&self, synced: bool) -> BTreeSet<String> {
        let running = self.monitors.running.lock();
        running.iter().filter(|(_, it)| it.has_synced() == synced).map(|(of, _)| of.to_string()).collect()
    }

    fn watches(&self, what: &str) -> bool {
        self.monitored(true).contains(what)
    }

    /// The value of a series; 0 where it is not there.
    fn metric(&self, series: &str) -> f64 {
        let text = self.rig.deps.metrics.encode();
        let value = text.lines().find_map(|it| it.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    fn errors(&self) -> f64 {
        self.metric("garbagecollector_controller_resources_sync_error_total")
    }

    /// How often a type was asked for since the requests were cleared.
    fn asked(&self, resource: &str) -> usize {
        self.cluster.requests().iter().filter(|it| it.resource == resource).count()
    }

    /// How often this was logged.
    fn said(&self, text: &str) -> usize {
        self.log.lines().iter().filter(|it| it.contains(text)).count()
    }

    fn spoil(&self, what: impl Fn(&Call) -> bool + Send + 'static) {
        let broken = || Verdict::status(500, "InternalError", "conversion webhook failed");
        self.cluster.intercept(move |call| if what(call) { broken() } else { Verdict::Pass });
    }
}

fn is_discovery(call: &Call) -> bool {
    matches!(call.path.as_str(), "/api" | "/apis")
}

#[tokio::test(start_paused = true)]
async fn a_standby_watches_every_type_and_writes_nothing() {
    let mut standby = standby();
    standby.begin().await;
    assert!(standby.monitored(false).is_empty(), "{:?}", standby.monitored(false));
    assert!(
        ["pods", "deployments.apps", "nodes"].iter().all(|it| standby.watches(it)),
        "{:?}",
        standby.monitored(true)
    );
    assert!(!standby.monitored(true).iter().any(|it| it.starts_with("events")), "events are nobody's");
    assert!(standby.monitors.unsynced().is_empty());
    let reads = ["get", "list", "watch", ""];
    assert!(standby.cluster.requests().iter().all(|it| reads.contains(&it.verb) && it.method == "GET"));
    let (seen, _) = standby.known.ask(|graph| graph.size());
    assert!(seen > 0, "the graph is fed");
    let nodes = standby.metric("mini_kcm_garbage_collector_graph_nodes{state=\"observed\"}");
    let synced = standby.metric("mini_kcm_garbage_collector_monitors{state=\"synced\"}");
    assert_eq!((nodes, synced), (seen as f64, standby.monitored(true).len() as f64));
    assert_eq!(standby.errors(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn what_another_controller_has_in_its_cache_is_not_watched_twice() {
    let mut standby = standby();
    let pods = standby.rig.deps.informers.typed::<Pod>();
    let _namespaces = standby.rig.deps.informers.typed::<Namespace>();
    standby.begin().await;
    for resource in ["pods", "namespaces", "secrets"] {
        assert!(standby.watches(resource), "{resource}");
        assert_eq!(standby.asked(resource), 1, "{resource}: one stream brings the set and what follows");
    }
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
                      "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    let uid = Uid::new(standby.cluster.create(pod)["metadata"]["uid"].as_str().unwrap());
    pass(SEC).await;
    let known = |standby: &Standby| standby.known.node(&Item::Observed(uid.clone())).is_some();
    assert!(pods.store().len() == 1 && known(&standby));
    standby.cluster.remove("pods", "default", "a");
    pass(SEC).await;
    assert!(!known(&standby));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_043_when_discovery_fails_entirely_monitors_stay_the_metric_grows_and_the_loop_goes_on() {
    let mut standby = standby();
    standby.begin().await;
    let before = standby.monitored(true);
    standby.spoil(is_discovery);
    pass(95 * SEC).await;
    assert_eq!(standby.monitored(true), before);
    assert_eq!(standby.errors(), 3.0, "one for each pass");
    assert!(standby.kinds.resource(&"v1".into(), &"Pod".into()).is_ok(), "what was known is known");
    assert_eq!(standby.said("Discovery has holes"), 1, "said once");
    standby.cluster.create(widgets(&["v1"]));
    standby.cluster.stop_intercepting();
    pass(35 * SEC).await;
    assert!(standby.watches("widgets.example.com"));
    assert_eq!(standby.errors(), 3.0);
}

#[tokio::test(start_paused = true)]
async fn before_discovery_has_answered_not_even_the_missing_types_are_known() {
    let mut standby = standby();
    standby.spoil(is_discovery);
    standby.begin().await;
    let unsynced = standby.monitors.unsynced();
    assert_eq!(unsynced.len(), 1, "{unsynced:?}");
    let synced = |standby: &Standby| {
        let monitors = standby.monitors.clone();
        async move { tokio::time::timeout(SEC, monitors.synced()).await.is_ok() }
    };
    assert!(!synced(&standby).await);
    standby.cluster.stop_intercepting();
    pass(31 * SEC).await;
    assert!(synced(&standby).await && standby.monitors.unsynced().is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_044_a_group_that_fails_keeps_its_monitors_and_others_come() {
    let mut standby = standby();
    standby.begin().await;
    standby.cluster.fail_discovery("apps", DiscoveryFault::Stale);
    standby.cluster.create(widgets(&["v1"]));
    pass(35 * SEC).await;
    assert!(standby.watches("deployments.apps") && standby.watches("widgets.example.com"));
    assert!(standby.kinds.resource(&"apps/v1".into(), &"Deployment".into()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_046_a_type_that_cannot_sync_is_named_and_holds_up_no_other() {
    let mut standby = standby();
    standby.spoil(|call| call.resource == "secrets");
    standby.begin().await;
    assert_eq!(standby.monitored(false), BTreeSet::from(["secrets".to_owned()]));
    assert!(standby.watches("configmaps"));
    pass(95 * SEC).await;
    assert_eq!(standby.errors(), 1.0, "once for each state");
    assert_eq!(standby.said("A type does not sync"), 1);
    let series = "mini_kcm_garbage_collector_unsynced_monitor{group=\"\",resource=\"secrets\",version=\"v1\"}";
    assert_eq!(standby.metric(series), 1.0);
    let names: Vec<String> = standby.monitors.unsynced().into_iter().map(|it| it.what).collect();
    assert_eq!(names, ["secrets"]);
    standby.cluster.stop_intercepting();
    pass(95 * SEC).await;
    assert!(standby.watches("secrets") && standby.monitors.unsynced().is_empty());
    assert_eq!((standby.metric(series), standby.said("A type has synced at last")), (0.0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_type_that_comes_is_watched_soon_and_one_that_goes_is_really_watched_no_more() {
    let mut standby = standby();
    standby.begin().await;
    for _ in 0..2 {
        standby.cluster.create(widgets(&["v1"]));
        pass(3 * SEC).await;
        assert!(standby.watches("widgets.example.com"), "long before the next pass");
        assert!(standby.kinds.resource(&"example.com/v1".into(), &"Widget".into()).is_ok());
        standby.cluster.delete("customresourcedefinitions", "", "widgets.example.com");
        pass(3 * SEC).await;
        let all: Vec<String> = standby.monitored(true).into_iter().chain(standby.monitored(false)).collect();
        assert!(!all.iter().any(|it| it == "widgets.example.com"), "{all:?}");
        assert!(standby.kinds.resource(&"example.com/v1".into(), &"Widget".into()).is_err());
        standby.cluster.clear_requests();
        pass(600 * SEC).await;
        assert_eq!(standby.asked("widgets"), 0, "nobody asks for it any more");
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_that_change_all_the_time_and_bring_nothing_are_not_followed_each_time() {
    let mut standby = standby();
    standby.cluster.create(widgets(&["v1"]));
    standby.begin().await;
    standby.cluster.clear_requests();
    for number in 0..300 {
        standby.cluster.update("customresourcedefinitions", "", "widgets.example.com", |it| {
            it["metadata"]["annotations"] = json!({ "touched": number.to_string() });
        });
        pass(SEC).await;
    }
    let looks = standby.cluster.requests().iter().filter(|it| it.path == "/apis").count();
    assert!((8..=25).contains(&looks), "{looks} looks in five minutes");
}

#[tokio::test(start_paused = true)]
async fn after_its_end_nothing_is_told_any_more() {
    let mut standby = standby();
    let pods = standby.rig.deps.informers.typed::<Pod>();
    standby.begin().await;
    drop(standby.controller);
    pass(SEC).await;
    assert!(standby.monitors.running.lock().is_empty());
    let before = standby.known.ask(|graph| graph.size());
    for kind in ["ConfigMap", "Secret"] {
        standby.cluster.create(json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "late" } }));
    }
    pass(60 * SEC).await;
    assert_eq!(standby.known.ask(|graph| graph.size()), before);
    assert!(pods.watched().has_synced(), "somebody else's informer goes on");
}
