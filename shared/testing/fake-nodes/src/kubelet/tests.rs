use serde_json::{Value, json};

use super::*;
use crate::script::PREFIX;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn pod(uid: &str, lines: &[(&str, &str)]) -> Arc<Pod> {
    let annotations: serde_json::Map<String, Value> =
        lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    let pod = json!({
        "metadata": { "name": "p", "namespace": "n", "uid": uid, "annotations": annotations },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main" }] },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn with(pod: &Arc<Pod>, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let mut value = serde_json::to_value(&**pod).unwrap();
    change(&mut value);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn deleted(pod: &Arc<Pod>, grace: i64) -> Arc<Pod> {
    with(pod, |it| {
        it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        it["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    })
}

fn kubelet() -> Kubelet {
    Kubelet::new("10.64.1".into(), "10.128.0.1".into(), None)
}

/// What is due, without events, one text each. Every write counts as successful.
fn run(kubelet: &mut Kubelet, pods: &[&Arc<Pod>], second: i64) -> Vec<String> {
    let pods: Vec<Arc<Pod>> = pods.iter().map(|it| (*it).clone()).collect();
    let mut words = Vec::new();
    for it in kubelet.decide(&pods, at(second)) {
        match it {
            Action::WriteStatus { pod, status } => {
                let ip = status.pod_ip.clone().unwrap_or_default();
                words.push(format!("{} {} {ip}", uid(&pod), status.phase.clone().unwrap_or_default()));
                kubelet.on_written(&pod, *status, None);
            }
            Action::RemovePod { pod } => {
                words.push(format!("{} remove", uid(&pod)));
                kubelet.on_removed(&pod);
            }
            Action::MakeSilent { back_after } => words.push(format!("silent {back_after:?}")),
            Action::ReportEvent { .. } => {}
        }
    }
    words
}

#[test]
fn status_is_written_only_when_it_changes() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[("run-for", "5s")]));
    assert_eq!(run(&mut kubelet, &[&pod], 0), ["a Running 10.64.1.2"]);
    assert!(run(&mut kubelet, &[&pod], 4).is_empty());
    assert_eq!(kubelet.next_deadline(at(4)), Some(at(5)));
    assert_eq!(run(&mut kubelet, &[&pod], 5), ["a Succeeded 10.64.1.2"]);
    assert!(run(&mut kubelet, &[&pod], 6).is_empty());
    assert_eq!(kubelet.next_deadline(at(6)), None);
}

#[test]
fn deleted_pod_is_removed_after_its_last_status() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[("stop-after", "3s")]));
    run(&mut kubelet, &[&pod], 0);
    let gone = deleted(&pod, 30);
    assert!(run(&mut kubelet, &[&gone], 10).is_empty());
    assert_eq!(run(&mut kubelet, &[&gone], 13), ["a Failed 10.64.1.2"]);
    assert_eq!(run(&mut kubelet, &[&gone], 13), ["a remove"]);
    assert!(run(&mut kubelet, &[&gone], 14).is_empty(), "a finalizer may hold it: only one delete is sent");
}

#[test]
fn pod_deleted_without_grace_is_not_removed_again() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[]));
    run(&mut kubelet, &[&pod], 0);
    let held = deleted(&pod, 0);
    assert_eq!(run(&mut kubelet, &[&held], 1), ["a Failed 10.64.1.2"]);
    assert!(run(&mut kubelet, &[&held], 1).is_empty());
}

#[test]
fn successor_of_same_name_starts_without_state() {
    let (mut kubelet, first, second) = (kubelet(), pod("a", &[("run-for", "5s")]), pod("b", &[("run-for", "5s")]));
    run(&mut kubelet, &[&first], 0);
    assert_eq!(run(&mut kubelet, &[&second], 9), ["b Running 10.64.1.2"], "it gets the address that is free again");
    assert_eq!(kubelet.next_deadline(at(9)), Some(at(14)));
}

#[test]
fn refused_call_is_repeated_after_one_second() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[]));
    assert!(!kubelet.decide(std::slice::from_ref(&pod), at(0)).is_empty());
    kubelet.on_refused(&pod, at(0));
    assert!(run(&mut kubelet, &[&pod], 0).is_empty());
    assert_eq!(kubelet.next_deadline(at(0)), Some(at(1)));
    assert_eq!(run(&mut kubelet, &[&pod], 1), ["a Running 10.64.1.2"]);
}

