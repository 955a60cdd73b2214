//! StatefulSets: pods, claims and rollouts with upstream's own role, and the equality with the upstream manager.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

#[path = "../support/mod.rs"]
mod support;

mod cases;

use std::{collections::BTreeMap, time::Duration};

use cases::{Case, Step, cases};
use e2e::{
    ControlPlane, Flavour, Launch, NodeFleet, Options, Rest, Site,
    equality::{self, Results, until_equal},
    eventually, go_manager_or_skip, namespaces, report,
    workloads::{Kind, ObservedObjects},
};
use fake_nodes::PREFIX;
use futures::future::try_join_all;
use serde_json::{Value, json};
use support::{On, on_both_servers};

const TIME_LIMIT: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "sets";

on_both_servers! {
    acceptance_sts_001_028_030_pods_with_claims_are_created_updated_and_reverted_in_order
    acceptance_sts_060_069_claims_of_scaled_pods_are_deleted_and_those_of_the_set_with_it
}

/// Nodes that run every pod.
struct Nodes {
    admin: Rest,
    fleet: NodeFleet,
}

impl Nodes {
    async fn start(site: &Site) -> anyhow::Result<Self> {
        let fleet = NodeFleet::start_equal(site, 3, TIME_LIMIT).await?;
        let admin = fleet.admin().clone();
        namespaces::create(&admin, NAMESPACE).await?;
        Ok(Self { admin, fleet })
    }

    fn path(resource: &str, name: &str) -> String {
        let group = if matches!(resource, "pods" | "persistentvolumeclaims") { "/api/v1" } else { "/apis/apps/v1" };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        format!("{group}/namespaces/{NAMESPACE}/{resource}{name}")
    }

