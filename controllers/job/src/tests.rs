//! Tests of the wired controller that read its memory.

use client::Limits;
use clock::Timestamp;
use harness::Rig;
use serde_json::json;
use test_cluster::TestCluster;

use super::*;

#[tokio::test(start_paused = true)]
async fn acceptance_job_011_a_deleted_job_and_its_pods_have_no_memory() {
    let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
    let cluster = TestCluster::new(clock.clone());
    cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } }));
    let Rig { deps, scope, stop } = Rig::new(cluster.service(), clock, Limits { qps: 1_000.0, burst: 1_000 });
    let mut builder = Builder::new(NAME, deps);
    let ctx = wire(&mut builder, Options::default());
    let controller = builder.build();
    scope.spawner().spawn("controller", async move { controller.run(stop, std::future::ready(())).await });
    let pass = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
    pass(1).await;

    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } });
    let job = cluster.create(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "namespace": "n" },
        "spec": { "parallelism": 2, "completions": 9, "template": template },
    }));
    pass(5).await;
    let pod = cluster.list("pods", "n")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.update("pods", "n", &pod, |it| it["status"]["phase"] = "Failed".into());
    pass(60).await;
    cluster.freeze_watches("pods");
    cluster.update("jobs.batch", "n", "j", |it| it["spec"]["parallelism"] = 4.into());
    pass(5).await;
    let uid = Uid::new(job["metadata"]["uid"].as_str().unwrap());
    assert!(ctx.memory.contains(&uid) && ctx.memory.expectations.expires_at(&uid).is_some());

    cluster.remove("jobs.batch", "n", "j");
    pass(5).await;
    assert!(ctx.memory.is_empty(), "and no memory of its pods, which still exist");
    assert_eq!(ctx.memory.expectations.expires_at(&uid), None);
    // Late events of the pods add no new entry.
    cluster.unfreeze_watches("pods");
    pass(200).await;
    assert!(ctx.memory.is_empty());
}
