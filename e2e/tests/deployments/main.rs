//! Deployments, ReplicaSets and ReplicationControllers: kubectl with our controllers and upstream's own roles, and the
//! equality with the upstream manager.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

#[path = "../support/mod.rs"]
mod support;

mod cases;
mod kubectl;
mod results;
mod setup;

use std::collections::BTreeSet;

use cases::{Case, Kind, Want, cases, template};
use e2e::{
    Assets, ControlPlane, Flavour, Manager, Options, equality::until_equal, eventually, fields::uid,
    go_manager_or_skip, report, workloads,
};
use fake_nodes::PREFIX;
use futures::{StreamExt, future::join, stream};
use kubectl::{acceptance_api_121_rollouts_are_controlled_by_kubectl, acceptance_rs_053_sets_are_scaled_by_kubectl};
use results::results;
use serde_json::json;
use setup::{Nodes, TIME_LIMIT, launch};
use support::on_both_servers;

/// How many cases are played at once. More only wait for each other.
const AT_ONCE: usize = 16;

on_both_servers! {
    acceptance_api_121_rollouts_are_controlled_by_kubectl
    acceptance_rs_053_sets_are_scaled_by_kubectl
}

/// A manager at work on an API server of its own.
struct Side {
    nodes: Nodes,
    _manager: Manager,
    _plane: ControlPlane,
}

impl Side {
    /// Plays all cases.
    async fn play(assets: &'static Assets, flavour: Flavour, cases: &[Case]) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(assets, Options::default()).await?;
        let nodes = Nodes::start(&plane).await?;
        let manager = launch(&plane, flavour)?.started().await?;
        let played = stream::iter(cases).map(|it| nodes.play(it)).buffer_unordered(AT_ONCE);
        let failed: Vec<String> = played.filter_map(async |it| it.err().map(|err| format!("{err:#}"))).collect().await;
        anyhow::ensure!(failed.is_empty(), "{flavour:?}: {}", failed.join("\n"));
        // The events of each controller are stored in their order, so that those of these objects are the last ones.
        let last = [
            Case::new(Kind::Deployment, "last", json!({})),
            Case::new(Kind::ReplicationController, "last-rc", json!({})),
        ]
        .map(|it| it.create().all(1));
        for case in &last {
            nodes.play(case).await?;
        }
        eventually("the last events", TIME_LIMIT, async || {
            let found = results(&nodes, &last).await?;
            let is_sent = |start: &str| found.keys().any(|it| it.starts_with(start));
            let objects =
                ["last event of Deployment", "last event of ReplicaSet", "last-rc event of ReplicationController"];
            Ok(objects.into_iter().all(is_sent).then_some(()))
        })
        .await?;
        Ok(Self { nodes, _manager: manager, _plane: plane })
    }
}

/// Each case runs under both managers. All objects with their status and conditions, pods, template hashes, annotations
/// and events must be equal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_those_of_the_upstream_manager() {
    let name = "Deployments: objects are those of the upstream manager";
    let Some(assets) = go_manager_or_skip(name) else { return };
    let cases = cases();
    let (theirs, ours) = join(Side::play(assets, Flavour::Go, &cases), Side::play(assets, Flavour::Ours, &cases)).await;
    let (theirs, ours) = match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (theirs, ours) => panic!("{:?}\n{:?}", theirs.err(), ours.err()),
    };
    let read = async |side: &Side| results(&side.nodes, &cases).await;
    let equal = until_equal(TIME_LIMIT, async || read(&ours).await, async || read(&theirs).await).await.unwrap();
    report(&format!(
        "{} Deployments, ReplicaSets and ReplicationControllers are equal: {equal} objects and events",
        cases.len()
    ));
}

/// A rollout is handed from the upstream manager to ours and back in the middle: each pod is created once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_deploy_080_a_rollout_that_is_handed_over_creates_no_pod_twice() {
    const PODS: i64 = 6;
    let name = "Deployments: a rollout is handed over";
    let Some(assets) = go_manager_or_skip(name) else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let nodes = Nodes::start(&plane).await.unwrap();
    let mut leader = launch(&plane, Flavour::Go).unwrap().short_lease().started().await.unwrap();
    // One pod after the other, and slowly, so that the rollout is not over when the successor leads.
    let strategy = json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    let case = Case::new(Kind::Deployment, "web", json!({ "replicas": PODS, "strategy": strategy }));
    let observed = nodes.observed.in_namespace(case.name);
    nodes.play(&case.clone().create().all(PODS)).await.unwrap();
    for (round, flavour) in [Flavour::Ours, Flavour::Go, Flavour::Ours].into_iter().enumerate() {
        let before = nodes.uids(case.name).await.unwrap();
        let mut slow = template(case.name, &format!("{}", round + 2), &json!({}));
        slow["metadata"]["annotations"][format!("{PREFIX}start-after")] = json!("3s");
        nodes.admin.merge(&case.path(), &json!({ "spec": { "template": slow } })).await.unwrap();
        eventually("the first new pod", TIME_LIMIT, async || {
            Ok((!nodes.uids(case.name).await?.is_subset(&before)).then_some(()))
        })
        .await
        .unwrap();
        leader = launch(&plane, flavour).unwrap().short_lease().take_over_from(&mut leader, TIME_LIMIT).await.unwrap();
        let left = nodes.uids(case.name).await.unwrap();
        assert!(!left.is_disjoint(&before), "round {round}: the rollout is not complete when the successor leads");
        nodes.wait_for_state(&case, Want::all(PODS)).await.unwrap();
        let uids = nodes.uids(case.name).await.unwrap();
        assert!(uids.is_disjoint(&before), "round {round}: all pods are new");
        eventually("the watch to show the last pods", TIME_LIMIT, async || {
            let existing: BTreeSet<String> = observed.existing(workloads::Kind::Pod).iter().map(uid).collect();
            Ok(uids.is_subset(&existing).then_some(()))
        })
        .await
        .unwrap();
        let created = observed.observed_count(workloads::Kind::Pod);
        assert_eq!(created, uids.len() * (round + 2), "round {round}: each pod is created once");
        assert_eq!(nodes.all(case.name, "replicasets").await.unwrap().len(), round + 2);
    }
}