    async fn create(&self, name: &str, changes: Value) -> anyhow::Result<()> {
        let mut spec = json!({
            "replicas": 3, "serviceName": "svc", "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name }, "annotations": {
                    format!("{PREFIX}start-after"): "1500ms", format!("{PREFIX}stop-after"): "200ms" } },
                "spec": { "containers": [{ "name": "main", "image": "example.com/main:1", "args": ["<a>&b"] }] },
            },
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": name, "annotations": { "example.com/note": "kept" } }, "spec": spec });
        self.admin.create(&Self::path("statefulsets", ""), &set).await.map(drop)
    }

    async fn edit(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        self.admin.merge(&Self::path("statefulsets", name), &json!({ "spec": spec })).await.map(drop)
    }

    async fn set_image(&self, name: &str, image: &str) -> anyhow::Result<()> {
        let set = self.admin.get(&Self::path("statefulsets", name)).await?;
        let mut template = set["spec"]["template"].clone();
        template["spec"]["containers"][0]["image"] = json!(image);
        self.edit(name, json!({ "template": template })).await
    }

    async fn all(&self, resource: &str) -> anyhow::Result<Vec<Value>> {
        self.admin.items(&Self::path(resource, "")).await
    }

    /// Waits until all pods of the set are ready and have the present template.
    async fn rolled_out(&self, name: &str) -> anyhow::Result<Value> {
        eventually(&format!("{name} to be rolled out"), TIME_LIMIT, async || {
            let set = self.admin.get(&Self::path("statefulsets", name)).await?;
            let (status, wanted) = (&set["status"], &set["spec"]["replicas"]);
            let is_done = ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|it| status[*it].as_i64().unwrap_or_default() == wanted.as_i64().unwrap_or_default());
            anyhow::ensure!(
                is_done
                    && status["currentRevision"] == status["updateRevision"]
                    && status["observedGeneration"] == set["metadata"]["generation"],
                "{status}"
            );
            Ok(Some(set.clone()))
        })
        .await
    }

    /// Waits until the set has its pods, all ready, and so many of them have the present template.
    async fn wait_for_state(&self, name: &str, updated: i64) -> anyhow::Result<()> {
        eventually(&format!("{name} with {updated} updated pods"), TIME_LIMIT, async || {
            let set = self.admin.get(&Self::path("statefulsets", name)).await?;
            let (spec, status) = (&set["spec"], &set["status"]);
            let number = |it: &Value| it.as_i64().unwrap_or_default();
            let (replicas, start) = (number(&spec["replicas"]), number(&spec["ordinals"]["start"]));
            let counters = ["replicas", "readyReplicas", "availableReplicas"];
            let is_current = status["currentRevision"] == status["updateRevision"];
            anyhow::ensure!(
                counters.iter().all(|it| number(&status[*it]) == replicas)
                    && number(&status["updatedReplicas"]) == updated
                    && (is_current || updated < replicas)
                    && status["observedGeneration"] == set["metadata"]["generation"],
                "{status}"
            );
            let is_ours = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["name"] == name;
            let pods = self.all("pods").await?;
            let mut pods: Vec<i64> = pods.iter().filter(is_ours).filter_map(Self::ordinal).collect();
            pods.sort_unstable();
            anyhow::ensure!(pods == (start..start + replicas).collect::<Vec<_>>(), "{pods:?}");
            Ok(Some(()))
        })
        .await
    }

    fn ordinal(pod: &Value) -> Option<i64> {
        pod["metadata"]["name"].as_str()?.rsplit_once('-')?.1.parse().ok()
    }

    /// The uids of the pods by name.
    async fn uids(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        Ok(self
            .all("pods")
            .await?
            .iter()
            .map(|it| (text(&it["metadata"]["name"]), text(&it["metadata"]["uid"])))
            .collect())
    }

    /// As upstream's PVC protection controller, which does not run here: deleted claims that no pod uses go.
    async fn release_claims(&self) -> anyhow::Result<()> {
        let pods = self.names("pods").await?;
        for claim in self.all("persistentvolumeclaims").await? {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            let is_used = pods.iter().any(|it| name.strip_prefix("data-") == Some(it));
            if claim["metadata"]["deletionTimestamp"].is_string() && !is_used {
                let path = Self::path("persistentvolumeclaims", name);
                self.admin.merge(&path, &json!({ "metadata": { "finalizers": null } })).await?;
            }
        }
        Ok(())
    }

    async fn names(&self, resource: &str) -> anyhow::Result<Vec<String>> {
        let all = self.all(resource).await?;
        let mut names: Vec<String> =
            all.iter().map(|it| it["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }
}

fn launch(site: &Site, flavour: Flavour, controllers: &str) -> anyhow::Result<Launch> {
    Launch::as_kubeadm(site, flavour, controllers, "sets")
}

/// The same rules in both managers: the gate is off in 1.36 and on in 1.37.
fn launch_alike(site: &Site, flavour: Flavour) -> anyhow::Result<Launch> {
    Ok(launch(site, flavour, "statefulset-controller")?.flag("feature-gates", "MaxUnavailableStatefulSet=false"))
}

fn claim_templates() -> Value {
    json!([{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } }])
}

async fn acceptance_sts_001_028_030_pods_with_claims_are_created_updated_and_reverted_in_order(on: On) {
    let name = "StatefulSets are rolled out in order";
    let Some(server) = on.server(name, Options::default()).await.unwrap() else { return };
    let nodes = Nodes::start(&server).await.unwrap();
    let _manager = launch(&server, Flavour::Ours, "statefulset-controller").unwrap().started().await.unwrap();
    nodes.create("web", json!({ "volumeClaimTemplates": claim_templates() })).await.unwrap();
    nodes.rolled_out("web").await.unwrap();
    let pods = nodes.all("pods").await.unwrap();
    let created = |ordinal: usize| {
        let pod = pods.iter().find(|it| it["metadata"]["name"] == format!("web-{ordinal}")).unwrap();
        let ready = pod["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
        let text = |it: &Value| it.as_str().unwrap().to_owned();
        (text(&pod["metadata"]["creationTimestamp"]), text(&ready["lastTransitionTime"]))
    };
    for ordinal in 1..3 {
        assert!(created(ordinal).0 >= created(ordinal - 1).1, "web-{ordinal} is created after the one before is ready");
    }
    assert_eq!(nodes.names("persistentvolumeclaims").await.unwrap(), ["data-web-0", "data-web-1", "data-web-2"]);

    let before = nodes.uids().await.unwrap();
    nodes.set_image("web", "example.com/main:2").await.unwrap();
    let set = nodes.rolled_out("web").await.unwrap();
    let after = nodes.uids().await.unwrap();
    assert!(before.iter().all(|(name, uid)| after[name] != *uid), "{before:?} {after:?}");
    assert_eq!(nodes.all("controllerrevisions").await.unwrap().len(), 2);

    nodes.set_image("web", "example.com/main:1").await.unwrap();
    let reverted = nodes.rolled_out("web").await.unwrap();
    assert_ne!(set["status"]["currentRevision"], reverted["status"]["currentRevision"]);
    let revisions = nodes.all("controllerrevisions").await.unwrap();
    let current = revisions.iter().find(|it| it["metadata"]["name"] == reverted["status"]["currentRevision"]).unwrap();
    assert_eq!((revisions.len(), &current["revision"]), (2, &json!(3)));
}

async fn acceptance_sts_060_069_claims_of_scaled_pods_are_deleted_and_those_of_the_set_with_it(on: On) {
    let name = "claims follow their retention policy";
    let Some(server) = on.server(name, Options::default()).await.unwrap() else { return };
    let nodes = Nodes::start(&server).await.unwrap();
    let both = "statefulset-controller,garbage-collector-controller";
    let _manager = launch(&server, Flavour::Ours, both).unwrap().started().await.unwrap();
    let policy = json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
    let spec = json!({ "volumeClaimTemplates": claim_templates(), "persistentVolumeClaimRetentionPolicy": policy,
        "podManagementPolicy": "Parallel" });
    nodes.create("web", spec).await.unwrap();
    nodes.rolled_out("web").await.unwrap();
    let scale = format!("{}/scale", Nodes::path("statefulsets", "web"));
    nodes.admin.merge(&scale, &json!({ "spec": { "replicas": 1 } })).await.unwrap();
    nodes.rolled_out("web").await.unwrap();
    wait_for_names(&nodes, "persistentvolumeclaims", &["data-web-0"]).await;
    nodes.edit("web", json!({ "replicas": 2 })).await.unwrap();
    nodes.rolled_out("web").await.unwrap();
    wait_for_names(&nodes, "persistentvolumeclaims", &["data-web-0", "data-web-1"]).await;
    nodes.admin.delete(&Nodes::path("statefulsets", "web")).await.unwrap();
    for resource in ["pods", "persistentvolumeclaims", "controllerrevisions"] {
        wait_for_names(&nodes, resource, &[]).await;
    }
}

async fn wait_for_names(nodes: &Nodes, resource: &str, wanted: &[&str]) {
    eventually(&format!("{wanted:?} of {resource}"), TIME_LIMIT, async || {
        nodes.release_claims().await?;
        let names = nodes.names(resource).await?;
        anyhow::ensure!(names == wanted, "{names:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

/// What must be equal, whichever manager created it.
fn comparable(object: &Value) -> Value {
    let mut object = equality::comparable(object);
    object["spec"].as_object_mut().into_iter().for_each(|it| drop(it.remove("nodeName")));
    // Upstream iterates a map.
    if let Some(volumes) = object["spec"]["volumes"].as_array_mut() {
        volumes.sort_by_key(|it| it["name"].as_str().unwrap_or_default().to_owned());
    }
    object
}

/// What must be equal after all cases. Pods, claims, revisions and statuses by name, and the events of the sets.
async fn results(nodes: &Nodes, cases: &[Case]) -> anyhow::Result<Results> {
    let mut results = Results::new();
    for resource in ["pods", "persistentvolumeclaims", "controllerrevisions"] {
        for object in nodes.all(resource).await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            results.insert(format!("{resource} {name}"), comparable(&object));
        }
    }
    for set in nodes.all("statefulsets").await? {
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        results.insert(format!("status {name}"), set["status"].clone());
    }
    for event in nodes.admin.items(&format!("/api/v1/namespaces/{NAMESPACE}/events")).await? {
        let name = event["involvedObject"]["name"].as_str().unwrap_or_default();
        // What happens in the middle of a rollout depends on the time of the edit.
        if event["involvedObject"]["kind"] == "StatefulSet" && cases.iter().any(|it| it.name == name && !it.is_timed())
        {
            let key = format!("event {name}: {} {}: {}", event["type"], event["reason"], event["message"]);
            // Without the count: when the cache of pods is late, both managers delete a pod a second time, by its uid.
            results.insert(key, json!("sent"));
        }
    }
    Ok(results)
}

async fn play(nodes: &Nodes, case: &Case) -> anyhow::Result<()> {
    for pod in &case.orphans {
        let orphan = json!({ "metadata": { "name": pod, "labels": { "app": case.name } },
            "spec": { "containers": [{ "name": "main", "image": "example.com/main:1" }] } });
        nodes.admin.create(&Nodes::path("pods", ""), &orphan).await?;
    }
    nodes.create(case.name, case.spec.clone()).await?;
    nodes.wait_for_state(case.name, case.updated).await?;
    for step in &case.steps {
        match step {
            Step::Edit(spec, updated) => {
                nodes.edit(case.name, spec.clone()).await?;
                nodes.wait_for_state(case.name, *updated).await?;
            }
            Step::EditMeanwhile(before, spec, updated) => {
                let uids = nodes.uids().await?;
                nodes.edit(case.name, before.clone()).await?;
                let is_of_set = |name: &str| name.rsplit_once('-').is_some_and(|it| it.0 == case.name);
                eventually("a pod to be replaced", TIME_LIMIT, async || {
                    let now = nodes.uids().await?;
                    let mut of_set = now.iter().filter(|it| is_of_set(it.0));
                    Ok(of_set.any(|(name, uid)| uids.get(name) != Some(uid)).then_some(()))
                })
                .await?;
                nodes.edit(case.name, spec.clone()).await?;
                nodes.wait_for_state(case.name, *updated).await?;
            }
            Step::DeletePod(pod, updated) => {
                let before = nodes.uids().await?;
                nodes.admin.delete(&Nodes::path("pods", pod)).await?;
                eventually(&format!("{pod} to be replaced"), TIME_LIMIT, async || {
                    let now = nodes.uids().await?;
                    Ok(now.get(*pod).is_some_and(|it| before.get(*pod) != Some(it)).then_some(()))
                })
                .await?;
                nodes.wait_for_state(case.name, *updated).await?;
            }
        }
    }
    Ok(())
}

/// Each case runs under both managers. Pods, claims, revisions with names, data and hashes, statuses and events must be
/// equal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_those_of_the_upstream_manager() {
    let name = "StatefulSets: objects are those of the upstream manager";
    let Some(assets) = go_manager_or_skip(name) else { return };
    let cases = cases();
    let mut theirs = Results::new();
    for flavour in [Flavour::Go, Flavour::Ours] {
        let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
        let nodes = Nodes::start(&plane).await.unwrap();
        let _manager = launch_alike(&plane, flavour).unwrap().started().await.unwrap();
        try_join_all(cases.iter().map(|it| play(&nodes, it))).await.unwrap();
        // Events are stored in their order, so that its event is the last one.
        nodes.create("last", json!({ "replicas": 1 })).await.unwrap();
        let is_last = |key: &String| key.contains("Pod last-0");
        let with_last: Vec<Case> = cases.iter().cloned().chain([Case::new("last", json!({}))]).collect();
        let found = eventually("the last event", TIME_LIMIT, async || {
            let found = results(&nodes, &with_last).await?;
            Ok(found.keys().any(is_last).then_some(found))
        });
        found.await.unwrap();
        nodes.rolled_out("last").await.unwrap();
        if flavour == Flavour::Go {
            theirs = results(&nodes, &cases).await.unwrap();
            continue;
        }
        let (ours, theirs) = (async || results(&nodes, &cases).await, async || anyhow::Ok(theirs.clone()));
        until_equal(TIME_LIMIT, ours, theirs).await.unwrap();
    }
    report(&format!("{} StatefulSets are equal: {} objects and events", cases.len(), theirs.len()));
}

/// A rollout is handed from the upstream manager to ours and back in the middle: each pod is replaced once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_sts_070_a_rollout_that_is_handed_over_restarts_no_pod_twice() {
    let name = "StatefulSets: a rollout is handed over";
    let Some(assets) = go_manager_or_skip(name) else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let nodes = Nodes::start(&plane).await.unwrap();
    let mut leader = launch_alike(&plane, Flavour::Go).unwrap().short_lease().started().await.unwrap();
    let observed = ObservedObjects::start(&nodes.admin, &nodes.fleet.spawner()).in_namespace(NAMESPACE);
    nodes.create("web", json!({ "replicas": 6, "podManagementPolicy": "Parallel" })).await.unwrap();
    nodes.rolled_out("web").await.unwrap();
    for (round, flavour) in [Flavour::Ours, Flavour::Go, Flavour::Ours].into_iter().enumerate() {
        let before = nodes.uids().await.unwrap();
        let image = format!("example.com/main:{}", round + 2);
        nodes.set_image("web", &image).await.unwrap();
        eventually("the first pod to be replaced", TIME_LIMIT, async || {
            let now = nodes.uids().await?;
            Ok(now.iter().any(|(name, uid)| before.get(name) != Some(uid)).then_some(()))
        })
        .await
        .unwrap();
        let successor = launch_alike(&plane, flavour).unwrap().short_lease();
        leader = successor.take_over_from(&mut leader, TIME_LIMIT).await.unwrap();
        nodes.rolled_out("web").await.unwrap();
        let uids = nodes.uids().await.unwrap();
        eventually("the watch to show the last pods", TIME_LIMIT, async || {
            let existing = observed.existing(Kind::Pod);
            let is_observed = |uid: &String| existing.iter().any(|it| it["metadata"]["uid"] == *uid);
            Ok(uids.values().all(is_observed).then_some(()))
        })
        .await
        .unwrap();
        let wanted = 6 * (round + 2);
        assert_eq!(observed.observed_count(Kind::Pod), wanted, "round {round}: each pod is replaced once");
        assert_eq!(nodes.all("controllerrevisions").await.unwrap().len(), round + 2);
    }
}
