//! What every simulation checks: each scenario here does one thing that no process may do.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use client::{Body, Transport};
use futures::FutureExt;
use http::{Method, Request};
use serde_json::{Value, json};
use testing::sim::{self, Process, Scenario, World};
use tower::ServiceExt;

const SEC: Duration = Duration::from_secs(1);
const LEASE: &str = "kube-system/mine";

#[test]
fn panic_of_scenario_is_reported_with_seed_and_command() {
    let scenario = Scenario::new("panics", |world: World| async move {
        world.sleep(SEC).await;
        let exists = world.cluster().get("nodes", "", "never");
        exists.expect("a node that does not exist");
        Ok(())
    });
    let message = catch_unwind(AssertUnwindSafe(|| sim::seeds(&scenario))).expect_err("the run fails");
    let message = message.downcast_ref::<String>().expect("a text");
    assert!(message.contains("a node that does not exist"), "{message}");
    assert!(message.contains("SEED=") && message.contains("cargo test -p testing --test toy"), "{message}");
}

#[test]
fn panic_of_invariant_on_write_of_scenario_is_reported() {
    let scenario = Scenario::new("panics", |world: World| async move {
        world.always("the invariant panics", |write| panic!("at {}", write.name()));
        create(&world, "n");
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("the run fails");
    assert!(why.contains("at n"), "{why}");
}

#[test]
fn goal_that_is_true_only_for_a_moment_is_not_reached() {
    let scenario = Scenario::new("moment", |world: World| async move {
        create(&world, "n");
        let beside = world.clone();
        world.spawn("late", async move {
            beside.sleep(SEC * 20).await;
            beside.cluster().remove("nodes", "", "n");
        });
        world.calm();
        let exists = || world.cluster().get("nodes", "", "n").is_some();
        world.eventually(SEC * 10, "the node exists", exists).await
    });
    let why = sim::trace(&scenario, 0).expect_err("the run fails");
    assert!(why.contains("but was false again"), "{why}");
}

#[test]
fn process_that_fails_at_its_stop_fails_the_run() {
    let scenario = process(None, |process| async move {
        process.stop.cancelled().await;
        Err("no reason".to_owned())
    });
    let why = sim::trace(&scenario, 0).expect_err("the run fails");
    assert!(why.contains("fails at its stop: no reason"), "{why}");
}

#[test]
fn process_that_stops_slowly_fails_the_run() {
    let scenario = process(None, |process| async move {
        process.stop.cancelled().await;
        tokio::time::sleep(SEC * 30).await;
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("the run fails");
    assert!(why.contains("needs 30s to stop"), "{why}");
}

#[test]
fn endless_requests_at_one_instant_fail_the_run() {
    let scenario = process(None, |process| async move {
        loop {
            send(&process.transport, Method::GET, "/api/v1/nodes", &Value::Null).await;
        }
    });
    let why = sim::trace(&scenario, 0).expect_err("the run fails");
    assert!(why.contains("at one instant"), "{why}");
}

#[test]
fn elected_process_without_lease_must_not_write() {
    let scenario = process(Some(LEASE), |process| async move {
        send(&process.transport, Method::POST, "/api/v1/nodes", &node("early")).await;
        process.stop.cancelled().await;
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("the run fails");
    assert!(why.contains("before its term"), "{why}");
}

#[test]
fn lease_of_another_name_begins_no_term() {
    let scenario = process(Some(LEASE), |process| async move {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "other" },
            "spec": { "holderIdentity": process.name },
        });
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        send(&process.transport, Method::POST, leases, &lease).await;
        process.stop.cancelled().await;
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("the run fails");
    assert!(why.contains("before its term"), "{why}");
}

/// A process that runs for a while and is then stopped.
fn process<F, Fut>(lease: Option<&'static str>, main: F) -> Scenario
where
    F: Fn(Process) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), String>> + Send + 'static,
{
    Scenario::new("process", move |world: World| {
        let main = main.clone();
        async move {
            let main = move |process| main(process).boxed();
            match lease {
                Some(lease) => world.run_elected("p", lease, main),
                None => world.run("p", main),
            }
            world.calm();
            world.sleep(SEC * 5).await;
            Ok(())
        }
    })
}

async fn send(transport: &Transport, method: Method, path: &str, body: &Value) {
    let body = if body.is_null() { Body::default() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let Ok(request) = request.body(body) else { return };
    let _ = transport.clone().oneshot(request).await;
}

fn create(world: &World, name: &str) {
    world.cluster().create(node(name));
}

fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}
