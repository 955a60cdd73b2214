use clock::Timestamp;
use serde_json::{Value, json};

use super::{
    AGE, Column, NAME, NONE, Printer, age, ages, cells, condition, list_at, name, number_at, or, text, text_at, wide,
};
use crate::meta;

const COLUMNS: &[Column] = &[
    NAME,
    text("Ready"),
    text("Status"),
    text("Restarts"),
    AGE,
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];

pub(super) fn printer(plural: &str) -> Option<Printer> {
    (plural == "pods").then_some(Printer { columns: COLUMNS, cells })
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let seen = look_at(pod);
    let restarts = match seen.last_finish {
        Some(at) if seen.restarts > 0 => format!("{} ({} ago)", seen.restarts, ages::between(at, now)),
        _ => seen.restarts.to_string(),
    };
    let ip = list_at(pod, "status.podIPs").first().map_or("", |it| text_at(it, "ip"));
    cells![
        name(pod),
        format!("{}/{}", seen.ready, seen.containers),
        status(pod, &seen),
        restarts,
        age(pod, now),
        or(ip, NONE),
        or(text_at(pod, "spec.nodeName"), NONE),
        or(text_at(pod, "status.nominatedNodeName"), NONE),
        readiness_gates(pod),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list_at(pod, "spec.readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let open = gates.iter().filter(|it| condition(pod, text_at(it, "conditionType")) == "True").count();
    format!("{open}/{}", gates.len())
}

/// The state of all containers of a pod together.
#[derive(Default)]
struct Seen {
    containers: usize,
    ready: usize,
    restarts: i64,
    last_finish: Option<Timestamp>,
    /// What replaces the phase.
    reason: Option<String>,
    /// A container runs and is ready.
    running: bool,
    /// The reason of the first container that failed.
    failure: Option<String>,
}

impl Seen {
    fn count_restarts(&mut self, status: &Value) {
        self.restarts += number_at(status, "restartCount");
        let finished = ages::parse(meta::at(status, "lastState.terminated.finishedAt"));
        self.last_finish = self.last_finish.max(finished);
    }
}

fn look_at(pod: &Value) -> Seen {
    let restartable: Vec<&str> = list_at(pod, "spec.initContainers")
        .iter()
        .filter(|it| it["restartPolicy"] == "Always")
        .map(|it| text_at(it, "name"))
        .collect();
    let is_restartable = |status: &Value| restartable.contains(&text_at(status, "name"));
    let mut seen = Seen { containers: list_at(pod, "spec.containers").len() + restartable.len(), ..Seen::default() };
    let mut initializing = false;
    // Restarts of init containers count until the main containers start; those of sidecars count afterwards too.
    let mut lasting = Seen::default();
    for (at, status) in list_at(pod, "status.initContainerStatuses").iter().enumerate() {
        seen.count_restarts(status);
        if is_restartable(status) {
            lasting.count_restarts(status);
        }
        let terminated = &status["state"]["terminated"];
        if terminated.is_object() && number_at(terminated, "exitCode") == 0 {
            continue;
        }
        if is_restartable(status) && status["started"] == true {
            seen.ready += usize::from(status["ready"] == true);
            continue;
        }
        seen.reason = Some(init_reason(pod, status, at));
        initializing = true;
        break;
    }
    if !initializing || condition(pod, "Initialized") == "True" {
        (seen.restarts, seen.last_finish) = (lasting.restarts, lasting.last_finish);
        look_at_containers(pod, &mut seen);
    }
    seen
}

/// Why an init container delays the main containers.
fn init_reason(pod: &Value, status: &Value, at: usize) -> String {
    let (terminated, waiting) = (&status["state"]["terminated"], text_at(status, "state.waiting.reason"));
    if terminated.is_object() {
        return format!("Init:{}", ended(terminated));
    }
    if !matches!(waiting, "" | "PodInitializing") {
        return format!("Init:{waiting}");
    }
    format!("Init:{at}/{}", list_at(pod, "spec.initContainers").len())
}

/// The main containers, last to first; each one with a reason overrides the previous.
fn look_at_containers(pod: &Value, seen: &mut Seen) {
    for status in list_at(pod, "status.containerStatuses").iter().rev() {
        seen.count_restarts(status);
        let (terminated, waiting) = (&status["state"]["terminated"], text_at(status, "state.waiting.reason"));
        if !waiting.is_empty() {
            seen.reason = Some(waiting.to_owned());
        } else if terminated.is_object() {
            let reason = ended(terminated);
            if number_at(terminated, "exitCode") != 0 {
                seen.failure = Some(reason.clone());
            }
            seen.reason = Some(reason);
        } else if status["ready"] == true && status["state"]["running"].is_object() {
            seen.running = true;
            seen.ready += 1;
        }
    }
}

/// How a container ended.
fn ended(terminated: &Value) -> String {
    match (text_at(terminated, "reason"), number_at(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number_at(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn status(pod: &Value, seen: &Seen) -> String {
    let phase = text_at(pod, "status.phase");
    let own = text_at(pod, "status.reason");
    if meta::is_deleting(pod) && own == "NodeLost" {
        return "Unknown".into();
    }
    if meta::is_deleting(pod) && !matches!(phase, "Succeeded" | "Failed") {
        return "Terminating".into();
    }
    let gated = list_at(pod, "status.conditions")
        .iter()
        .any(|it| it["type"] == "PodScheduled" && it["reason"] == "SchedulingGated");
    match seen.reason.as_deref() {
        Some("Completed") if seen.running && condition(pod, "Ready") == "True" => "Running".into(),
        Some("Completed") => match &seen.failure {
            Some(failure) => failure.clone(),
            None if seen.running => "NotReady".into(),
            None => "Completed".into(),
        },
        Some(reason) => reason.to_owned(),
        None if gated => "SchedulingGated".into(),
        None => or(own, phase).to_owned(),
    }
}

/// A finished pod has a condition in its row.
pub(super) fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text_at(pod, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }]))
}
