use serde_json::{Value, json};

use super::*;
use crate::script::PREFIX;

pub(crate) fn at(second: f64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + Duration::from_secs_f64(second)
}

fn pod(spec: Value, lines: &[(&str, &str)]) -> Pod {
    let annotations: serde_json::Map<String, Value> =
        lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    let mut pod = json!({ "metadata": { "name": "p", "uid": "u", "annotations": annotations }, "spec": spec });
    if pod["spec"]["containers"].is_null() {
        pod["spec"]["containers"] = json!([{ "name": "main" }]);
    }
    serde_json::from_value(pod).unwrap()
}

fn begin(pod: &Pod) -> Sandbox {
    let mut sandbox = Sandbox::new(pod, Script::of(&pod.metadata).unwrap(), at(0.0));
    sandbox.observe(pod, at(0.0));
    sandbox
}

fn deleted(pod: &Pod, grace: i64) -> Pod {
    let mut pod = pod.clone();
    pod.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod
}

/// One word for each container: `i` idle, `w` waiting, `r` running, or an exit code; then the number of restarts.
fn summary(sandbox: &Sandbox) -> String {
    let one = |it: &Container| {
        let state = match it.state {
            State::Idle => "i".to_owned(),
            State::Waiting { .. } => "w".to_owned(),
            State::Running { .. } => "r".to_owned(),
            State::Ended(Exit { unknown: true, .. }) => "?".to_owned(),
            State::Ended(exit) => exit.code.to_string(),
        };
        if it.restarts == 0 { state } else { format!("{state}*{}", it.restarts) }
    };
    sandbox.containers.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Asserts the containers and the phase of a pod at each given second. Nothing may change between two deadlines.
#[track_caller]
fn check(name: &str, pod: &Pod, story: &[(f64, &str, &str)]) -> Sandbox {
    let mut sandbox = begin(pod);
    for (second, containers, phase) in story {
        sandbox.observe(pod, at(*second));
        assert_eq!((summary(&sandbox).as_str(), sandbox.phase()), (*containers, *phase), "{name}, second {second}");
    }
    sandbox
}

const NEVER: fn() -> Value = || json!({ "restartPolicy": "Never" });
const ON_FAILURE: fn() -> Value = || json!({ "restartPolicy": "OnFailure" });

#[test]
fn pod_follows_its_restart_policy_and_script() {
    type Row<'a> = (&'a str, Value, &'a [(&'a str, &'a str)], &'a [(f64, &'a str, &'a str)]);
    let two = json!({ "restartPolicy": "Never", "containers": [{ "name": "a" }, { "name": "b" }] });
    let rows: Vec<Row<'_>> = vec![
        ("without a script it runs for ever", json!({}), &[], &[(0.0, "r", "Running"), (9e6, "r", "Running")]),
        ("creating takes time", json!({}), &[("start-after", "2s")], &[(1.9, "w", "Pending"), (2.0, "r", "Running")]),
        ("ends well", NEVER(), &[("run-for", "3s")], &[(2.9, "r", "Running"), (3.0, "0", "Succeeded")]),
        ("ends badly", NEVER(), &[("exit-code", "3")], &[(0.9, "r", "Running"), (1.0, "3", "Failed")]),
        (
            "OnFailure does not restart after exit code 0",
            ON_FAILURE(),
            &[("run-for", "1s")],
            &[(1.0, "0", "Succeeded"), (99.0, "0", "Succeeded")],
        ),
        (
            "crashes are restarted: at once, after ten seconds, after twenty",
            ON_FAILURE(),
            &[("run-for", "1s"), ("crashes", "3")],
            &[
                (1.0, "r*1", "Running"),
                (2.0, "w*1", "Running"),
                (11.9, "w*1", "Running"),
                (12.0, "r*2", "Running"),
                (13.0, "w*2", "Running"),
                (33.0, "r*3", "Running"),
                (34.0, "0*3", "Succeeded"),
            ],
        ),
        (
            "Always restarts after exit code 0 too",
            json!({}),
            &[("run-for", "1s")],
            &[(1.0, "r*1", "Running"), (2.0, "w*1", "Running")],
        ),
        (
            "a shorter crash loop on demand",
            json!({}),
            &[("run-for", "1s"), ("backoff", "1s")],
            &[(2.0, "w*1", "Running"), (3.0, "r*2", "Running"), (4.0, "w*2", "Running"), (6.0, "r*3", "Running")],
        ),
        (
            "all containers must exit with 0",
            two.clone(),
            &[("a.run-for", "1s"), ("b.run-for", "2s"), ("b.exit-code", "1")],
            &[(1.0, "0 r", "Running"), (2.0, "0 1", "Failed")],
        ),
        (
            "a container that hangs keeps the pod running",
            two,
            &[("a.run-for", "1s"), ("b.hang", "true")],
            &[(1.0, "0 r", "Running"), (9e5, "0 r", "Running")],
        ),
    ];
    for (name, spec, lines, story) in rows {
        check(name, &pod(spec, lines), story);
    }
}

