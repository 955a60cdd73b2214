//! The pod status as a kubelet writes it.

use clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container as ContainerSpec, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::Value;

use crate::{
    sandbox::{Container, EndReason, Exit, Sandbox, State},
    script::Role,
};

/// The addresses of a pod and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) host: String,
    pub(crate) pod: String,
}

/// The whole part of the status that the kubelet owns. `before` is the last status it wrote, or that of the new pod: a
/// condition that does not change keeps its time.
pub(crate) fn status(
    pod: &Pod,
    sandbox: &Sandbox,
    addresses: &Addresses,
    before: Option<&PodStatus>,
    now: Timestamp,
) -> PodStatus {
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let statuses = |role: fn(Role) -> bool| -> Vec<ContainerStatus> {
        let ours = sandbox.containers.iter().filter(|it| role(it.role));
        ours.map(|it| container(pod, spec, it, sandbox, now)).collect()
    };
    let inits = statuses(|it| it != Role::Main);
    let phase = sandbox.phase();
    let late = sandbox.is_over() && sandbox.ending.is_some_and(|it| it.reason == EndReason::Deadline);
    let pod_ip = if spec.host_network == Some(true) { &addresses.host } else { &addresses.pod };
    PodStatus {
        observed_generation: pod.metadata.generation,
        phase: Some(phase.to_owned()),
        reason: late.then(|| "DeadlineExceeded".to_owned()),
        message: late.then(|| "Pod was active on the node longer than the specified deadline".to_owned()),
        conditions: Some(conditions(pod, sandbox, phase, before, now)),
        host_ip: Some(addresses.host.clone()),
        host_ips: Some(vec![HostIP { ip: addresses.host.clone() }]),
        pod_ip: Some(pod_ip.clone()),
        pod_ips: Some(vec![PodIP { ip: pod_ip.clone() }]),
        start_time: Some(Time(sandbox.accepted)),
        init_container_statuses: (!inits.is_empty()).then_some(inits),
        container_statuses: Some(statuses(|it| it == Role::Main)),
        ..PodStatus::default()
    }
}

/// The status that a kubelet writes for a pod that it rejects.
pub(crate) fn rejected(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodStatus {
    PodStatus {
        observed_generation: pod.metadata.generation,
        phase: Some("Failed".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        start_time: Some(Time(now)),
        ..PodStatus::default()
    }
}

/// True when `theirs` contains all of `ours`. Compared as JSON, because the server stores times in seconds.
pub(crate) fn contains_all(theirs: &PodStatus, ours: &PodStatus) -> bool {
    let [mut theirs, mut ours] = [theirs, ours].map(|it| serde_json::to_value(it).unwrap_or_default());
    // Remove the conditions, so that only the rest is compared here.
    let [all, wanted] = [&mut theirs, &mut ours].map(|it| it["conditions"].take());
    // There may be conditions of other clients between ours.
    let is_there = |it: &Value| all.as_array().is_some_and(|all| all.iter().any(|one| contains(one, it)));
    wanted.as_array().is_none_or(|wanted| wanted.iter().all(is_there)) && contains(&theirs, &ours)
}

/// The server adds defaults, such as an empty last state.
fn contains(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let is_contained =
                |(field, ours): (&String, &Value)| theirs.get(field).is_some_and(|it| contains(it, ours));
            ours.iter().all(is_contained)
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(theirs, ours)| contains(theirs, ours))
        }
        _ => theirs == ours,
    }
}

fn conditions(
    pod: &Pod,
    sandbox: &Sandbox,
    phase: &str,
    before: Option<&PodStatus>,
    now: Timestamp,
) -> Vec<PodCondition> {
    let over = sandbox.is_over();
    let unready = container_names(sandbox, |it| it.role != Role::Init && !it.is_ready(now));
    let uninitialized = container_names(sandbox, |it| it.role != Role::Main && !has_initialized(it));
    let because = match phase {
        "Succeeded" => Some(("PodCompleted", String::new())),
        "Failed" => Some(("PodFailed", String::new())),
        _ if unready.is_empty() => None,
        _ => Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))),
    };
    let gates = because.clone().or_else(|| missing_gates(pod));
    let initialized = if uninitialized.is_empty() {
        (true, (phase == "Succeeded").then(|| ("PodCompleted", String::new())))
    } else {
        let message = format!("containers with incomplete status: [{}]", uninitialized.join(" "));
        (false, Some(("ContainersNotInitialized", message)))
    };
    let states = [
        ("PodReadyToStartContainers", !over, None),
        ("Initialized", initialized.0, initialized.1),
        ("Ready", gates.is_none(), gates),
        ("ContainersReady", because.is_none(), because),
        ("PodScheduled", true, None),
    ];
    let conditions = states.into_iter().map(|(name, is_true, because)| {
        let status = if is_true { "True" } else { "False" };
        let (reason, message) = because.unzip();
        PodCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message: message.filter(|it| !it.is_empty()),
            last_transition_time: Some(since(before, name, status).unwrap_or(Time(now))),
            observed_generation: pod.metadata.generation,
            ..PodCondition::default()
        }
    });
    conditions.collect()
}