#[test]
fn invalid_script_fails_the_pod_with_its_line() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[("run-for", "soon")]));
    let todo = kubelet.decide(std::slice::from_ref(&pod), at(0));
    let [Action::WriteStatus { status, .. }] = &todo[..] else { panic!("{todo:?}") };
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("BadScript")));
    assert!(status.message.as_ref().unwrap().contains("run-for: \"soon\""), "{status:?}");
    let failed = with(&deleted(&pod, 30), |it| it["status"]["phase"] = json!("Failed"));
    assert_eq!(run(&mut kubelet, &[&failed], 1), ["a remove"]);
}

#[test]
fn pod_that_ended_before_the_start_is_left_until_it_is_deleted() {
    let mut kubelet = kubelet();
    let ended = with(&pod("a", &[]), |it| it["status"]["phase"] = json!("Succeeded"));
    assert!(run(&mut kubelet, &[&ended], 0).is_empty());
    let (gone, nothing) = (deleted(&ended, 30), Vec::<String>::new());
    assert_eq!(kubelet.decide(std::slice::from_ref(&gone), at(0)).len(), 1);
    kubelet.on_refused(&gone, at(0));
    assert_eq!(run(&mut kubelet, &[&gone], 0), nothing);
    assert_eq!(kubelet.next_deadline(at(0)), Some(at(1)), "a refused call is not repeated at once");
    assert_eq!(run(&mut kubelet, &[&gone], 1), ["a remove"]);
    assert_eq!(
        run(&mut kubelet, &[&gone], 2),
        nothing,
        "only one delete is sent, though the watch still shows the pod"
    );
    run(&mut kubelet, &[], 3);
    assert!(kubelet.ended.is_empty());
}

/// The pod as the server has stored it, with a version and a status.
fn stored(pod: &Arc<Pod>, version: &str, status: &PodStatus, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    with(pod, |it| {
        it["metadata"]["resourceVersion"] = json!(version);
        it["status"] = json!(status);
        change(it);
    })
}

#[test]
fn status_changed_by_another_client_is_written_again() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[]));
    let first = stored(&pod, "1", &PodStatus::default(), |_| {});
    let todo = kubelet.decide(std::slice::from_ref(&first), at(0));
    let Some(Action::WriteStatus { status, .. }) = todo.last() else { panic!("{todo:?}") };
    kubelet.on_written(&first, (**status).clone(), Some("3".to_owned()));
    let nothing = Vec::<String>::new();
    let ready = |status: &'static str| {
        move |it: &mut Value| {
            let conditions = it["status"]["conditions"].as_array_mut().unwrap();
            conditions.iter_mut().filter(|it| it["type"] == "Ready").for_each(|it| it["status"] = json!(status));
        }
    };
    assert_eq!(run(&mut kubelet, &[&first], 1), nothing, "our own write is not yet seen");
    assert_eq!(run(&mut kubelet, &[&stored(&pod, "3", status, |_| {})], 1), nothing);
    let spoiled = stored(&pod, "4", status, ready("False"));
    assert_eq!(run(&mut kubelet, &[&spoiled], 2), ["a Running 10.64.1.2"]);
    assert_eq!(run(&mut kubelet, &[&spoiled], 2), nothing, "it is checked once per version");
    let foreign = stored(&pod, "5", status, |it| {
        let condition = json!({ "type": "DisruptionTarget", "status": "True" });
        it["status"]["conditions"].as_array_mut().unwrap().insert(0, condition);
    });
    assert_eq!(run(&mut kubelet, &[&foreign], 3), nothing, "a condition of another client is left alone");
    let failed = stored(&pod, "6", status, |it| it["status"]["phase"] = json!("Failed"));
    assert_eq!(run(&mut kubelet, &[&failed], 4), nothing, "a pod that has ended is never changed back");
}

#[test]
fn rejection_is_written_once_when_the_watch_is_late() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[("run-for", "soon")]));
    assert_eq!(run(&mut kubelet, &[&pod], 0), ["a Failed "]);
    assert!(run(&mut kubelet, &[&pod], 0).is_empty());
}

#[test]
fn script_makes_the_node_silent_once() {
    let (mut kubelet, pod) = (kubelet(), pod("a", &[("node-lost-after", "5s"), ("node-back-after", "9s")]));
    run(&mut kubelet, &[&pod], 0);
    assert_eq!(kubelet.next_deadline(at(0)), Some(at(5)));
    assert_eq!(run(&mut kubelet, &[&pod], 5), ["silent Some(9s)"]);
    assert!(run(&mut kubelet, &[&pod], 20).is_empty());
}
