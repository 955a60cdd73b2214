use serde::Deserialize;

use crate::{Atom, time::Seconds};

/// What is known of one container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: Atom,
    /// What it is for.
    pub role: ContainerRole,
    /// How often it was started again.
    pub restarts: i32,
    /// What it is doing.
    pub state: ContainerState,
}

/// What a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerRole {
    /// It runs to its end before the regular ones start.
    Init,
    /// An init container with restart policy `Always`: it runs as long as the regular ones.
    Sidecar,
    /// It does the pod's work.
    Regular,
}

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// It has not started; also where nothing is said.
    Waiting {
        /// Such as `CrashLoopBackOff`.
        reason: Atom,
    },
    /// It runs.
    Running {
        /// Since when, in seconds since the epoch.
        started: Option<i64>,
    },
    /// It has ended.
    Terminated {
        /// 0 is success.
        exit_code: i32,
        /// Such as `OOMKilled`.
        reason: Atom,
        /// When, in seconds since the epoch.
        finished: Option<i64>,
    },
}

/// `containerStatuses[]` on the wire.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireContainerStatus {
    name: Option<Atom>,
    restart_count: Option<i32>,
    state: Option<WireState>,
}

#[derive(Deserialize, Default)]
struct WireState {
    waiting: Option<WireWaiting>,
    running: Option<WireRunning>,
    terminated: Option<WireTerminated>,
}

#[derive(Deserialize, Default)]
struct WireWaiting {
    reason: Option<Atom>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRunning {
    started_at: Option<Seconds>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTerminated {
    exit_code: Option<i32>,
    reason: Option<Atom>,
    finished_at: Option<Seconds>,
}

impl WireContainerStatus {
    /// With the role that its name has in the spec.
    pub(crate) fn with_role(self, role: impl FnOnce(&Atom) -> ContainerRole) -> ContainerStatus {
        let Self { name, restart_count, state } = self;
        let name = name.unwrap_or_default();
        ContainerStatus {
            role: role(&name),
            name,
            restarts: restart_count.unwrap_or_default(),
            state: state.unwrap_or_default().into(),
        }
    }
}

impl From<WireState> for ContainerState {
    fn from(wire: WireState) -> Self {
        let WireState { waiting, running, terminated } = wire;
        if let Some(WireTerminated { exit_code, reason, finished_at }) = terminated {
            return Self::Terminated {
                exit_code: exit_code.unwrap_or_default(),
                reason: reason.unwrap_or_default(),
                finished: finished_at.map(|it| it.0),
            };
        }
        if let Some(WireRunning { started_at }) = running {
            return Self::Running { started: started_at.map(|it| it.0) };
        }
        Self::Waiting { reason: waiting.and_then(|it| it.reason).unwrap_or_default() }
    }
}