/// When a condition got its present status.
fn since(before: Option<&PodStatus>, name: &str, status: &str) -> Option<Time> {
    let conditions = before?.conditions.as_ref()?;
    let same = conditions.iter().find(|it| it.type_ == name && it.status == status)?;
    same.last_transition_time.clone()
}

/// Conditions that other clients must set before the pod is ready.
fn missing_gates(pod: &Pod) -> Option<(&'static str, String)> {
    let gates = pod.spec.as_ref()?.readiness_gates.as_ref()?;
    let conditions = || pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let is_true = |name: &str| conditions().any(|it| it.type_ == name && it.status == "True");
    let gate = gates.iter().find(|it| !is_true(&it.condition_type))?;
    let name = &gate.condition_type;
    Some(("ReadinessGatesNotReady", format!("the status of pod readiness gate {name:?} is not \"True\", but False")))
}

fn container_names(sandbox: &Sandbox, wanted: impl Fn(&Container) -> bool) -> Vec<&str> {
    sandbox.containers.iter().filter(|it| wanted(it)).map(|it| it.name.as_str()).collect()
}

fn has_initialized(container: &Container) -> bool {
    match container.state {
        State::Running { .. } => container.role == Role::Sidecar,
        State::Ended(exit) => container.role == Role::Sidecar || exit.code == 0,
        State::Waiting { .. } => container.role == Role::Sidecar && container.last.is_some(),
        State::Idle => false,
    }
}

fn container(pod: &Pod, spec: &PodSpec, it: &Container, sandbox: &Sandbox, now: Timestamp) -> ContainerStatus {
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let image = all.into_iter().find(|spec: &&ContainerSpec| spec.name == it.name).and_then(|it| it.image.clone());
    let image = image.unwrap_or_default();
    let has_run = !matches!(it.state, State::Idle) && (it.last.is_some() || !matches!(it.state, State::Waiting { .. }));
    let seen = has_run && !matches!(it.state, State::Ended(exit) if exit.unknown);
    ContainerStatus {
        name: it.name.clone(),
        image_id: if seen { format!("fake://{image}") } else { String::new() },
        image,
        container_id: seen.then(|| id(pod, &it.name, it.restarts)),
        ready: it.is_ready(now),
        started: Some(it.is_running()),
        restart_count: it.restarts.try_into().unwrap_or(i32::MAX),
        state: Some(state(pod, it, sandbox)),
        last_state: it.last.map(|exit| ended(pod, it, exit, last_run(it))),
        ..ContainerStatus::default()
    }
}

/// The number of the previous run.
fn last_run(it: &Container) -> u32 {
    if matches!(it.state, State::Waiting { .. }) { it.restarts } else { it.restarts.saturating_sub(1) }
}

fn state(pod: &Pod, it: &Container, sandbox: &Sandbox) -> ContainerState {
    let waiting = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    };
    match it.state {
        State::Waiting { backoff: Some(wait), .. } => {
            let meta = &pod.metadata;
            let text = |it: &Option<String>| it.clone().unwrap_or_default();
            let (name, namespace, uid) = (text(&meta.name), text(&meta.namespace), text(&meta.uid));
            let container = &it.name;
            let message = format!(
                "back-off {}s restarting failed container={container} pod={name}_{namespace}({uid})",
                wait.as_secs()
            );
            waiting("CrashLoopBackOff", Some(message))
        }
        State::Idle | State::Waiting { .. } => {
            let initializing = it.role == Role::Main && !sandbox.is_initialized();
            let idle = it.state == State::Idle;
            waiting(if initializing || idle { "PodInitializing" } else { "ContainerCreating" }, None)
        }
        State::Running { since } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(since)) }),
            ..ContainerState::default()
        },
        State::Ended(exit) => ended(pod, it, exit, it.restarts),
    }
}

fn ended(pod: &Pod, it: &Container, exit: Exit, run: u32) -> ContainerState {
    let reason = match exit {
        Exit { unknown: true, .. } => "ContainerStatusUnknown",
        Exit { code: 0, .. } => "Completed",
        Exit { .. } => "Error",
    };
    let lost = "The container could not be located when the pod was terminated";
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: (!exit.unknown).then(|| id(pod, &it.name, run)),
            exit_code: exit.code,
            reason: Some(reason.to_owned()),
            message: exit.unknown.then(|| lost.to_owned()),
            started_at: (!exit.unknown).then_some(Time(exit.started)),
            finished_at: (!exit.unknown).then_some(Time(exit.finished)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// An id like those of a container runtime, the same for the same run of the same container.
fn id(pod: &Pod, container: &str, run: u32) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let seed = digest(uid.bytes().chain(container.bytes()).chain(run.to_be_bytes()));
    let mut rng = fastrand::Rng::with_seed(seed);
    let words: String = (0..4).map(|_| format!("{:016x}", rng.u64(..))).collect();
    format!("containerd://{words}")
}

/// FNV-1a. It is implemented here so that it is the same on every machine.
pub(crate) fn digest(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
