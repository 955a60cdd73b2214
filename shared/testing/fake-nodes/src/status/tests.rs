use serde_json::{Value, json};

use super::*;
use crate::script::{PREFIX, Script};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn pod(policy: &str, lines: &[(&str, &str)]) -> Pod {
    let annotations: serde_json::Map<String, Value> =
        lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "n", "uid": "u", "generation": 3, "annotations": annotations },
        "spec": {
            "restartPolicy": policy,
            "initContainers": [{ "name": "init", "image": "i:1" }],
            "containers": [{ "name": "main", "image": "m:1" }],
        },
    }))
    .unwrap()
}

/// The status at a second, as the JSON that the server gets.
fn status_at(pod: &Pod, second: i64) -> Value {
    let mut sandbox = Sandbox::new(pod, Script::of(&pod.metadata).unwrap(), at(0));
    sandbox.observe(pod, at(0));
    sandbox.observe(pod, at(second));
    let addresses = Addresses { host: "10.128.0.1".into(), pod: "10.64.1.2".into() };
    serde_json::to_value(status(pod, &sandbox, &addresses, None, at(second))).unwrap()
}

fn condition(status: &Value, name: &str) -> (String, String) {
    let all = status["conditions"].as_array().unwrap();
    let found = all.iter().find(|it| it["type"] == name).unwrap();
    (found["status"].as_str().unwrap().into(), found["reason"].as_str().unwrap_or_default().into())
}

#[test]
fn running_pod_has_the_status_of_a_kubelet() {
    let status = status_at(&pod("Always", &[]), 5);
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["observedGeneration"], 3);
    assert_eq!((&status["hostIP"], &status["podIPs"][0]["ip"]), (&json!("10.128.0.1"), &json!("10.64.1.2")));
    assert_eq!(status["startTime"], "2027-01-15T08:00:00Z");
    let main = &status["containerStatuses"][0];
    assert_eq!(main["state"], json!({ "running": { "startedAt": "2027-01-15T08:00:00Z" } }));
    assert_eq!((&main["ready"], &main["started"], &main["image"]), (&json!(true), &json!(true), &json!("m:1")));
    let id = main["containerID"].as_str().unwrap();
    assert!(id.starts_with("containerd://") && id.len() == "containerd://".len() + 64, "{id}");
    let init = &status["initContainerStatuses"][0];
    assert_eq!(init["state"]["terminated"]["reason"], "Completed");
    assert_eq!((&init["ready"], &init["started"]), (&json!(true), &json!(false)));
    for name in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&status, name).0, "True", "{name}");
    }
}

#[test]
fn conditions_name_what_is_missing() {
    let of = |lines: &[(&str, &str)], second| {
        let status = status_at(&pod("OnFailure", lines), second);
        ["Initialized", "ContainersReady", "Ready"].map(|it| condition(&status, it)).map(|(a, b)| format!("{a} {b}"))
    };
    let unready = "False ContainersNotReady";
    assert_eq!(of(&[("init.run-for", "9s")], 1), ["False ContainersNotInitialized", unready, unready]);
    assert_eq!(of(&[("ready-after", "9s")], 1), ["True ", unready, unready]);
    assert_eq!(of(&[("ready-after", "9s")], 9), ["True ", "True ", "True "]);
    let ended = "False PodCompleted";
    assert_eq!(of(&[("run-for", "1s")], 1), ["True PodCompleted", ended, ended]);
}

#[test]
fn waiting_containers_have_a_reason() {
    let waiting = |lines: &[(&str, &str)], second| {
        let status = status_at(&pod("Always", lines), second);
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        (waiting["reason"].as_str().unwrap().to_owned(), waiting["message"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(waiting(&[("init.run-for", "9s")], 1).0, "PodInitializing");
    assert_eq!(waiting(&[("start-after", "2s")], 3).0, "ContainerCreating");
    let (reason, message) = waiting(&[("exit-code", "1")], 2);
    assert_eq!(reason, "CrashLoopBackOff");
    assert_eq!(message, "back-off 10s restarting failed container=main pod=p_n(u)");
}

#[test]
fn restart_moves_the_previous_run_to_the_last_state() {
    let status = status_at(&pod("Always", &[("exit-code", "7"), ("run-for", "3s")]), 4);
    let main = &status["containerStatuses"][0];
    assert_eq!(main["restartCount"], 1);
    assert_eq!(main["lastState"]["terminated"]["exitCode"], 7);
    assert_eq!(main["lastState"]["terminated"]["finishedAt"], "2027-01-15T08:00:03Z");
    assert_ne!(main["lastState"]["terminated"]["containerID"], main["containerID"], "another run, another id");
    let before = status_at(&pod("Always", &[("exit-code", "7"), ("run-for", "3s")]), 2);
    assert_eq!(main["lastState"]["terminated"]["containerID"], before["containerStatuses"][0]["containerID"]);
}

#[test]
fn unchanged_condition_keeps_its_time() {
    let pod = pod("Always", &[("ready-after", "5s")]);
    let sandbox = |second| {
        let mut it = Sandbox::new(&pod, Script::of(&pod.metadata).unwrap(), at(0));
        it.observe(&pod, at(second));
        it
    };
    let addresses = Addresses { host: String::new(), pod: String::new() };
    let first = status(&pod, &sandbox(1), &addresses, None, at(1));
    let second = status(&pod, &sandbox(6), &addresses, Some(&first), at(6));
    let since = |name: &str| {
        let all = second.conditions.iter().flatten();
        all.into_iter().find(|it| it.type_ == name).unwrap().last_transition_time.clone().unwrap().0
    };
    assert_eq!((since("Initialized"), since("Ready")), (at(1), at(6)));
}

#[test]
fn pod_past_its_deadline_has_the_reason_once_all_containers_ended() {
    let mut pod = pod("Never", &[("stop-after", "2s")]);
    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(5);
    assert_eq!(status_at(&pod, 6)["phase"], "Running");
    let status = status_at(&pod, 7);
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")));
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
    assert_eq!(condition(&status, "Ready"), ("False".into(), "PodFailed".into()));
}

#[test]
fn unmet_readiness_gate_makes_the_pod_unready() {
    let mut pod = pod("Always", &[]);
    pod.spec.as_mut().unwrap().readiness_gates = serde_json::from_value(json!([{ "conditionType": "x" }])).unwrap();
    let shut = status_at(&pod, 1);
    assert_eq!(condition(&shut, "Ready"), ("False".into(), "ReadinessGatesNotReady".into()));
    assert_eq!(condition(&shut, "ContainersReady").0, "True");
    pod.status = serde_json::from_value(json!({ "conditions": [{ "type": "x", "status": "True" }] })).unwrap();
    assert_eq!(condition(&status_at(&pod, 1), "Ready").0, "True");
}

#[test]
fn pod_on_host_network_has_the_host_address() {
    let mut pod = pod("Always", &[]);
    pod.spec.as_mut().unwrap().host_network = Some(true);
    assert_eq!(status_at(&pod, 1)["podIP"], "10.128.0.1");
}
