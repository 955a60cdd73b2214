//! DaemonSets: revisions, deletion and updates with upstream's own role, and the equality with the upstream manager.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

#[path = "../support/mod.rs"]
mod support;

mod cases;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context;
use cases::{Case, Step, Want, cases, own_node, plain_nodes, rolling, template};
use e2e::{
    ControlPlane, Flavour, Launch, Manager, NodeFleet, Options, Rest, Site,
    equality::{self, Results, until_equal, without_generated_names},
    eventually,
    fields::{is_deleting, is_ready, owner, text, uid},
    go_manager_or_skip, namespaces, report,
    workloads::{Kind, ObservedObjects},
};
use fake_nodes::{NodeSpec, PREFIX};
use futures::{StreamExt, future::try_join_all};
use serde_json::{Value, json};
use support::{On, on_both_servers};

const TIME_LIMIT: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "daemons";
const CONTROLLER: &str = "daemonset-controller";
/// The label of a pod and of a revision with the hash of the template.
const HASH: &str = "controller-revision-hash";
/// The annotation of a set whose change causes a sync.
const TOUCHED: &str = "example.com/touched";
/// The pause between two syncs that a test causes.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

on_both_servers! {
    acceptance_ds_056_each_node_has_a_ready_pod_at_all_times_of_an_update_with_surge
    acceptance_ds_063_revisions_are_created_patched_and_deleted_by_users
    acceptance_ds_071_pods_of_a_deleted_collection_are_deleted_by_the_garbage_collector
}

/// Nodes that run every pod.
struct Nodes {
    admin: Rest,
    fleet: NodeFleet,
}

impl Nodes {
    async fn start(site: &Site, specs: Vec<NodeSpec>) -> anyhow::Result<Self> {
        let fleet = NodeFleet::start(site, specs.clone(), TIME_LIMIT).await?;
        let nodes = Self { admin: fleet.admin().clone(), fleet };
        for spec in &specs {
            nodes.set_taints(spec).await?;
        }
        namespaces::create(&nodes.admin, NAMESPACE).await?;
        Ok(nodes)
    }

    fn path(resource: &str, name: &str) -> String {
        let group = if matches!(resource, "pods" | "events") { "/api/v1" } else { "/apis/apps/v1" };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        format!("{group}/namespaces/{NAMESPACE}/{resource}{name}")
    }

    fn node_path(name: &str) -> String {
        format!("/api/v1/nodes/{name}")
    }

    /// Removes the taint that the API server adds to each new node. The node lifecycle controller, which does it
    /// otherwise, does not run here.
    async fn set_taints(&self, spec: &NodeSpec) -> anyhow::Result<()> {
        let taints = json!({ "spec": { "taints": spec.taints } });
        self.admin.merge(&Self::node_path(&spec.name), &taints).await.map(drop)
    }

    /// Adds a node without a kubelet.
    async fn add_node(&self, spec: &NodeSpec) -> anyhow::Result<()> {
        let node =
            json!({ "metadata": { "name": spec.name, "labels": spec.labels }, "spec": { "taints": spec.taints } });
        self.admin.create("/api/v1/nodes", &node).await?;
        self.set_taints(spec).await
    }

