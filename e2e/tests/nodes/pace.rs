//! The pace at which the nodes of a zone are tainted, as by the upstream manager, and their order.

use std::time::Duration;

use e2e::{Assets, ControlPlane, Flavour, Options, fields::name, go_manager_or_skip, report};
use fake_nodes::NodeSpec;
use futures::future::try_join;
use serde_json::Value;

use crate::{
    many::PLACE,
    setup::{Nodes, UNREACHABLE, launch, tainted_at},
};

const NODES: usize = 6;
/// The nodes that fall silent, in this order, which is not that of their names. They are half of the zone; from 55 % on
/// none would be tainted.
const SILENT: [&str; 3] = ["node-4", "node-2", "node-6"];
/// The time between two nodes that fall silent. It is longer than an interval of renewals and one of passes, so both
/// managers observe the silence in this order; and so much shorter than [`INTERVAL`] that a manager without a pace fails.
const APART: Duration = Duration::from_secs(2);
const RENEW_INTERVAL: Duration = Duration::from_millis(500);
const GRACE: Duration = Duration::from_secs(5);
/// In nodes a second.
const RATE: &str = "0.2";
/// The time between two taints at this rate, in seconds.
const INTERVAL: i64 = 5;
/// `timeAdded` has no fraction and is taken before the write, which may be faster the second time.
const EARLY: i64 = 1;
/// `timeAdded` has no fraction, upstream looks for the next node every 100 ms, and the machine runs both clusters.
const LATE: i64 = 2;

/// The tainted nodes with the time of their taint, in the order of these times.
fn tainted(nodes: &Nodes) -> Vec<(i64, String)> {
    let all = nodes.all_nodes();
    let mut tainted: Vec<(i64, String)> =
        all.iter().filter_map(|it| Some((tainted_at(it, UNREACHABLE)?, name(it).to_owned()))).collect();
    tainted.sort();
    tainted
}

/// The nodes fall silent one after the other. Returns them in the order of their taints.
async fn silence(assets: &'static Assets, flavour: Flavour) -> anyhow::Result<Vec<(i64, String)>> {
    let plane = ControlPlane::start(assets, Options::default()).await?;
    let spec = |number: usize| NodeSpec::new(format!("node-{number}")).label("topology.kubernetes.io/zone", "paced");
    let nodes = Nodes::start(&plane, (1..=NODES).map(spec).collect(), RENEW_INTERVAL, &[]).await?;
    let launch = launch(&plane, flavour, "node-lifecycle-controller", GRACE)?
        .flag("node-monitor-period", "500ms")
        .flag("node-eviction-rate", RATE);
    let _manager = launch.started().await?;
    let is_clean = |it: &Value| it["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    let are_clean = |it: &Nodes| it.all_nodes().len() == NODES && it.all_nodes().iter().all(is_clean);
    nodes.until("all nodes to be without taints", are_clean).await?;
    for node in SILENT {
        anyhow::ensure!(nodes.fleet.make_silent(node), "no node {node}");
        tokio::time::sleep(APART).await;
    }
    nodes.until("the silent nodes to be tainted", |it| tainted(it).len() == SILENT.len()).await?;
    Ok(tainted(&nodes))
}

/// Both managers do it at the same time. Times differ between them, as upstream notices silence in its passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_tainted_at_the_pace_of_the_upstream_manager_and_in_the_order_of_their_silence() {
    let scenario = "nodes are tainted at the pace of the upstream manager";
    let Some(assets) = go_manager_or_skip(scenario) else { return };
    let _place = PLACE.lock().await;
    let (theirs, ours) =
        try_join(silence(assets, Flavour::Go), silence(assets, Flavour::from_environment())).await.unwrap();
    for (who, tainted) in [("upstream's", &theirs), ("ours", &ours)] {
        let gaps: Vec<i64> = tainted.windows(2).map(|it| it[1].0 - it[0].0).collect();
        let is_at_pace = |it: &i64| (INTERVAL - EARLY..=INTERVAL + LATE).contains(it);
        assert!(gaps.iter().all(is_at_pace), "{who}: {gaps:?} s between the taints");
        report(&format!("{scenario}: {who} are {gaps:?} s apart"));
    }
    // Upstream often taints the last one before the second one.
    assert!(ours.iter().map(|it| it.1.as_str()).eq(SILENT), "{ours:?}");
}
