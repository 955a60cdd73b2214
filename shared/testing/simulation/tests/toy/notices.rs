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
fn a_panic_in_the_scenario_is_reported_with_its_seed_and_its_command() {
    let scenario = Scenario::new("panics", |world: World| async move {
        world.sleep(SEC).await;
        let there = world.cluster().get("nodes", "", "never");
        there.expect("a node that does not exist");
        Ok(())
    });
    let told = catch_unwind(AssertUnwindSafe(|| sim::seeds(&scenario))).expect_err("it fails");
    let told = told.downcast_ref::<String>().expect("a text");
    assert!(told.contains("a node that does not exist"), "{told}");
    assert!(told.contains("SEED=") && told.contains("cargo test -p testing --test toy"), "{told}");
}

#[test]
fn a_panic_of_an_invariant_on_a_write_of_the_scenario_is_reported() {
    let scenario = Scenario::new("panics", |world: World| async move {
        world.always("it panics", |write| panic!("at {}", write.name()));
        make(&world, "n");
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("it fails");
    assert!(why.contains("at n"), "{why}");
}

#[test]
fn a_goal_that_is_reached_for_a_moment_is_not_reached() {
    let scenario = Scenario::new("moment", |world: World| async move {
        make(&world, "n");
        let beside = world.clone();
        world.spawn("late", async move {
            beside.sleep(SEC * 20).await;
            beside.cluster().remove("nodes", "", "n");
        });
        world.calm();
        let there = || world.cluster().get("nodes", "", "n").is_some();
        world.eventually(SEC * 10, "the node is there", there).await
    });
    let why = sim::trace(&scenario, 0).expect_err("it fails");
    assert!(why.contains("it was so no more"), "{why}");
}

#[test]
fn a_process_that_fails_when_it_is_asked_to_stop_is_noticed() {
    let scenario = process(None, |process| async move {
        process.stop.cancelled().await;
        Err("I do not like to".to_owned())
    });
    let why = sim::trace(&scenario, 0).expect_err("it fails");
    assert!(why.contains("fails when it is asked to stop: I do not like to"), "{why}");
}

#[test]
fn a_process_that_is_slow_to_stop_is_noticed() {
    let scenario = process(None, |process| async move {
        process.stop.cancelled().await;
        tokio::time::sleep(SEC * 30).await;
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("it fails");
    assert!(why.contains("needs 30s to stop"), "{why}");
}

#[test]
fn requests_without_end_that_take_no_time_are_noticed() {
    let scenario = process(None, |process| async move {
        loop {
            ask(&process.transport, Method::GET, "/api/v1/nodes", &Value::Null).await;
        }
    });
    let why = sim::trace(&scenario, 0).expect_err("it fails");
    assert!(why.contains("at one instant"), "{why}");
}

#[test]
fn an_elected_process_that_never_asked_for_its_lease_may_not_write() {
    let scenario = process(Some(LEASE), |process| async move {
        ask(&process.transport, Method::POST, "/api/v1/nodes", &node("early")).await;
        process.stop.cancelled().await;
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("it fails");
    assert!(why.contains("before its term"), "{why}");
}

#[test]
fn a_lease_that_is_no_election_gives_no_term() {
    let scenario = process(Some(LEASE), |process| async move {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "other" },
            "spec": { "holderIdentity": process.name },
        });
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        ask(&process.transport, Method::POST, leases, &lease).await;
        process.stop.cancelled().await;
        Ok(())
    });
    let why = sim::trace(&scenario, 0).expect_err("it fails");
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

async fn ask(transport: &Transport, method: Method, path: &str, body: &Value) {
    let body = if body.is_null() { Body::default() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let Ok(request) = request.body(body) else { return };
    let _ = transport.clone().oneshot(request).await;
}

fn make(world: &World, name: &str) {
    world.cluster().create(node(name));
}

fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}