    async fn create(&self, name: &str, mut spec: Value) -> anyhow::Result<()> {
        spec["selector"] = json!({ "matchLabels": { "app": name } });
        if spec["template"].is_null() {
            spec["template"] = template(name, "1", &json!({}));
        }
        let set = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": name, "labels": { "app": name }, "annotations": { "example.com/note": "kept" } },
            "spec": spec });
        self.admin.create(&Self::path("daemonsets", ""), &set).await.map(drop)
    }

    async fn edit(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        self.admin.merge(&Self::path("daemonsets", name), &json!({ "spec": spec })).await.map(drop)
    }

    async fn set_image(&self, name: &str, tag: &str) -> anyhow::Result<()> {
        self.edit(name, json!({ "template": template(name, tag, &json!({})) })).await
    }

    /// Causes a sync without a change of the spec.
    async fn touch(&self, name: &str, number: u32) -> anyhow::Result<()> {
        let annotation = json!({ "metadata": { "annotations": { TOUCHED: number.to_string() } } });
        self.admin.merge(&Self::path("daemonsets", name), &annotation).await.map(drop)
    }

    async fn all(&self, resource: &str) -> anyhow::Result<Vec<Value>> {
        self.admin.items(&Self::path(resource, "")).await
    }

    /// The pods that the set owns.
    async fn pods(&self, set: &str) -> anyhow::Result<Vec<Value>> {
        let path = format!("{}?labelSelector=app%3D{set}", Self::path("pods", ""));
        let mut pods = self.admin.items(&path).await?;
        pods.retain(|it| owner(it) == set);
        Ok(pods)
    }

    async fn uids(&self, set: &str) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.pods(set).await?.iter().map(uid).collect())
    }

    async fn revisions(&self) -> anyhow::Result<Vec<Value>> {
        self.all("controllerrevisions").await
    }

    /// Fails unless the set has this state.
    async fn check(&self, name: &str, want: Want) -> anyhow::Result<()> {
        let set = self.admin.get(&Self::path("daemonsets", name)).await?;
        let status = &set["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        let pods = self.pods(name).await?.len();
        anyhow::ensure!(
            number("desiredNumberScheduled") == want.desired
                && number("numberMisscheduled") == want.misscheduled
                && number("numberReady") == want.ready
                && number("numberAvailable") == want.ready
                && number("updatedNumberScheduled") == want.updated
                && pods == want.pods
                && status["observedGeneration"] == set["metadata"]["generation"],
            "{status} and {pods} pods, wanted {want:?}"
        );
        Ok(())
    }

    /// Waits until the set has this state.
    async fn wait_for_state(&self, name: &str, want: Want) -> anyhow::Result<()> {
        let has_state = async || self.check(name, want).await.map(Some);
        eventually(&format!("{name} to have its pods"), TIME_LIMIT, has_state).await
    }

    async fn wait_for_state_with_syncs(&self, name: &str, want: Want) -> anyhow::Result<()> {
        let mut number = 0;
        eventually(&format!("{name} to have its pods after a sync"), TIME_LIMIT, async || {
            number += 1;
            self.touch(name, number).await?;
            tokio::time::sleep(SYNC_INTERVAL).await;
            self.check(name, want).await.map(Some)
        })
        .await
    }

    /// The pod of the set on a node that is not being deleted.
    async fn pod_on(&self, set: &str, node: &str) -> anyhow::Result<Option<Value>> {
        let pods = self.pods(set).await?;
        Ok(pods.into_iter().find(|it| it["spec"]["nodeName"] == node && !is_deleting(it)))
    }

    /// Does something to the pod on a node, and waits until another one is there.
    async fn replace_pod(
        &self,
        set: &str,
        node: &str,
        act: impl AsyncFnOnce(String) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let before = self.pod_on(set, node).await?.with_context(|| format!("no pod of {set} on {node}"))?;
        act(Self::path("pods", text(&before["metadata"]["name"]))).await?;
        eventually(&format!("another pod of {set} on {node}"), TIME_LIMIT, async || {
            let now = self.pod_on(set, node).await?;
            Ok(now.is_some_and(|it| uid(&it) != uid(&before)).then_some(()))
        })
        .await
    }
}

fn launch(site: &Site, flavour: Flavour, controllers: &str) -> anyhow::Result<Launch> {
    Ok(Launch::as_kubeadm(site, flavour, controllers, "daemons")?.flag("concurrent-daemonset-syncs", "4"))
}

