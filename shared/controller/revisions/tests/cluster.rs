//! Revisions against the in-memory API server.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

use std::{collections::BTreeMap, sync::Arc};

use api::{Cached, ControllerRevision, Meta, Resource, Selector};
use client::Limits;
use clock::{Clock, Timestamp};
use controller::{Builder, Factor};
use harness::Rig;
use revisions::{
    HASH_LABEL, HashLabel, NewRevision, REVISION_LABEL, RevisionControl, RevisionError, Stored, of_owner, revision_hash,
};
use serde_json::{Value, json};
use test_cluster::{Call, Interception, TestCluster};
use workload::{ClaimError, ObjectWriter, Owner, claim};

/// The data of the tests, and the name of its revision without a collision.
const DATA: &str = r#"{"spec":{"template":{"$patch":"replace"}}}"#;
const NAME: &str = "web-589f85db5b";

struct World {
    cluster: TestCluster,
    control: RevisionControl,
    writer: ObjectWriter,
    owner: Owner,
    _rig: Rig,
}

impl World {
    fn new() -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
        let cluster = TestCluster::new(clock.clone());
        let rig = Rig::new(cluster.service(), clock, Limits { qps: 1000.0, burst: 1000 });
        let api = Builder::new("revisions", rig.deps.clone()).api(Factor::ONE);
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } }));
        let owner = cluster.create(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web", "namespace": "n" },
            "spec": { "serviceName": "web", "selector": { "matchLabels": { "app": "x" } },
                "template": { "metadata": { "labels": { "app": "x" } },
                    "spec": { "containers": [{ "name": "c", "image": "i" }] } } },
        }));
        let meta = Meta::decode_object(&serde_json::to_vec(&owner).unwrap()).unwrap();
        let resource = Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet");
        let owner = Owner::new(resource, meta.as_ref(), None);
        cluster.clear_requests();
        let writer = ObjectWriter::new(api, |_, _| {});
        Self { cluster, control: RevisionControl::new(writer.clone(), HashLabel::First), writer, owner, _rig: rig }
    }

    /// Stores a revision with the label `app: {app}`.
    fn stored(&self, name: &str, app: &str, data: Value, owners: Value) -> Arc<ControllerRevision> {
        let object = self.cluster.create(json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": data,
            "metadata": { "name": name, "namespace": "n", "labels": { "app": app }, "ownerReferences": owners },
        }));
        self.cluster.clear_requests();
        Arc::new(ControllerRevision::decode_object(&serde_json::to_vec(&object).unwrap()).unwrap())
    }

    fn ours(&self) -> Value {
        json!([self.owner.controller_reference()])
    }

    async fn create(&self, collision_count: i32) -> Result<Stored, RevisionError> {
        let labels = [("app".into(), "x".into())].into_iter().collect();
        let annotations = BTreeMap::from([("note", "kept")]);
        let new = NewRevision { data: DATA, revision: 7, labels: &labels, annotations };
        self.control.create(&self.owner, &new, collision_count).await
    }

    async fn claim(&self, all: Vec<Arc<ControllerRevision>>) -> Result<Vec<String>, ClaimError> {
        let claimed = claim(&self.writer, &self.owner, all, |it| it.labels.get("app") == Some("x")).await?;
        Ok(claimed.objects.iter().map(|it| it.meta.name.to_string()).collect())
    }

    fn calls(&self) -> Vec<String> {
        self.cluster.requests().iter().map(|it| format!("{} {}", it.verb, it.name)).collect()
    }

    fn revision(&self, name: &str) -> Value {
        self.cluster.get("controllerrevisions", "n", name).unwrap()
    }
}

fn other() -> Value {
    json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "other", "uid": "other", "controller": true }])
}

