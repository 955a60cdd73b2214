//! The example of `docs/simulation.md`: a small controller (`controller.rs`) and its simulation.

mod controller;
mod invariants;

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use test_cluster::{Change, TestCluster};
use testing::sim::{self, Scenario, World};

/// Nodes are created and deleted; each gets its pod, and no pod is deleted whose node exists.
async fn nodes_are_created_and_deleted(world: World) -> Result<(), String> {
    world.always("a pod is deleted only after its node", |write| {
        let deleted = write.resource() == "pods" && write.change() == Change::Removed;
        if deleted && write.get("nodes", "", write.name()).is_some() {
            return Err(format!("{} deletes the pod of {}, which exists", write.by, write.name()));
        }
        Ok(())
    });
    world.run("toy", sim::controller("toy", controller::start));
    let mut rng = world.rng();
    for number in 0..10 {
        world.sleep(Duration::from_millis(rng.u64(0..3_000))).await;
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("n{number}") } });
        world.cluster().create(node);
        if rng.bool() {
            // A name is never used again: a deleted node stays deleted.
            world.cluster().remove("nodes", "", &format!("n{}", rng.u8(0..=number)));
        }
    }
    world.calm();
    let same = || names(world.cluster(), "nodes") == names(world.cluster(), "pods");
    world.eventually(Duration::from_secs(300), "each node has its pod, and no other pod exists", same).await
}

fn names(cluster: &TestCluster, kind: &str) -> BTreeSet<String> {
    cluster.list(kind, "").iter().map(|it| it["metadata"]["name"].to_string()).collect()
}

#[test]
fn toy_random() {
    sim::seeds(&Scenario::new("toy", nodes_are_created_and_deleted));
}

#[test]
fn toy_sweep() {
    sim::sweep(&Scenario::new("toy", nodes_are_created_and_deleted));
}