async fn acceptance_ds_056_each_node_has_a_ready_pod_at_all_times_of_an_update_with_surge(on: On) {
    const NODES: usize = 4;
    const SURGE: usize = 2;
    let name = "an update with surge keeps a ready pod on each node";
    let Some(server) = on.server(name, Options::default()).await.unwrap() else { return };
    let nodes = Nodes::start(&server, plain_nodes(NODES)).await.unwrap();
    let _manager = launch(&server, Flavour::Ours, CONTROLLER).unwrap().started().await.unwrap();
    nodes.create("web", rolling(json!(0), json!(SURGE))).await.unwrap();
    nodes.wait_for_state("web", Want::on_nodes(NODES)).await.unwrap();

    let list = nodes.admin.get(&Nodes::path("pods", "")).await.unwrap();
    let mut pods: BTreeMap<String, Value> =
        list["items"].as_array().unwrap().iter().map(|it| (uid(it), it.clone())).collect();
    let before: BTreeSet<String> = pods.keys().cloned().collect();
    let version = text(&list["metadata"]["resourceVersion"]);
    let watched = format!("{}?watch=true&resourceVersion={version}", Nodes::path("pods", ""));
    let mut events = nodes.admin.watch(&watched).await.unwrap();
    nodes.set_image("web", "2").await.unwrap();
    loop {
        let event = tokio::time::timeout(TIME_LIMIT, events.next()).await.unwrap().unwrap().unwrap();
        let pod = &event["object"];
        match text(&event["type"]) {
            "DELETED" => drop(pods.remove(&uid(pod))),
            "ADDED" | "MODIFIED" => drop(pods.insert(uid(pod), pod.clone())),
            _ => panic!("the watch ended: {event}"),
        }
        let (ready, starting): (Vec<&Value>, Vec<&Value>) =
            pods.values().filter(|it| !is_deleting(it)).partition(|it| is_ready(it));
        let with_ready: BTreeSet<&str> = ready.iter().map(|it| text(&it["spec"]["nodeName"])).collect();
        assert_eq!(with_ready.len(), NODES, "only {with_ready:?} have a ready pod after {event}");
        assert!(starting.len() <= SURGE, "{} pods start at once after {event}", starting.len());
        if pods.len() == NODES && starting.is_empty() && pods.keys().all(|it| !before.contains(it)) {
            break;
        }
    }
    nodes.wait_for_state("web", Want::on_nodes(NODES)).await.unwrap();
}

/// Waits until the manager has observed everything that was written, its own writes too, and has no sync left.
async fn until_idle(nodes: &Nodes, manager: &Manager) -> anyhow::Result<()> {
    // Of nodes only labels and taints matter, which do not change here.
    let resources = ["daemonsets", "controllerrevisions", "pods"];
    let read = async || try_join_all(resources.map(|it| nodes.all(it))).await;
    eventually("the manager to have no sync left", TIME_LIMIT, async || {
        let written = read().await?;
        for (resource, objects) in resources.into_iter().zip(&written) {
            let version = |it: &Value| text(&it["metadata"]["resourceVersion"]).parse().unwrap_or(f64::INFINITY);
            let newest = objects.iter().map(version).fold(0.0, f64::max);
            let label = format!("resource=\"{resource}\"");
            // It is set after the handlers have enqueued what an event concerns.
            let observed = manager.metric("informer_store_resource_version", &[&label]).await?;
            anyhow::ensure!(observed >= Some(newest), "{resource}: {newest} is written, {observed:?} observed");
        }
        for metric in ["workqueue_depth", "workqueue_unfinished_work_seconds"] {
            let value = manager.metric(metric, &["name=\"daemonset\""]).await?;
            anyhow::ensure!(value == Some(0.0), "{metric} is {value:?}");
        }
        // A sync that ended meanwhile may have written.
        Ok((read().await? == written).then_some(()))
    })
    .await
}