#[tokio::test(start_paused = true)]
async fn a_new_revision_has_labels_hash_owner_and_data() {
    let world = World::new();
    let stored = world.create(0).await.unwrap();
    let hash = revision_hash(DATA, Some(0));
    assert_eq!(stored, Stored { name: NAME.into(), hash, revision: 7, collision_count: 0 });
    let revision = world.revision(NAME);
    assert_eq!(revision["metadata"]["labels"], json!({ "app": "x", HASH_LABEL: revision_hash(DATA, Some(0)) }));
    assert_eq!(revision["metadata"]["annotations"], json!({ "note": "kept" }));
    assert_eq!(revision["metadata"]["ownerReferences"], world.ours());
    assert_eq!((&revision["revision"], &revision["data"]), (&json!(7), &serde_json::from_str(DATA).unwrap()));
    assert_eq!(world.calls(), ["create "]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_024_equal_data_under_the_name_is_the_revision() {
    let world = World::new();
    world.stored(NAME, "x", serde_json::from_str(DATA).unwrap(), world.ours());
    let stored = world.create(0).await.unwrap();
    let hash = revision_hash(DATA, Some(0));
    assert_eq!(stored, Stored { name: NAME.into(), hash, revision: 1, collision_count: 0 });
    assert_eq!(world.calls(), ["create ".to_owned(), format!("get {NAME}")]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_025_each_collision_increments_the_counter() {
    let world = World::new();
    world.stored(NAME, "x", json!({ "not": "ours" }), other());
    world.stored("web-589f85db5c", "x", json!({ "not": "ours" }), other());
    let stored = world.create(0).await.unwrap();
    assert_eq!((stored.collision_count, &*stored.name), (2, &*format!("web-{}", revision_hash(DATA, Some(2)))));
    // The label keeps the first hash, as upstream.
    let revision = world.revision(&stored.name);
    assert_eq!(revision["metadata"]["labels"][HASH_LABEL], revision_hash(DATA, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn the_label_that_pods_have_too_is_the_hash_in_the_name() {
    let mut world = World::new();
    world.control = RevisionControl::new(world.writer.clone(), HashLabel::OfName);
    world.stored(NAME, "x", json!({ "not": "ours" }), other());
    let stored = world.create(0).await.unwrap();
    assert_eq!((stored.collision_count, &stored.hash), (1, &revision_hash(DATA, Some(1))));
    let labels = world.revision(&stored.name)["metadata"]["labels"].clone();
    assert_eq!(labels, json!({ "app": "x", REVISION_LABEL: stored.hash }));
}

#[tokio::test(start_paused = true)]
async fn collisions_without_end_are_an_error_with_the_counter_to_store() {
    let world = World::new();
    for count in 0..25 {
        let name = format!("web-{}", revision_hash(DATA, Some(count)));
        world.stored(&name, "x", json!({ "not": "ours" }), other());
    }
    let err = world.create(0).await.unwrap_err();
    let RevisionError::Collisions { collision_count, .. } = err else { panic!("{err}") };
    assert_eq!(world.create(collision_count).await.unwrap().collision_count, 25);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_027_a_revision_with_the_number_is_not_written() {
    let world = World::new();
    let revision = world.stored("a", "x", json!({}), world.ours());
    world.control.set_number(&world.owner, &revision, 1).await.unwrap();
    assert!(world.calls().is_empty());
    world.control.set_number(&world.owner, &revision, 5).await.unwrap();
    assert_eq!((world.revision("a")["revision"].clone(), world.calls()), (json!(5), vec!["patch a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_028_a_conflict_of_a_renumbering_is_repeated() {
    let world = World::new();
    let revision = world.stored("a", "x", json!({}), world.ours());
    let mut conflicts = 0;
    world.cluster.intercept(move |call: &Call| {
        conflicts += 1;
        let is_first = call.verb == "patch" && conflicts == 1;
        if is_first {
            Interception::status(409, "Conflict", "the object has been modified")
        } else {
            Interception::Pass
        }
    });
    world.control.set_number(&world.owner, &revision, 5).await.unwrap();
    assert_eq!(world.revision("a")["revision"], 5);
    world.cluster.intercept(|_: &Call| Interception::status(409, "Conflict", "the object has been modified"));
    assert!(world.control.set_number(&world.owner, &revision, 6).await.is_err(), "the number of attempts is limited");
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_029_a_revision_of_another_controller_is_not_adopted() {
    let world = World::new();
    let foreign = world.stored("a", "x", json!({}), other());
    assert_eq!(world.claim(vec![foreign]).await.unwrap(), [""; 0]);
    assert!(world.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_030_a_release_that_the_server_calls_invalid_is_done() {
    let world = World::new();
    let surplus = world.stored("a", "y", json!({}), world.ours());
    world.cluster.intercept(|_: &Call| Interception::status(422, "Invalid", "no owner"));
    assert_eq!(world.claim(vec![surplus]).await.unwrap(), [""; 0]);
    assert_eq!(world.calls(), ["patch a"]);
}

#[tokio::test(start_paused = true)]
async fn orphans_that_match_are_adopted() {
    let world = World::new();
    let orphan = world.stored("a", "x", json!({}), json!([]));
    assert_eq!(world.claim(vec![orphan]).await.unwrap(), ["a"]);
    assert_eq!(world.revision("a")["metadata"]["ownerReferences"], world.ours());
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_032_own_revisions_and_orphans_that_match_are_listed() {
    let world = World::new();
    let mut elsewhere = (*world.stored("elsewhere", "x", json!({}), world.ours())).clone();
    elsewhere.meta.namespace = "other-namespace".into();
    let elsewhere = Arc::new(elsewhere);
    let all = vec![
        world.stored("own", "x", json!({}), world.ours()),
        world.stored("orphan", "x", json!({}), json!([])),
        world.stored("foreign", "x", json!({}), other()),
        elsewhere,
        world.stored("own-other-labels", "y", json!({}), world.ours()),
    ];
    let selector: Selector = serde_json::from_value(json!({ "matchLabels": { "app": "x" } })).unwrap();
    let names: Vec<_> = of_owner(&world.owner, &selector, all).iter().map(|it| it.meta.name.to_string()).collect();
    assert_eq!(names, ["own", "orphan"]);
}

#[tokio::test(start_paused = true)]
async fn a_revision_is_deleted_by_its_uid_and_a_missing_one_is_no_error() {
    let world = World::new();
    let revision = world.stored("a", "x", json!({}), world.ours());
    world.cluster.remove("controllerrevisions", "n", "a");
    world.control.delete(&revision).await.unwrap();
    let successor = world.stored("a", "x", json!({}), world.ours());
    world.control.delete(&revision).await.unwrap();
    assert_eq!(world.revision("a")["metadata"]["uid"], successor.meta.uid.to_string());
    world.control.delete(&successor).await.unwrap();
    assert!(world.cluster.get("controllerrevisions", "n", "a").is_none());
}
