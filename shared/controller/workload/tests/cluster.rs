//! Writes and claims against the in-memory API server.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

use std::{sync::Arc, time::Duration};

use api::{Cached, Meta, Pod, Resource, Uid};
use client::{ApiError, Limits};
use clock::{Clock, Timestamp};
use controller::{Builder, Factor};
use harness::Rig;
use parking_lot::Mutex;
use serde_json::{Value, json, value::RawValue};
use test_cluster::{Call, Interception, TestCluster};
use workload::{ClaimError, Claimed, ObjectWriter, Owner, PodControl, claim, is_gone};

const FINALIZER: &str = "example.com/ours";

type Writes = Arc<Mutex<Vec<(Uid, String)>>>;

struct World {
    cluster: TestCluster,
    control: PodControl,
    writes: Writes,
    owner: Owner,
    _rig: Rig,
}

fn jobs() -> Resource {
    Resource::namespaced("batch", "v1", "jobs", "Job")
}

impl World {
    fn new() -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
        let cluster = TestCluster::new(clock.clone());
        let rig = Rig::new(cluster.service(), clock, Limits { qps: 1000.0, burst: 1000 });
        let mut builder = Builder::new("pods", rig.deps.clone());
        let api = builder.api(Factor::ONE);
        let recorder = builder.recorder(api.clone());
        let writes = Writes::default();
        let recorded = writes.clone();
        let writer = ObjectWriter::new(api, move |owner, version| {
            recorded.lock().push((owner.clone(), version.to_string()));
        });
        let control = PodControl::new(writer, recorder);
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } }));
        let owner = cluster.create(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "job", "namespace": "n" },
            "spec": { "template": { "spec": { "restartPolicy": "Never",
                "containers": [{ "name": "c", "image": "i" }] } } },
        }));
        let meta = meta(&owner);
        let owner = Owner::new(jobs(), meta.as_ref(), Some(FINALIZER));
        cluster.clear_requests();
        Self { cluster, control, writes, owner, _rig: rig }
    }

    fn deleting(mut self) -> Self {
        self.owner.deleting = true;
        self
    }

    /// A pod with the label `app: {app}` and these owners.
    fn pod(&self, name: &str, app: &str, owners: Value, finalizers: &[&str]) -> Arc<Pod> {
        let object = self.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n", "labels": { "app": app }, "ownerReferences": owners,
                "finalizers": finalizers },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        }));
        decode(&object)
    }

    fn ours(&self) -> Value {
        json!([self.owner.controller_reference()])
    }

    fn stored(&self, name: &str) -> Value {
        self.cluster.get("pods", "n", name).unwrap()
    }

    async fn claim(&self, pods: Vec<Arc<Pod>>) -> Result<Vec<String>, ClaimError> {
        self.claimed(pods).await.map(|it| it.objects.iter().map(|it| it.meta.name.to_string()).collect())
    }

    async fn claimed(&self, pods: Vec<Arc<Pod>>) -> Result<Claimed<Pod>, ClaimError> {
        claim(self.control.writer(), &self.owner, pods, |pod| pod.labels.get("app") == Some("x")).await
    }

    /// `verb name`, without events.
    fn calls(&self) -> Vec<String> {
        let calls = self.cluster.requests();
        calls.iter().filter(|it| it.resource != "events").map(|it| format!("{} {}", it.verb, it.name)).collect()
    }

    /// `Type Reason: message`
    async fn events(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let events = self.cluster.list("events", "n");
        events
            .iter()
            .map(|it| format!("{} {}: {}", text(&it["type"]), text(&it["reason"]), text(&it["message"])))
            .collect()
    }

    fn intercept(&self, verb: &'static str, interception: Interception) {
        self.cluster.intercept(move |call: &Call| {
            if call.verb == verb && call.resource != "events" { interception.clone() } else { Interception::Pass }
        });
    }
}

fn meta(object: &Value) -> Meta {
    Meta::decode_object(&serde_json::to_vec(object).unwrap()).unwrap()
}

fn decode(object: &Value) -> Arc<Pod> {
    Arc::new(Pod::decode_object(&serde_json::to_vec(object).unwrap()).unwrap())
}