/// The conformance test "should manage the lifecycle of a ControllerRevision".
async fn acceptance_ds_063_revisions_are_created_patched_and_deleted_by_users(on: On) {
    let name = "revisions of a DaemonSet are changed by users";
    let Some(server) = on.server(name, Options::default()).await.unwrap() else { return };
    let nodes = Nodes::start(&server, plain_nodes(3)).await.unwrap();
    let manager = launch(&server, Flavour::Ours, CONTROLLER).unwrap().started().await.unwrap();
    // Without characters that Go escapes: the data of two revisions are compared as bytes upstream.
    let mut template = template("web", "1", &json!({}));
    template["spec"]["containers"][0]["args"] = json!(["plain"]);
    nodes.create("web", json!({ "template": template })).await.unwrap();
    nodes.wait_for_state("web", Want::on_nodes(3)).await.unwrap();
    let pods = nodes.uids("web").await.unwrap();

    let [first] = &nodes.revisions().await.unwrap()[..] else { panic!("not one revision") };
    assert_eq!((owner(first), &first["revision"]), ("web", &json!(1)));
    let first_name = text(&first["metadata"]["name"]);
    let first_path = Nodes::path("controllerrevisions", first_name);
    let patched = json!({ "metadata": { "labels": { first_name: "patched" } } });
    let patched = nodes.admin.merge(&first_path, &patched).await.unwrap();
    assert_eq!(patched["metadata"]["labels"][first_name], "patched");

    // A second one with equal data: a sync would delete one of them, so the new one must not cause a sync.
    until_idle(&nodes, &manager).await.unwrap();
    let second = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": { "name": "web-second", "labels": { "app": "web", HASH: "second" },
            "ownerReferences": first["metadata"]["ownerReferences"] },
        "data": first["data"], "revision": 2,
    });
    nodes.admin.create(&Nodes::path("controllerrevisions", ""), &second).await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(SYNC_INTERVAL).await;
        assert_eq!(nodes.revisions().await.unwrap().len(), 2, "both exist for a while");
    }
    nodes.admin.delete(&first_path).await.unwrap();
    let second_path = Nodes::path("controllerrevisions", "web-second");
    eventually("the revision to be updated", TIME_LIMIT, async || {
        let mut revision = nodes.admin.get(&second_path).await?;
        revision["metadata"]["labels"]["web-second"] = json!("updated");
        nodes.admin.put(&second_path, &revision).await.map(Some)
    })
    .await
    .unwrap();
    // Its change is newer than the deletion.
    until_idle(&nodes, &manager).await.unwrap();
    let left = nodes.revisions().await.unwrap();
    assert_eq!((left.len(), &left[0]["metadata"]["name"]), (1, &json!("web-second")));
    assert_eq!(nodes.uids("web").await.unwrap(), pods, "no pod was restarted");

    nodes.edit("web", json!({ "template": { "spec": { "terminationGracePeriodSeconds": 2 } } })).await.unwrap();
    eventually("the new revision", TIME_LIMIT, async || {
        let count = nodes.revisions().await?.len();
        anyhow::ensure!(count == 2, "{count} revisions");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let updated = format!("{}?labelSelector=web-second%3Dupdated", Nodes::path("controllerrevisions", ""));
    nodes.admin.delete(&updated).await.unwrap();
    nodes.wait_for_state("web", Want::on_nodes(3)).await.unwrap();
    until_idle(&nodes, &manager).await.unwrap();
    let left = nodes.revisions().await.unwrap();
    assert_eq!((left.len(), &left[0]["revision"]), (1, &json!(3)));
}

async fn acceptance_ds_071_pods_of_a_deleted_collection_are_deleted_by_the_garbage_collector(on: On) {
    let name = "DaemonSets are deleted as a collection";
    let Some(server) = on.server(name, Options::default()).await.unwrap() else { return };
    let nodes = Nodes::start(&server, plain_nodes(3)).await.unwrap();
    let both = format!("{CONTROLLER},garbage-collector-controller");
    let _manager = launch(&server, Flavour::Ours, &both).unwrap().started().await.unwrap();
    for name in ["web", "other"] {
        nodes.create(name, json!({})).await.unwrap();
    }
    for name in ["web", "other"] {
        nodes.wait_for_state(name, Want::on_nodes(3)).await.unwrap();
    }
    let collection = Nodes::path("daemonsets", "");
    nodes.admin.delete(&format!("{collection}?labelSelector=app%3Dweb")).await.unwrap();
    eventually("the pods and revisions of web to be deleted", TIME_LIMIT, async || {
        let pods = nodes.pods("web").await?;
        let revisions = nodes.revisions().await?;
        anyhow::ensure!(pods.is_empty() && revisions.iter().all(|it| owner(it) == "other"), "{pods:?} {revisions:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    nodes.wait_for_state("other", Want::on_nodes(3)).await.unwrap();
    nodes.admin.delete(&collection).await.unwrap();
    eventually("all objects to be deleted", TIME_LIMIT, async || {
        let (pods, revisions) = (nodes.all("pods").await?, nodes.revisions().await?);
        anyhow::ensure!(pods.is_empty() && revisions.is_empty(), "{pods:?} {revisions:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

/// What must be equal, whichever manager created it. Names are not: those of pods and the hashes of revisions differ.
fn comparable(object: &Value) -> Value {
    let mut object = equality::comparable(object);
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["name", "generateName"] {
        metadata.remove(field);
    }
    object
}

/// The numbers of all revisions, by set and hash.
type Numbers = BTreeMap<(String, String), i64>;

fn hash_of(object: &Value) -> String {
    text(&object["metadata"]["labels"][HASH]).to_owned()
}

/// A pod of a case, with the number of its revision in place of the hash.
fn comparable_pod(pod: &Value, case: &Case, numbers: &Numbers) -> Value {
    let mut compared = comparable(pod);
    let labels = &mut compared["metadata"]["labels"];
    if labels[HASH].is_string() {
        labels[HASH] = json!(numbers.get(&(case.name.to_owned(), hash_of(pod))));
    }
    let labels = labels.as_object_mut().unwrap();
    // The pods that were not replaced before the second edit have an older one.
    if case.is_timed() || case.on_any_node {
        labels.remove("pod-template-generation");
    }
    if case.on_any_node {
        let spec = compared["spec"].as_object_mut().unwrap();
        spec.remove("nodeName");
        spec.remove("affinity");
    }
    compared
}

/// What must be equal after all cases: pods by node, revisions by number, statuses, and the events of the sets.
async fn results(nodes: &Nodes, cases: &[Case]) -> anyhow::Result<Results> {
    let case_of = |name: &str| cases.iter().find(|it| it.name == name);
    let (mut results, mut numbers) = (Results::new(), Numbers::new());
    for revision in nodes.revisions().await? {
        let (set, number) = (owner(&revision).to_owned(), revision["revision"].as_i64().unwrap_or_default());
        let mut compared = comparable(&revision);
        compared["metadata"]["labels"][HASH] = json!("hash");
        // It has the annotations that the set had when it was created.
        if let Some(annotations) = compared["metadata"]["annotations"].as_object_mut() {
            annotations.remove(TOUCHED);
        }
        if case_of(&set).is_some() {
            results.insert(format!("revision {set} {number}"), compared);
        }
        numbers.insert((set, hash_of(&revision)), number);
    }
    let mut pods: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pod in nodes.all("pods").await? {
        let Some(case) = case_of(owner(&pod)) else { continue };
        let node = if case.on_any_node { "any node" } else { text(&pod["spec"]["nodeName"]) };
        pods.entry(format!("pods {} on {node}", case.name)).or_default().push(comparable_pod(&pod, case, &numbers));
    }
    for (key, mut group) in pods {
        group.sort_by_key(Value::to_string);
        results.insert(key, Value::Array(group));
    }
    for set in nodes.all("daemonsets").await? {
        let name = text(&set["metadata"]["name"]);
        if case_of(name).is_some() {
            results.insert(format!("status {name}"), set["status"].clone());
        }
    }
    for event in nodes.all("events").await? {
        let name = text(&event["involvedObject"]["name"]);
        // What happens in the middle of a rollout depends on the time of the edit.
        let is_compared = case_of(name).is_some_and(|it| !it.is_timed());
        if event["involvedObject"]["kind"] == "DaemonSet" && is_compared {
            let pods = [format!("{name}-"), format!("{NAMESPACE}/{name}-")];
            let message = without_generated_names(text(&event["message"]), &pods);
            let key = format!("event {name}: {} {}: {message}", event["type"], event["reason"]);
            // Without the count: pods have the same name again here, and another one upstream.
            results.insert(key, json!("sent"));
        }
    }
    Ok(results)
}

async fn create_orphans(nodes: &Nodes, case: &Case) -> anyhow::Result<()> {
    for orphan in &case.orphans {
        let script = match orphan.exit_code {
            None => json!({}),
            Some(code) => {
                json!({ format!("{PREFIX}run-for"): "100ms", format!("{PREFIX}exit-code"): code.to_string() })
            }
        };
        let pod = json!({
            "metadata": { "name": orphan.name, "labels": { "app": case.name }, "annotations": script },
            "spec": { "nodeName": orphan.node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": "example.com/main:1" }] },
        });
        nodes.admin.create(&Nodes::path("pods", ""), &pod).await?;
        eventually(&format!("{} to have its phase", orphan.name), TIME_LIMIT, async || {
            let pod = nodes.admin.get(&Nodes::path("pods", orphan.name)).await?;
            Ok((pod["status"]["phase"] == orphan.phase()).then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn play(nodes: &Nodes, case: &Case) -> anyhow::Result<()> {
    create_orphans(nodes, case).await?;
    nodes.create(case.name, case.spec.clone()).await?;
    for step in &case.steps {
        match step {
            Step::Wait(want) => nodes.wait_for_state(case.name, *want).await?,
            Step::WaitWithSyncs(want) => nodes.wait_for_state_with_syncs(case.name, *want).await?,
            Step::Edit(spec) => nodes.edit(case.name, spec.clone()).await?,
            Step::EditMeanwhile(before, spec) => {
                let uids = nodes.uids(case.name).await?;
                nodes.edit(case.name, before.clone()).await?;
                eventually("a new pod", TIME_LIMIT, async || {
                    Ok((!nodes.uids(case.name).await?.is_subset(&uids)).then_some(()))
                })
                .await?;
                nodes.edit(case.name, spec.clone()).await?;
            }
            Step::EditNode(node, change) => drop(nodes.admin.merge(&Nodes::node_path(node), change).await?),
            Step::AddNode(node) => nodes.add_node(&own_node(node, case.name)).await?,
            Step::RemoveNode(node) => drop(nodes.admin.delete(&Nodes::node_path(node)).await?),
            Step::DeletePod(node) => {
                let delete = async |path: String| nodes.admin.delete(&path).await.map(drop);
                nodes.replace_pod(case.name, node, delete).await?;
            }
            Step::FailPod(node) => {
                // The kubelet ends it with DeadlineExceeded.
                let deadline = json!({ "spec": { "activeDeadlineSeconds": 1 } });
                let fail = async |path: String| nodes.admin.merge(&path, &deadline).await.map(drop);
                nodes.replace_pod(case.name, node, fail).await?;
            }
        }
    }
    Ok(())
}

/// Each case runs under both managers. Pods on each node, revisions with numbers and data, statuses and events must be
/// equal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_those_of_the_upstream_manager() {
    let name = "DaemonSets: objects are those of the upstream manager";
    let Some(assets) = go_manager_or_skip(name) else { return };
    let cases = cases();
    // Events are stored in their order, so that its event is the last one.
    let last = Case::new("last", json!({ "nodeSelector": { "zone": "a" } }));
    let with_last: Vec<Case> = cases.iter().cloned().chain([last.clone()]).collect();
    let mut theirs = Results::new();
    for flavour in [Flavour::Go, Flavour::Ours] {
        let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
        let nodes = Nodes::start(&plane, cases::nodes()).await.unwrap();
        let _manager = launch(&plane, flavour, CONTROLLER).unwrap().started().await.unwrap();
        try_join_all(cases.iter().map(|it| play(&nodes, it))).await.unwrap();
        play(&nodes, &last).await.unwrap();
        nodes.wait_for_state("last", Want::on_nodes(1)).await.unwrap();
        let found = eventually("the last event", TIME_LIMIT, async || {
            let found = results(&nodes, &with_last).await?;
            Ok(found.keys().any(|it| it.starts_with("event last")).then_some(found))
        });
        found.await.unwrap();
        if flavour == Flavour::Go {
            theirs = results(&nodes, &cases).await.unwrap();
            continue;
        }
        let (ours, theirs) = (async || results(&nodes, &cases).await, async || anyhow::Ok(theirs.clone()));
        until_equal(TIME_LIMIT, ours, theirs).await.unwrap();
    }
    report(&format!("{} DaemonSets are equal: {} objects and events", cases.len(), theirs.len()));
}

/// A rollout is handed from the upstream manager to ours and back in the middle: each pod is replaced once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_that_is_handed_over_restarts_no_pod_twice() {
    const NODES: usize = 6;
    let name = "DaemonSets: a rollout is handed over";
    let Some(assets) = go_manager_or_skip(name) else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let nodes = Nodes::start(&plane, plain_nodes(NODES)).await.unwrap();
    let mut leader = launch(&plane, Flavour::Go, CONTROLLER).unwrap().short_lease().started().await.unwrap();
    let observed = ObservedObjects::start(&nodes.admin, &nodes.fleet.spawner()).in_namespace(NAMESPACE);
    // Pods that start slowly, so that the rollout is not over when the successor leads.
    let slow = json!({ format!("{PREFIX}start-after"): "1500ms" });
    let mut template = template("web", "1", &json!({}));
    template["metadata"]["annotations"] = slow;
    nodes.create("web", json!({ "template": template })).await.unwrap();
    nodes.wait_for_state("web", Want::on_nodes(NODES)).await.unwrap();
    for (round, flavour) in [Flavour::Ours, Flavour::Go, Flavour::Ours].into_iter().enumerate() {
        let before = nodes.uids("web").await.unwrap();
        template["spec"]["containers"][0]["image"] = json!(format!("example.com/main:{}", round + 2));
        nodes.edit("web", json!({ "template": template })).await.unwrap();
        eventually("the first pod to be replaced", TIME_LIMIT, async || {
            Ok((!nodes.uids("web").await?.is_subset(&before)).then_some(()))
        })
        .await
        .unwrap();
        let successor = launch(&plane, flavour, CONTROLLER).unwrap().short_lease();
        leader = successor.take_over_from(&mut leader, TIME_LIMIT).await.unwrap();
        nodes.wait_for_state("web", Want::on_nodes(NODES)).await.unwrap();
        let uids = nodes.uids("web").await.unwrap();
        assert!(uids.is_disjoint(&before), "round {round}: all pods are new");
        eventually("the watch to show the last pods", TIME_LIMIT, async || {
            let existing: BTreeSet<String> = observed.existing(Kind::Pod).iter().map(uid).collect();
            Ok(uids.is_subset(&existing).then_some(()))
        })
        .await
        .unwrap();
        let wanted = NODES * (round + 2);
        assert_eq!(observed.observed_count(Kind::Pod), wanted, "round {round}: each pod is replaced once");
        assert_eq!(nodes.revisions().await.unwrap().len(), round + 2);
    }
}
