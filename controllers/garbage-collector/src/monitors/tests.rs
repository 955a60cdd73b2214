//! The discovery task against an in-memory API server. No process here leads, so this is the behaviour of a standby.

use std::{collections::BTreeSet, task::Poll};

use api::{Namespace, Pod, Uid};
use client::Limits;
use clock::Timestamp;
use controller::{Controller, Factor};
use harness::Rig;
use serde_json::{Value, json};
use test_cluster::{Call, DiscoveryFault, Interception, TestCluster};

use super::*;
use crate::{
    graph::{Coordinates, Graph, Item},
    rules::evidence::Gone,
};

const SEC: Duration = Duration::from_secs(1);

/// A process that does not lead.
pub(crate) struct Standby {
    pub(crate) cluster: TestCluster,
    pub(crate) graph: Arc<SharedGraph>,
    pub(crate) monitors: Arc<Monitors>,
    kinds: Arc<Kinds>,
    rig: Rig,
    /// Started by the test.
    controller: Controller,
    log: harness::Log,
}

pub(crate) fn standby() -> Standby {
    let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
    let cluster = TestCluster::new(clock.clone());
    let log = harness::listen();
    let rig = Rig::new(cluster.service(), clock, Limits::NONE);
    let mut builder = Builder::new(crate::NAME, rig.deps.clone());
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder(api.clone());
    let deletes = builder.queue::<Item>("deletes", controller::Backoff::default());
    let orphans = builder.queue::<Uid>("orphans", controller::Backoff::default());
    let graph = Arc::new(SharedGraph::new(Graph::new(7), deletes, orphans, recorder));
    let meters = Arc::new(Meters::new(&rig.deps.metrics));
    let (kinds, monitors) = declare(&mut builder, &api, &graph, &meters);
    Standby { cluster, graph, monitors, kinds, controller: builder.build(), rig, log }
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

    /// `pods`, `widgets.example.com`: types with a monitor that has synced, or that has not.
    fn monitored(&self, synced: bool) -> BTreeSet<String> {
        let state = self.monitors.state.lock();
        state.running.iter().filter(|(_, it)| it.has_synced() == synced).map(|(of, _)| of.to_string()).collect()
    }

    fn watches(&self, what: &str) -> bool {
        self.monitored(true).contains(what)
    }

    /// The value of a series; 0 if it does not exist.
    fn metric(&self, series: &str) -> f64 {
        let text = self.rig.deps.metrics.encode();
        let value = text.lines().find_map(|it| it.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    /// The types that may be missing, as text.
    fn unsynced(&self) -> Vec<String> {
        self.monitors.unsynced().iter().map(ToString::to_string).collect()
    }

    /// 1 while this type, or `*` for its whole group version, is shown as possibly missing.
    fn shown(&self, group: &str, version: &str, resource: &str) -> f64 {
        let labels = format!("group=\"{group}\",resource=\"{resource}\",version=\"{version}\"");
        self.metric(&format!("mini_kcm_garbage_collector_unsynced_monitor{{{labels}}}"))
    }

    fn errors(&self) -> f64 {
        self.metric("garbagecollector_controller_resources_sync_error_total")
    }

    /// The number of requests for a type since the requests were cleared.
    fn request_count(&self, resource: &str) -> usize {
        self.cluster.requests().iter().filter(|it| it.resource == resource).count()
    }

    /// How often this text was logged.
    fn logged(&self, text: &str) -> usize {
        self.log.lines().iter().filter(|it| it.contains(text)).count()
    }

    fn fail_requests(&self, what: impl Fn(&Call) -> bool + Send + 'static) {
        let broken = || Interception::status(500, "InternalError", "conversion webhook failed");
        self.cluster.intercept(move |call| if what(call) { broken() } else { Interception::Pass });
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
    assert!(!standby.monitored(true).iter().any(|it| it.starts_with("events")), "events are not watched");
    assert!(standby.monitors.unsynced().is_empty());
    let reads = ["get", "list", "watch", ""];
    assert!(standby.cluster.requests().iter().all(|it| reads.contains(&it.verb) && it.method == "GET"));
    let (seen, _) = standby.graph.read(|graph| graph.size());
    assert!(seen > 0, "the graph contains their objects");
    let nodes = standby.metric("mini_kcm_garbage_collector_graph_nodes{state=\"observed\"}");
    let synced = standby.metric("mini_kcm_garbage_collector_monitors{state=\"synced\"}");
    assert_eq!((nodes, synced), (seen as f64, standby.monitored(true).len() as f64));
    assert_eq!(standby.errors(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_type_cached_by_another_controller_is_not_watched_twice() {
    let mut standby = standby();
    let pods = standby.rig.deps.informers.typed::<Pod>();
    let _namespaces = standby.rig.deps.informers.typed::<Namespace>();
    standby.begin().await;
    for resource in ["pods", "namespaces", "secrets"] {
        assert!(standby.watches(resource), "{resource}");
        assert_eq!(
            standby.request_count(resource),
            1,
            "{resource}: one request brings the set and the events after it"
        );
    }
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" },
                      "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    let uid = Uid::new(standby.cluster.create(pod)["metadata"]["uid"].as_str().unwrap());
    pass(SEC).await;
    let known = |standby: &Standby| standby.graph.node(&Item::Observed(uid.clone())).is_some();
    assert!(pods.store().len() == 1 && known(&standby));
    standby.cluster.remove("pods", "default", "a");
    pass(SEC).await;
    assert!(!known(&standby));
}

#[tokio::test(start_paused = true)]
async fn a_restore_of_etcd_removes_all_proofs() {
    let pod = || {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pod", "namespace": "default" },
                "spec": { "containers": [{ "name": "a", "image": "a" }] } })
    };
    let owner = Coordinates {
        kind: "Secret".into(),
        api_version: "v1".into(),
        namespace: "default".into(),
        name: "gone".into(),
        uid: Uid::new("gone"),
    };
    // What a set shows: an object that was deleted, an object in an older state, or neither.
    type Change = fn(&TestCluster);
    let changes: [(&str, Change, bool); 3] = [
        ("deleted since", |it| it.remove("pods", "default", "pod"), true),
        (
            "changed since",
            |it| drop(it.update("pods", "default", "pod", |pod| pod["metadata"]["labels"] = json!({ "a": "b" }))),
            true,
        ),
        ("as it is", |_| {}, false),
    ];
    for (name, change, shows) in changes {
        for (is_shared, with_versions) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut standby = standby();
            let _pods = is_shared.then(|| standby.rig.deps.informers.typed::<Pod>());
            standby.cluster.create(pod());
            standby.begin().await;
            let pods = {
                let state = standby.monitors.state.lock();
                let found = state.running.iter().find(|(of, _)| of.to_string() == "pods").unwrap();
                found.1.source.as_ref().unwrap().1.watched().unwrap().clone()
            };
            let snapshot = standby.cluster.snapshot();
            change(&standby.cluster);
            pass(SEC).await;
            let restores = standby.graph.restores();
            standby.graph.cache_proof(Gone::from_deleted_event(owner.clone()), restores);
            if with_versions {
                standby.cluster.restore_versions_too(&snapshot);
            } else {
                standby.cluster.restore(&snapshot);
            }
            pods.relist_consistently();
            pass(SEC).await;
            let what = format!("{name}, shared {is_shared}, with versions {with_versions}");
            assert_eq!(standby.graph.absence_proof(&owner).is_none(), shows, "{what}");
            assert_eq!(standby.graph.restores() != restores, shows, "{what}");
            // A read that was in flight is as invalid as the earlier proofs.
            standby.graph.cache_proof(Gone::from_deleted_event(owner.clone()), restores);
            assert_eq!(standby.graph.absence_proof(&owner).is_none(), shows, "{what}");
            let restores = standby.graph.restores();
            pods.relist_consistently();
            pass(SEC).await;
            assert_eq!(standby.graph.restores(), restores, "{what}: a set with the same versions shows no restore");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_043_when_discovery_fails_monitors_stay_the_metric_grows_and_the_loop_continues() {
    let mut standby = standby();
    standby.begin().await;
    let before = standby.monitored(true);
    standby.fail_requests(is_discovery);
    pass(95 * SEC).await;
    assert_eq!(standby.monitored(true), before);
    assert_eq!(standby.errors(), 3.0, "one for each pass");
    assert!(standby.kinds.resource(&"v1".into(), &"Pod".into()).is_ok(), "known types stay known");
    assert_eq!(standby.logged("Discovery failed for some groups"), 1, "logged once");
    standby.cluster.create(widgets(&["v1"]));
    standby.cluster.stop_intercepting();
    pass(35 * SEC).await;
    assert!(standby.watches("widgets.example.com"));
    assert_eq!(standby.errors(), 3.0);
}

#[tokio::test(start_paused = true)]
async fn before_discovery_answers_the_missing_types_are_unknown() {
    let mut standby = standby();
    standby.fail_requests(is_discovery);
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
async fn acceptance_gc_044_a_failing_group_keeps_its_monitors_and_other_types_are_added() {
    let mut standby = standby();
    standby.begin().await;
    standby.cluster.fail_discovery("apps", DiscoveryFault::Stale);
    standby.cluster.create(widgets(&["v1"]));
    pass(35 * SEC).await;
    assert!(standby.watches("deployments.apps") && standby.watches("widgets.example.com"));
    assert!(standby.kinds.resource(&"apps/v1".into(), &"Deployment".into()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_046_a_type_that_cannot_sync_is_logged_and_delays_no_other() {
    let mut standby = standby();
    standby.fail_requests(|call| call.resource == "secrets");
    standby.begin().await;
    assert_eq!(standby.monitored(false), BTreeSet::from(["secrets".to_owned()]));
    assert!(standby.watches("configmaps"));
    pass(95 * SEC).await;
    assert_eq!(standby.errors(), 1.0, "once for each state");
    assert_eq!(standby.logged("A type does not sync"), 1);
    assert_eq!(standby.shown("", "v1", "secrets"), 1.0);
    assert_eq!(standby.unsynced(), ["secrets"]);
    standby.cluster.stop_intercepting();
    pass(95 * SEC).await;
    assert!(standby.watches("secrets") && standby.monitors.unsynced().is_empty());
    assert_eq!((standby.shown("", "v1", "secrets"), standby.logged("A type has synced")), (0.0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_new_type_is_watched_soon_and_the_watch_of_a_removed_type_closes() {
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
        assert_eq!(standby.request_count("widgets"), 0, "a removed type is not requested any more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_missing_from_discovery_is_watched_and_named_until_two_answers_lack_it() {
    let mut standby = standby();
    standby.begin().await;
    let lacked = ["deployments.apps (discovery lacks it)", "replicasets.apps (discovery lacks it)"];
    let doubted = |standby: &Standby| lacked.iter().all(|it| standby.unsynced().iter().any(|said| said == it));
    // One answer of a server that has just started, then complete answers.
    standby.cluster.fail_discovery("apps", DiscoveryFault::Missing);
    pass(35 * SEC).await;
    assert!(standby.watches("deployments.apps") && doubted(&standby), "{:?}", standby.unsynced());
    assert_eq!(standby.shown("apps", "v1", "deployments"), 1.0);
    standby.cluster.restore_group("apps");
    pass(30 * SEC).await;
    assert!(standby.watches("deployments.apps") && standby.unsynced().is_empty(), "{:?}", standby.unsynced());
    assert_eq!((standby.shown("apps", "v1", "deployments"), standby.errors()), (0.0, 0.0));
    // All answers from now on.
    standby.cluster.fail_discovery("apps", DiscoveryFault::Missing);
    pass(30 * SEC).await;
    assert!(standby.watches("deployments.apps") && doubted(&standby));
    pass(30 * SEC).await;
    assert!(!standby.watches("deployments.apps") && standby.unsynced().is_empty(), "{:?}", standby.unsynced());
    standby.cluster.restore_group("apps");
    pass(31 * SEC).await;
    assert!(standby.watches("deployments.apps") && standby.unsynced().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_with_unknown_types_is_named_like_an_unsynced_type() {
    let mut standby = standby();
    standby.cluster.fail_discovery("apps", DiscoveryFault::Stale);
    standby.begin().await;
    assert_eq!(standby.unsynced(), ["whatever apps/v1 serves"]);
    assert_eq!(standby.shown("apps", "v1", "*"), 1.0);
    assert!(standby.watches("configmaps"));
    pass(95 * SEC).await;
    assert_eq!((standby.errors(), standby.logged("A group's types are unknown")), (1.0, 1));
    standby.cluster.restore_group("apps");
    pass(31 * SEC).await;
    assert!(standby.watches("deployments.apps") && standby.unsynced().is_empty(), "{:?}", standby.unsynced());
    // Its types are known from now on, and watched.
    standby.cluster.fail_discovery("apps", DiscoveryFault::Stale);
    pass(61 * SEC).await;
    assert!(standby.watches("deployments.apps") && standby.unsynced().is_empty(), "{:?}", standby.unsynced());
    assert_eq!((standby.errors(), standby.shown("apps", "v1", "*")), (1.0, 0.0));
}

/// The versions in which a type is watched.
fn versions(monitors: &Monitors, plural: &str) -> Vec<String> {
    let state = monitors.state.lock();
    state.running.keys().filter(|it| &*it.plural == plural).map(|it| it.version.to_string()).collect()
}

/// Polls every task that is ready once.
async fn poll_ready_tasks() {
    let mut is_over = false;
    std::future::poll_fn(|cx| {
        // Not `yield_now`: all tasks would then run until they are idle.
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_type_that_changes_its_version_is_always_known_or_named() {
    let mut standby = standby();
    let types = ["widgets", "gadgets"];
    let defined = |plural: &str, versions: &[&str]| {
        let mut definition = widgets(versions);
        definition["metadata"]["name"] = json!(format!("{plural}.example.com"));
        definition["spec"]["names"] = json!({ "plural": plural, "kind": plural });
        definition
    };
    types.iter().for_each(|it| drop(standby.cluster.create(defined(it, &["v1beta1"]))));
    standby.begin().await;
    let uids = types.map(|kind| {
        let object = json!({ "apiVersion": "example.com/v1beta1", "kind": kind, "metadata": { "name": "a" } });
        Uid::new(standby.cluster.create(object)["metadata"]["uid"].as_str().unwrap())
    });
    pass(SEC).await;
    let (graph, monitors) = (standby.graph.clone(), standby.monitors.clone());
    // Whether one of them may be missing, and whether it is unknown.
    let look = move |plural: &str, uid: &Uid| {
        let running = versions(&monitors, plural);
        let is_named = monitors.unsynced().iter().any(|it| it.to_string() == format!("{plural}.example.com"));
        let is_known = graph.node(&Item::Observed(uid.clone())).is_some();
        let is_right = if running == ["v1"] { is_known || is_named } else { running == ["v1beta1"] };
        let wrong = (!is_right).then(|| format!("{plural} {running:?}, known: {is_known}, named: {is_named}"));
        (wrong, !is_known)
    };
    // The new versions respond late.
    standby.cluster.intercept(|call| {
        let is_new = call.path.contains("example.com/v1/");
        if is_new { Interception::Delay(SEC) } else { Interception::Pass }
    });
    for plural in types {
        let both = defined(plural, &["v1beta1", "v1"]);
        let name = format!("{plural}.example.com");
        standby.cluster.update("customresourcedefinitions", "", &name, |it| it["spec"] = both["spec"].clone());
    }
    let seen = Arc::new(Mutex::new((Vec::new(), 0)));
    let sees = seen.clone();
    let observer = standby.rig.deps.spawner.spawn("observer", async move {
        for _ in 0..5_000 {
            // All steps that can happen at this instant, one after the other.
            for _ in 0..20 {
                poll_ready_tasks().await;
                for (plural, uid) in types.iter().zip(&uids) {
                    let (wrong, is_unknown) = look(plural, uid);
                    let mut sees = sees.lock();
                    sees.0.extend(wrong);
                    sees.1 += usize::from(is_unknown);
                }
            }
            pass(Duration::from_millis(1)).await;
        }
    });
    observer.wait_until_ended().await;
    let (wrong, unknown) = &*seen.lock();
    assert!(wrong.is_empty(), "{} times: {:?}", wrong.len(), wrong.first());
    assert!(*unknown > 0 && standby.unsynced().is_empty(), "the types were unknown at times, and are known at the end");
    assert!(types.iter().all(|it| versions(&standby.monitors, it) == ["v1"]));
}

#[tokio::test(start_paused = true)]
async fn constant_changes_of_definitions_back_off_discovery() {
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
    assert!((8..=25).contains(&looks), "{looks} discoveries in five minutes");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reported_after_the_end() {
    let mut standby = standby();
    let pods = standby.rig.deps.informers.typed::<Pod>();
    standby.begin().await;
    drop(standby.controller);
    pass(SEC).await;
    assert!(standby.monitors.state.lock().running.is_empty());
    let before = standby.graph.read(|graph| graph.size());
    for kind in ["ConfigMap", "Secret"] {
        standby.cluster.create(json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "late" } }));
    }
    pass(60 * SEC).await;
    assert_eq!(standby.graph.read(|graph| graph.size()), before);
    assert!(pods.watched().has_synced(), "the shared informer still runs");
}