#[test]
fn init_containers_run_first_one_by_one() {
    let spec = |policy: &str| {
        json!({
            "restartPolicy": policy,
            "initContainers": [{ "name": "one" }, { "name": "two" }],
            "containers": [{ "name": "main" }],
        })
    };
    let slow = [("one.run-for", "1s"), ("two.run-for", "1s")];
    let story = [(0.5, "r i i", "Pending"), (1.0, "0 r i", "Pending"), (2.0, "0 0 r", "Running")];
    check("in order", &pod(spec("Always"), &slow), &story);
    let failing = [("one.exit-code", "1"), ("one.run-for", "1s")];
    let story = [(1.0, "1 i i", "Failed"), (99.0, "1 i i", "Failed")];
    check("never: a failure ends the pod", &pod(spec("Never"), &failing), &story);
    let healing = [("one.crashes", "1"), ("one.run-for", "1s")];
    let story = [(1.0, "r*1 i i", "Pending"), (2.0, "0*1 0 r", "Running")];
    check("else it is tried again", &pod(spec("OnFailure"), &healing), &story);
}

#[test]
fn sidecar_starts_before_the_others_and_ends_after_them() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{ "name": "side", "restartPolicy": "Always" }, { "name": "init" }],
        "containers": [{ "name": "main" }],
    });
    let lines = [("init.run-for", "1s"), ("run-for", "2s"), ("side.stop-after", "3s")];
    let story = [
        (0.5, "r r i", "Pending"),
        (1.0, "r 0 r", "Running"),
        (3.0, "r 0 0", "Running"),
        (5.9, "r 0 0", "Running"),
        (6.0, "143 0 0", "Succeeded"),
    ];
    check("a sidecar", &pod(spec, &lines), &story);
}

