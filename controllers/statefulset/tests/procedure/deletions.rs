//! Deletions that the cache does not show yet, and those whose outcome is unknown.

use harness::{Manager, NAMESPACE, failure, pass};
use serde_json::{Value, json};
use statefulset_controller::Options;
use test_cluster::{Call, Interception};

use crate::world::{SEC, World};

impl World {
    /// A rollout of which `done` pods are updated and ready; they become available after five seconds.
    async fn in_rollout(options: Options, spec: Value, done: &[&str]) -> (Self, Manager) {
        let (world, manager) = Self::running_with(options, spec).await;
        world.set_image("two");
        world.kubelet(2).await;
        let started: Vec<_> = done.iter().map(|it| (world.image(it), world.deletions(it))).collect();
        assert_eq!(started, vec![("two".to_owned(), 1); done.len()]);
        done.iter().for_each(|it| world.run_pod(it));
        pass(SEC).await;
        (world, manager)
    }

    /// How often the deletion of a pod was requested.
    fn deletions(&self, pod: &str) -> usize {
        self.call_count(&format!("delete pods {pod}"))
    }

    fn is_terminating(&self, pod: &str) -> bool {
        self.pod(pod)["metadata"]["deletionTimestamp"].is_string()
    }

    fn images(&self, replicas: usize) -> Vec<String> {
        (0..replicas).map(|it| self.image(&format!("web-{it}"))).collect()
    }
}

/// Upstream deletes `web-2` again, so that two pods are down.
#[tokio::test(start_paused = true)]
async fn a_new_template_takes_down_no_further_pod_while_the_cache_lacks_the_last_deletion() {
    // With a conflict the client has repeated the request, and the first one was executed.
    for answer in ["confirmed", "lost", "conflict"] {
        let spec = json!({ "minReadySeconds": 5 });
        let (world, _manager) = World::in_rollout(Options::default(), spec, &["web-2"]).await;
        world.cluster.freeze_watches("pods");
        let (cluster, mut first) = (world.cluster.clone(), true);
        world.fail_requests(move |line, _| match answer {
            "lost" if line == "delete pods web-1" && std::mem::take(&mut first) => Some(Interception::LoseAnswer),
            "lost" if line == "delete pods web-1" => Some(Interception::Fail),
            "conflict" if line == "delete pods web-1" && std::mem::take(&mut first) => {
                cluster.delete("pods", NAMESPACE, "web-1");
                failure(409, "Conflict")
            }
            _ => None,
        });
        // `web-2` becomes available.
        pass(5 * SEC).await;
        let deleted = world.cluster.get("pods", NAMESPACE, "web-1");
        assert!(deleted.is_none_or(|it| it["metadata"]["deletionTimestamp"].is_string()), "{:?}", world.lines());
        world.set_image("three");
        pass(5 * SEC).await;
        assert_eq!(world.deletions("web-2"), 1, "{answer}: {:?}", world.lines());
        assert_eq!(world.deletions("web-0"), 0, "{answer}: {:?}", world.lines());
        world.cluster.unfreeze_watches("pods");
        world.kubelet(60).await;
        assert_eq!(world.images(3), ["three"; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_two_deletions_that_the_cache_lacks_counts_against_the_budget() {
    let options = Options { max_unavailable: true, ..Options::default() };
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
    let spec =
        json!({ "replicas": 4, "minReadySeconds": 5, "podManagementPolicy": "Parallel", "updateStrategy": rolling });
    let (world, _manager) = World::in_rollout(options, spec, &["web-3", "web-2"]).await;
    world.cluster.freeze_watches("pods");
    // The deletion of `web-0` is executed later, though the server says that it has failed.
    world.fail_requests(|line, _| (line == "delete pods web-0").then(internal_error));
    pass(5 * SEC).await;
    assert!(world.is_terminating("web-1") && world.deletions("web-0") > 0, "{:?}", world.lines());
    world.cluster.delete("pods", NAMESPACE, "web-0");
    world.set_image("three");
    pass(20 * SEC).await;
    assert_eq!((world.deletions("web-3"), world.deletions("web-2")), (1, 1), "{:?}", world.lines());
    world.fail_requests(|_, _| None);
    world.cluster.unfreeze_watches("pods");
    world.kubelet(60).await;
    assert_eq!(world.images(4), ["three"; 4]);
}

/// A request without a response may still be executed until the server has given it up.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_response_blocks_other_deletions_until_its_request_has_ended() {
    for is_executed in [true, false] {
        let spec = json!({ "minReadySeconds": 5 });
        let (world, _manager) = World::in_rollout(Options::default(), spec, &["web-2"]).await;
        let mut first = true;
        world.fail_requests(move |line, _| {
            let is_of_pod = line == "delete pods web-1";
            (is_of_pod && std::mem::take(&mut first)).then(|| Interception::status(504, "Timeout", "request timed out"))
        });
        pass(5 * SEC).await;
        world.set_image("three");
        pass(5 * SEC).await;
        assert_eq!((world.deletions("web-2"), world.deletions("web-1")), (1, 1), "{:?}", world.lines());
        if is_executed {
            world.cluster.delete("pods", NAMESPACE, "web-1");
            world.kubelet(10).await;
            assert_eq!(world.image("web-1"), "three");
        } else {
            pass(80 * SEC).await;
            assert_eq!((world.deletions("web-2"), world.deletions("web-1")), (1, 1), "{:?}", world.lines());
        }
        world.kubelet(60).await;
        assert_eq!(world.images(3), ["three"; 3], "{is_executed}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_live_read_the_status_is_written_and_no_other_pod_is_deleted() {
    let spec = json!({ "minReadySeconds": 5 });
    let (world, _manager) = World::in_rollout(Options::default(), spec, &["web-2"]).await;
    let is_list = |it: &Call| (it.verb, &*it.resource) == ("list", "pods");
    world.cluster.intercept(move |call| {
        let fails = is_list(call) || harness::line(call) == "delete pods web-1";
        if fails { internal_error() } else { Interception::Pass }
    });
    pass(5 * SEC).await;
    world.set_image("three");
    pass(60 * SEC).await;
    assert_eq!(world.status()["observedGeneration"], world.stored()["metadata"]["generation"]);
    assert_eq!((world.deletions("web-2"), world.deletions("web-1")), (1, 1), "{:?}", world.lines());
    let reads = world.cluster.requests().iter().filter(|it| is_list(it)).count();
    assert!((2..10).contains(&reads), "{reads} reads: {:?}", world.lines());
    world.fail_requests(|_, _| None);
    world.kubelet(60).await;
    assert_eq!(world.images(3), ["three"; 3]);
}

/// As after the restore of an older etcd: the cache never shows the deletion, and no event comes.
#[tokio::test(start_paused = true)]
async fn a_confirmed_deletion_that_the_server_has_lost_is_repeated_after_five_minutes() {
    let (world, _manager) = World::running(json!({ "podManagementPolicy": "Parallel" })).await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        let is_lost = line == "delete pods web-2" && std::mem::take(&mut first);
        is_lost.then(|| Interception::Answer { status: 200, headers: Vec::new(), body: json!({}) })
    });
    world.scale(2);
    pass(290 * SEC).await;
    assert_eq!((world.deletions("web-2"), world.is_terminating("web-2")), (1, false));
    pass(15 * SEC).await;
    assert_eq!((world.deletions("web-2"), world.is_terminating("web-2")), (2, true));
}

/// The server has ended the request.
fn internal_error() -> Interception {
    Interception::status(500, "InternalError", "no quorum")
}