fn body(name: &str) -> Box<RawValue> {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "generateName": name },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    RawValue::from_string(pod.to_string()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_012_only_the_matching_orphan_is_adopted_with_one_patch() {
    let world = World::new();
    let pods = vec![world.pod("a", "x", json!([]), &[]), world.pod("b", "y", json!([]), &[])];
    let claimed = world.claimed(pods).await.unwrap();
    assert_eq!(claimed.objects.len(), 1);
    assert_eq!(claimed.adopted.iter().collect::<Vec<_>>(), [&claimed.objects[0].meta.uid]);
    assert_eq!(world.calls(), ["get job", "patch a"]);
    assert_eq!(world.stored("a")["metadata"]["ownerReferences"], world.ours());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_loses_its_owner_while_the_cache_is_read_counts_once() {
    let world = World::new();
    let own = world.pod("a", "x", world.ours(), &[]);
    let mut orphan = world.stored("a");
    orphan["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(world.claim(vec![own, decode(&orphan)]).await.unwrap(), ["a"]);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_013_a_deleting_owner_adopts_nothing_and_keeps_its_pods() {
    let world = World::new().deleting();
    let pods = vec![world.pod("a", "x", json!([]), &[]), world.pod("b", "x", world.ours(), &[])];
    assert_eq!(world.claim(pods).await.unwrap(), ["b"]);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_014_pods_of_another_owner_are_ignored() {
    let world = World::new();
    let other = json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "other", "controller": true }]);
    let pods = vec![world.pod("a", "x", other.clone(), &[]), world.pod("b", "y", other, &[])];
    assert_eq!(world.claim(pods).await.unwrap(), [""; 0]);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_014_a_pod_with_only_the_uid_of_an_owner_is_ignored() {
    let world = World::new();
    let owned = |field: &str, value: &str| {
        let mut reference = world.owner.controller_reference();
        reference[field] = value.into();
        json!([reference])
    };
    let mut elsewhere = (*world.pod("a", "x", world.ours(), &[])).clone();
    elsewhere.meta.namespace = "m".into();
    let mut stray = (*world.pod("b", "y", world.ours(), &[])).clone();
    stray.meta.namespace = "m".into();
    let renamed = world.pod("c", "x", owned("name", "another"), &[]);
    let of_a_kind = world.pod("d", "y", owned("kind", "ReplicaSet"), &[]);
    let own = world.pod("e", "x", world.ours(), &[]);
    let pods = vec![Arc::new(elsewhere.clone()), Arc::new(stray), renamed, of_a_kind, own];
    assert_eq!(world.claim(pods).await.unwrap(), ["e"]);
    assert_eq!(world.calls(), [""; 0]);

    let mut of_the_cluster = world.owner.clone();
    of_the_cluster.namespace = "".into();
    assert_eq!(workload::claim_decision(&of_the_cluster, elsewhere.meta.as_ref(), true), workload::Claim::Keep);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_015_019_a_pod_that_no_longer_matches_is_released_with_its_finalizer_in_one_patch() {
    let world = World::new();
    let pods = vec![world.pod("a", "y", world.ours(), &[FINALIZER, "example.com/theirs"])];
    assert_eq!(world.claim(pods).await.unwrap(), [""; 0]);
    assert_eq!(world.calls(), ["patch a"]);
    let metadata = &world.stored("a")["metadata"];
    assert_eq!(metadata["finalizers"], json!(["example.com/theirs"]));
    assert!(metadata["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{metadata}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_016_a_deleting_owner_releases_nothing() {
    let world = World::new().deleting();
    let pods = vec![world.pod("a", "y", world.ours(), &[])];
    assert_eq!(world.claim(pods).await.unwrap(), [""; 0]);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_017_018_deleting_pods_and_pods_of_other_namespaces_are_not_adopted() {
    let world = World::new();
    world.pod("a", "x", json!([]), &["example.com/theirs"]);
    world.cluster.delete("pods", "n", "a");
    let deleting = decode(&world.stored("a"));
    let mut elsewhere = (*world.pod("b", "x", json!([]), &[])).clone();
    elsewhere.meta.namespace = "m".into();
    assert_eq!(world.claim(vec![deleting, Arc::new(elsewhere.clone())]).await.unwrap(), [""; 0]);
    assert_eq!(world.calls(), [""; 0]);

    let mut of_the_cluster = world.owner.clone();
    of_the_cluster.namespace = "".into();
    assert_eq!(workload::claim_decision(&of_the_cluster, elsewhere.meta.as_ref(), true), workload::Claim::Adopt);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_019_an_adopted_pod_gets_the_finalizer_in_the_same_patch() {
    let world = World::new();
    let pods = vec![world.pod("a", "x", json!([]), &["example.com/theirs"])];
    assert_eq!(world.claim(pods).await.unwrap(), ["a"]);
    assert_eq!(world.calls(), ["get job", "patch a"]);
    let finalizers = world.stored("a")["metadata"]["finalizers"].as_array().unwrap().clone();
    assert!(finalizers.contains(&json!(FINALIZER)) && finalizers.len() == 2, "{finalizers:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_020_the_owner_is_read_once_and_no_patch_is_sent_if_that_fails() {
    let world = World::new();
    let pods: Vec<_> = ["a", "b", "c"].map(|name| world.pod(name, "x", json!([]), &[])).into();
    world.intercept("get", Interception::status(500, "InternalError", "no"));
    let err = world.claim(pods.clone()).await.unwrap_err();
    assert!(matches!(err, ClaimError::Owner { .. }), "{err}");
    assert_eq!(world.calls(), ["get job"]);
    world.cluster.stop_intercepting();
    assert_eq!(world.claim(pods).await.unwrap(), ["a", "b", "c"]);
    assert_eq!(world.calls(), ["get job", "get job", "patch a", "patch b", "patch c"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_021_a_replaced_owner_adopts_nothing_and_the_error_names_it() {
    let mut world = World::new();
    let is = world.owner.uid.to_string();
    world.owner.uid = Uid::new("another");
    let err = world.claim(vec![world.pod("a", "x", json!([]), &[])]).await.unwrap_err();
    assert_eq!(err.to_string(), format!("original job is gone: its uid was another and is now {is}"));
    assert_eq!(world.calls(), ["get job"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_on_the_server_but_not_in_the_cache_adopts_nothing() {
    let world = World::new();
    world.cluster.update("jobs.batch", "n", "job", |it| it["metadata"]["finalizers"] = json!(["example.com/theirs"]));
    world.cluster.delete("jobs.batch", "n", "job");
    let err = world.claim(vec![world.pod("a", "x", json!([]), &[])]).await.unwrap_err();
    assert_eq!(err.to_string(), "job has just been deleted");
    assert_eq!(world.calls(), ["get job"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_022_a_release_without_effect_is_no_error() {
    let world = World::new();
    let stray = || vec![world.pod("a", "y", world.ours(), &[])];
    let pods = stray();
    for (code, reason, is_error) in
        [(404, "NotFound", true), (422, "Invalid", false), (409, "Conflict", true), (500, "InternalError", true)]
    {
        world.intercept("patch", Interception::status(code, reason, "no"));
        let outcome = world.claim(pods.clone()).await;
        assert_eq!(outcome.is_err(), is_error, "{code}");
        assert_eq!(outcome.unwrap_or_default(), [""; 0], "{code}");
    }
    // A 404 must name this pod, or it does not prove that the pod is gone.
    world.intercept("patch", absent("a"));
    assert_eq!(world.claim(pods).await.unwrap(), [""; 0]);
}

/// The server's response that no pod has this name.
fn absent(name: &str) -> Interception {
    let mut interception = Interception::status(404, "NotFound", "no");
    if let Interception::Answer { body, .. } = &mut interception {
        body["details"] = json!({ "name": name, "kind": "pods" });
    }
    interception
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_023_a_missing_pod_is_not_adopted_and_an_error_names_one_failed_pod() {
    let world = World::new();
    let pods: Vec<_> = ["a", "b"].map(|name| world.pod(name, "x", json!([]), &[])).into();
    world.intercept("patch", absent("a"));
    assert_eq!(world.claim(vec![pods[0].clone()]).await.unwrap(), [""; 0]);
    let err = world.claim(pods.clone()).await.unwrap_err();
    assert_eq!(err.to_string(), "cannot claim 1 pods, the first being b", "the missing pod is not b");
    world.cluster.clear_requests();
    world.intercept("patch", Interception::status(422, "Invalid", "no"));
    let err = world.claim(pods).await.unwrap_err();
    assert_eq!(err.to_string(), "cannot claim 2 pods, the first being a");
    assert_eq!(world.calls(), ["get job", "patch a", "patch b"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_the_same_name_and_another_uid_is_not_touched() {
    let world = World::new();
    let pod = world.pod("a", "x", world.ours(), &[FINALIZER]);
    let mut before = (*pod).clone();
    before.meta.uid = Uid::new("0d1f5c06-0000-4000-8000-000000000000");
    let err = world.control.delete(&world.owner, &before).await.unwrap_err();
    assert!(is_gone(&err, "a"), "{err}");
    let err = world.control.remove_finalizer(&world.owner.uid, &before, FINALIZER).await.unwrap_err();
    assert!(is_gone(&err, "a"), "{err}");
    let stored = world.stored("a");
    assert_eq!(stored["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(stored["metadata"].get("deletionTimestamp"), None);
    assert_eq!(world.events().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn creations_and_deletions_send_the_events_of_upstream() {
    let world = World::new();
    let written = world.control.create(&world.owner, &body("job-")).await.unwrap();
    let pod = decode(&world.stored(&written.name));
    world.control.delete(&world.owner, &pod).await.unwrap();
    world.intercept("create", Interception::status(403, "Forbidden", "pods \"job-\" is forbidden: exceeded quota"));
    world.control.create(&world.owner, &body("job-")).await.unwrap_err();
    world.intercept("delete", Interception::status(500, "InternalError", "etcd is unavailable"));
    let err = world.control.delete(&world.owner, &pod).await.unwrap_err();
    assert!(!is_gone(&err, &pod.meta.name), "{err}");
    let name = &*written.name;
    let mut events = world.events().await;
    events.sort();
    let want = [
        format!("Normal SuccessfulCreate: Created pod: {name}"),
        format!("Normal SuccessfulDelete: Deleted pod: {name}"),
        "Warning FailedCreate: Error creating: pods \"job-\" is forbidden: exceeded quota".to_owned(),
        "Warning FailedDelete: Error deleting: etcd is unavailable".to_owned(),
    ];
    assert_eq!(events, want);
    let about = &world.cluster.list("events", "n")[0]["involvedObject"];
    assert_eq!((&about["kind"], &about["name"]), (&json!("Job"), &json!("job")));
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_041_deleting_a_missing_pod_returns_an_error_and_sends_no_event() {
    let world = World::new();
    let pod = world.pod("a", "x", world.ours(), &[]);
    world.cluster.remove("pods", "n", "a");
    let err = world.control.delete(&world.owner, &pod).await.unwrap_err();
    assert!(matches!(err, ApiError::NotFound(_)) && is_gone(&err, "a") && !is_gone(&err, "b"), "{err}");
    assert_eq!(world.events().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_042_a_terminating_namespace_sends_no_event() {
    let world = World::new();
    world.cluster.delete("namespaces", "", "n");
    let err = world.control.create(&world.owner, &body("job-")).await.unwrap_err();
    assert!(err.is_namespace_terminating(), "{err}");
    assert_eq!(world.events().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_044_each_stored_write_is_reported_once() {
    let world = World::new();
    let written = world.control.create(&world.owner, &body("job-")).await.unwrap();
    let pod = world.pod("a", "x", world.ours(), &[FINALIZER]);
    let patched = world.control.remove_finalizer(&world.owner.uid, &pod, FINALIZER).await.unwrap();
    world.control.delete(&world.owner, &pod).await.unwrap();
    world.intercept("create", Interception::status(500, "InternalError", "no"));
    world.control.create(&world.owner, &body("job-")).await.unwrap_err();
    let recorded = world.writes.lock().clone();
    let want = [&written.version, &patched.version].map(|it| (world.owner.uid.clone(), it.to_string()));
    assert_eq!(recorded, want);
}