#[test]
fn deleted_pod_ends_within_its_grace() {
    type Row<'a> = (&'a str, Value, &'a [(&'a str, &'a str)], i64, &'a [(f64, &'a str)]);
    let rows: Vec<Row<'_>> = vec![
        ("ends at SIGTERM at once", json!({}), &[], 30, &[(10.0, "143")]),
        ("needs two seconds after SIGTERM", json!({}), &[("stop-after", "2s")], 30, &[(11.9, "r"), (12.0, "143")]),
        ("is killed when the time is over", json!({}), &[("stop-after", "99s")], 5, &[(14.9, "r"), (15.0, "137")]),
        ("ignores SIGTERM", json!({}), &[("hang", "true")], 5, &[(14.9, "r"), (15.0, "137")]),
        ("ends by itself meanwhile", NEVER(), &[("run-for", "12s"), ("stop-after", "9s")], 30, &[(12.0, "0")]),
        ("is killed at once without grace", json!({}), &[("stop-after", "9s")], 0, &[(10.0, "137")]),
        ("was not even created", json!({}), &[("start-after", "60s")], 30, &[(10.0, "?")]),
        (
            "is not restarted out of its crash loop",
            json!({}),
            &[("run-for", "6s"), ("exit-code", "9"), ("backoff", "60s")],
            30,
            &[(12.5, "9*1"), (999.0, "9*1")],
        ),
    ];
    for (name, spec, lines, grace, story) in rows {
        let pod = pod(spec, lines);
        let mut sandbox = begin(&pod);
        let asked = if name.contains("loop") { 12.5 } else { 10.0 };
        let pod = deleted(&pod, grace);
        sandbox.observe(&pod, at(asked));
        for (second, want) in story {
            sandbox.observe(&pod, at(*second));
            assert_eq!(summary(&sandbox), *want, "{name}, second {second}");
        }
        assert!(sandbox.is_over(), "{name}");
    }
}

#[test]
fn grace_can_be_shortened_and_never_grows() {
    let hanging = pod(json!({}), &[("hang", "true")]);
    let mut sandbox = begin(&hanging);
    sandbox.observe(&deleted(&hanging, 100), at(10.0));
    sandbox.observe(&deleted(&hanging, 5), at(11.0));
    assert_eq!(sandbox.next_deadline(at(11.0)), Some(at(16.0)));
    sandbox.observe(&deleted(&hanging, 500), at(12.0));
    assert_eq!(sandbox.next_deadline(at(12.0)), Some(at(16.0)));
}

#[test]
fn pod_past_its_active_deadline_fails_regardless_of_its_containers() {
    let mut spec = ON_FAILURE();
    spec["activeDeadlineSeconds"] = json!(5);
    spec["terminationGracePeriodSeconds"] = json!(2);
    let late = check(
        "asked to end, then killed",
        &pod(spec.clone(), &[("hang", "true")]),
        &[(4.9, "r", "Running"), (5.0, "r", "Running"), (6.9, "r", "Running"), (7.0, "137", "Failed")],
    );
    assert_eq!(late.ending.map(|it| it.reason), Some(EndReason::Deadline));
    check("in time", &pod(spec, &[("run-for", "5s")]), &[(5.0, "0", "Succeeded")]);
}

#[test]
fn readiness_has_its_own_deadline() {
    let slow = pod(json!({}), &[("ready-after", "3s")]);
    let mut sandbox = begin(&slow);
    assert_eq!(sandbox.next_deadline(at(0.0)), Some(at(3.0)));
    assert!(!sandbox.containers[0].is_ready(at(2.9)));
    sandbox.observe(&slow, at(3.0));
    assert!(sandbox.containers[0].is_ready(at(3.0)));
    assert_eq!(sandbox.next_deadline(at(3.0)), None);
    assert!(!begin(&pod(json!({}), &[("hang", "true")])).containers[0].is_ready(at(9e5)));
}

#[test]
fn late_observation_gives_same_state_as_frequent_ones() {
    let lines = [("run-for", "700ms"), ("crashes", "4"), ("backoff", "300ms"), ("start-after", "100ms")];
    let pod = pod(ON_FAILURE(), &lines);
    let (mut often, mut late) = (begin(&pod), begin(&pod));
    for tenth in 0..200 {
        often.observe(&pod, at(f64::from(tenth) / 10.0));
    }
    late.observe(&pod, at(19.9));
    assert_eq!(often, late);
    assert_eq!(summary(&late), "0*4");
}

#[test]
fn recovered_pod_continues_from_its_status() {
    let mut pod = pod(ON_FAILURE(), &[("run-for", "10s"), ("crashes", "2")]);
    pod.status = serde_json::from_value(json!({
        "phase": "Running", "startTime": "2027-01-15T08:00:00Z",
        "containerStatuses": [{ "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 1,
            "state": { "running": { "startedAt": "2027-01-15T08:00:20Z" } } }],
    }))
    .unwrap();
    let mut sandbox = Sandbox::recovered(&pod, Script::of(&pod.metadata).unwrap(), at(25.0));
    sandbox.observe(&pod, at(25.0));
    assert_eq!(summary(&sandbox), "r*1");
    sandbox.observe(&pod, at(30.0));
    assert_eq!(summary(&sandbox), "w*1", "the second crash backs off");
}

#[test]
fn recovered_pod_with_init_containers_continues_too() {
    let running = json!({ "running": { "startedAt": "2027-01-15T08:00:20Z" } });
    let over = |code: i32| {
        json!({ "terminated": { "exitCode": code, "startedAt": "2027-01-15T08:00:10Z",
            "finishedAt": "2027-01-15T08:00:20Z" } })
    };
    let initializing = json!({ "waiting": { "reason": "PodInitializing" } });
    let loops = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let never = || json!({});
    // For each container (two are init containers): its state, its last state, its restarts. Then the summary at second
    // 25, when the node is back, and later.
    type StoredState = (Value, Value, i32);
    type Row<'a> = (&'a str, [StoredState; 3], &'a str, (f64, &'a str));
    let rows: Vec<Row<'_>> = vec![
        (
            "the second init container had not begun",
            [(over(0), never(), 0), (initializing.clone(), never(), 0), (initializing.clone(), never(), 0)],
            "0 r i",
            (30.0, "0 0 r"),
        ),
        (
            "the first init container runs",
            [(running.clone(), never(), 0), (initializing.clone(), never(), 0), (initializing.clone(), never(), 0)],
            "0 r i",
            (30.0, "0 0 r"),
        ),
        (
            "all were done, the main container had not begun",
            [(over(0), never(), 0), (over(0), never(), 0), (initializing.clone(), never(), 0)],
            "0 0 r",
            (30.0, "0 0 r"),
        ),
        (
            "the main container waits in its crash loop",
            [(over(0), never(), 0), (over(0), never(), 0), (loops.clone(), over(1), 1)],
            "0 0 w*1",
            (30.0, "0 0 r*2"),
        ),
        (
            "an init container waits in its crash loop",
            [(loops, over(1), 1), (initializing.clone(), never(), 0), (initializing.clone(), never(), 0)],
            "w*1 i i",
            (30.0, "r*2 i i"),
        ),
        (
            "an init container had crashed, and was started again meanwhile",
            [(over(0), never(), 0), (over(1), never(), 0), (initializing, never(), 0)],
            "0 0*1 r",
            (29.0, "0 0*1 r"),
        ),
        (
            "the main container runs",
            [(over(0), never(), 0), (over(0), never(), 0), (running, over(1), 1)],
            "0 0 r*1",
            (99.0, "0 0 r*1"),
        ),
    ];
    let spec = json!({
        "initContainers": [{ "name": "one" }, { "name": "two" }], "containers": [{ "name": "main" }],
    });
    for (name, stored, recovered, (second, later)) in rows {
        let mut pod = pod(spec.clone(), &[("one.run-for", "4s"), ("two.run-for", "4s")]);
        let statuses: Vec<Value> = ["one", "two", "main"]
            .into_iter()
            .zip(stored)
            .map(|(name, (state, last, restarts))| {
                json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": restarts,
                    "state": state, "lastState": last })
            })
            .collect();
        pod.status = serde_json::from_value(json!({
            "phase": "Pending", "startTime": "2027-01-15T08:00:00Z",
            "initContainerStatuses": statuses[..2], "containerStatuses": statuses[2..],
        }))
        .unwrap();
        let mut sandbox = Sandbox::recovered(&pod, Script::of(&pod.metadata).unwrap(), at(25.0));
        sandbox.observe(&pod, at(25.0));
        assert_eq!(summary(&sandbox), recovered, "{name}");
        sandbox.observe(&pod, at(second));
        assert_eq!(summary(&sandbox), later, "{name}, second {second}");
    }
}

#[test]
fn each_event_is_reported_once() {
    let crashing = pod(json!({}), &[("run-for", "1s"), ("exit-code", "1")]);
    let mut sandbox = begin(&crashing);
    sandbox.observe(&crashing, at(2.0));
    sandbox.observe(&deleted(&crashing, 0), at(12.5));
    let container = || "main".to_owned();
    let started = || PodEvent::Started { container: container() };
    let events = std::mem::take(&mut sandbox.events_to_report);
    let killing = PodEvent::Killing { container: container() };
    assert_eq!(events, [started(), started(), PodEvent::BackOff { container: container() }, started(), killing]);
}
