use serde::Deserialize;

use crate::{Atom, time::Seconds};

/// The status of one container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStatus {
    /// The container's name.
    pub name: Atom,
    /// The role of the container.
    pub role: ContainerRole,
    /// The restart count.
    pub restarts: i32,
    /// The state of the container.
    pub state: ContainerState,
}

/// The role of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerRole {
    /// Runs to completion before the regular containers start.
    Init,
    /// An init container with restart policy `Always`. It runs as long as the regular containers.
    Sidecar,
    /// A regular container.
    Regular,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerState {
    /// It has not started. Also the state if none is given.
    Waiting {
        /// For example `CrashLoopBackOff`.
        reason: Atom,
    },
    /// It is running.
    Running {
        /// When it started, in seconds since the epoch.
        started: Option<i64>,
    },
    /// It has terminated.
    Terminated {
        /// 0 means success.
        exit_code: i32,
        /// For example `OOMKilled`.
        reason: Atom,
        /// When it finished, in seconds since the epoch.
        finished: Option<i64>,
    },
}

/// `containerStatuses[]` in the JSON of the API.
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
    /// Adds the role, which depends on the container's name in the spec.
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
