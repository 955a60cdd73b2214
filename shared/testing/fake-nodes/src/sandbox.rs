//! The containers of one pod, as a state machine: its inputs are the pod and the time.

use std::time::Duration;

use clock::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::script::{Behaviour, Role, Script};

/// The longest back-off of a crash loop, as in the kubelet.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// The shortest back-off after the first, whatever the script says.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// After a run of this length the back-off starts again from the first.
const BACKOFF_RESET: Duration = Duration::from_secs(600);
/// The grace period of a pod without one: the API server's default.
const GRACE: Duration = Duration::from_secs(30);
const SIGTERM: i32 = 143;
const SIGKILL: i32 = 137;

/// One pod on its node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sandbox {
    /// When the node accepted the pod.
    pub(crate) accepted: Timestamp,
    policy: Policy,
    /// From the `activeDeadlineSeconds` of the pod.
    deadline: Option<Timestamp>,
    grace: Duration,
    script: Script,
    /// Init containers in order, then the others.
    pub(crate) containers: Vec<Container>,
    pub(crate) ending: Option<Ending>,
    /// For events; the agent takes them.
    pub(crate) events_to_report: Vec<PodEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    OnFailure,
    Never,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) behaviour: Behaviour,
    pub(crate) state: State,
    /// The previous run.
    pub(crate) last: Option<Exit>,
    pub(crate) restarts: u32,
    /// How many times in a row it had to back off.
    backoffs: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum State {
    /// Its init containers have not finished.
    Idle,
    /// Starts at this time. After a crash it has the length of the whole back-off.
    Waiting {
        until: Timestamp,
        backoff: Option<Duration>,
    },
    Running {
        since: Timestamp,
    },
    Ended(Exit),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    /// The run was not observed.
    pub(crate) unknown: bool,
}

/// All containers that still run are being stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ending {
    pub(crate) reason: EndReason,
    since: Timestamp,
    kill: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// Nothing is left to do; sidecars are stopped.
    Finished,
    Deadline,
    Deleted,
}

/// What a kubelet reports as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodEvent {
    Started { container: String },
    Killing { container: String },
    BackOff { container: String },
    DeadlineExceeded,
}

/// What is due next.
#[derive(Debug, Clone, Copy)]
enum Due {
    Start(usize),
    Exit(usize, i32),
    Deadline,
}

impl Sandbox {
    /// A pod that has never run.
    pub(crate) fn new(pod: &Pod, script: Script, now: Timestamp) -> Self {
        let mut sandbox = Self::idle(pod, script, now);
        sandbox.begin_next(now);
        sandbox
    }

    /// No container has started.
    fn idle(pod: &Pod, script: Script, now: Timestamp) -> Self {
        let spec = pod.spec.as_ref();
        let inits = spec.iter().flat_map(|it| it.init_containers.iter().flatten()).map(|it| {
            let sidecar = it.restart_policy.as_deref() == Some("Always");
            (&it.name, if sidecar { Role::Sidecar } else { Role::Init })
        });
        let mains = spec.iter().flat_map(|it| &it.containers).map(|it| (&it.name, Role::Main));
        let containers = inits.chain(mains).map(|(name, role)| Container {
            name: name.clone(),
            role,
            behaviour: script.behaviour(name, role),
            state: State::Idle,
            last: None,
            restarts: 0,
            backoffs: 0,
        });
        let policy = match spec.and_then(|it| it.restart_policy.as_deref()) {
            Some("Never") => Policy::Never,
            Some("OnFailure") => Policy::OnFailure,
            _ => Policy::Always,
        };
        Self {
            accepted: now,
            policy,
            deadline: None,
            grace: spec.and_then(|it| it.termination_grace_period_seconds).map_or(GRACE, seconds),
            containers: containers.collect(),
            script,
            ending: None,
            events_to_report: Vec::new(),
        }
    }

    /// A pod that ran before the fleet was restarted: its state is taken from its status.
    pub(crate) fn recovered(pod: &Pod, script: Script, now: Timestamp) -> Self {
        let Some(status) = &pod.status else { return Self::new(pod, script, now) };
        let mut sandbox = Self::idle(pod, script, now);
        sandbox.accepted = status.start_time.as_ref().map_or(now, |it| it.0);
        let known = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        for known in known {
            if let Some(container) = sandbox.containers.iter_mut().find(|it| it.name == known.name) {
                container.recover(known, sandbox.policy, sandbox.script.backoff, now);
            }
        }
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) || sandbox.is_done() {
            sandbox.end(now, EndReason::Finished, Duration::ZERO);
        } else if sandbox.may_start_next() {
            sandbox.begin_next(now);
        }
        sandbox
    }

    /// Observes the present pod. Steps that are due are executed first, because containers continue while the node is
    /// silent.
    pub(crate) fn observe(&mut self, pod: &Pod, now: Timestamp) {
        let deadline = pod.spec.as_ref().and_then(|it| it.active_deadline_seconds);
        self.deadline = deadline.and_then(|it| self.accepted.checked_add(seconds(it)).ok());
        self.advance(now);
        if pod.metadata.deletion_timestamp.is_some() {
            let grace = pod.metadata.deletion_grace_period_seconds.map_or(self.grace, seconds);
            self.end(now, EndReason::Deleted, grace);
            self.advance(now);
        }
    }

    /// Executes all steps that are due, in order, each at its own time.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some((at, due)) = self.next_due().filter(|(at, _)| *at <= now) {
            match due {
                Due::Start(index) => self.start(index, at),
                Due::Exit(index, code) => self.exit(index, code, at),
                Due::Deadline => {
                    self.events_to_report.push(PodEvent::DeadlineExceeded);
                    self.end(at, EndReason::Deadline, self.grace);
                }
            }
        }
    }

    /// When something changes next, including readiness.
    pub(crate) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let readiness = self.containers.iter().filter_map(Container::ready_at).filter(|it| *it > now);
        self.next_due().map(|(at, _)| at).into_iter().chain(readiness).min()
    }

    /// Nothing runs, and nothing will run.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.is_some() && !self.containers.iter().any(Container::is_running)
    }

    /// Every init container has finished its part.
    pub(crate) fn is_initialized(&self) -> bool {
        self.containers.iter().all(|it| match it.role {
            Role::Init => matches!(it.state, State::Ended(exit) if exit.code == 0),
            Role::Sidecar => it.is_running() || it.last.is_some() || matches!(it.state, State::Ended(_)),
            Role::Main => true,
        })
    }

    /// The phase as a kubelet computes it.
    pub(crate) fn phase(&self) -> &'static str {
        let mains = || self.containers.iter().filter(|it| it.role == Role::Main);
        if self.is_over() {
            let well = mains().all(|it| matches!(it.state, State::Ended(exit) if exit.code == 0));
            let late = self.ending.is_some_and(|it| it.reason == EndReason::Deadline);
            return if well && !late { "Succeeded" } else { "Failed" };
        }
        let never_ran = |it: &Container| match it.state {
            State::Idle => true,
            State::Waiting { .. } => it.last.is_none(),
            State::Running { .. } | State::Ended(_) => false,
        };
        if mains().any(never_ran) { "Pending" } else { "Running" }
    }

    fn next_due(&self) -> Option<(Timestamp, Due)> {
        let containers = self.containers.iter().enumerate().filter_map(|(index, it)| match it.state {
            State::Waiting { until, .. } if self.ending.is_none() => Some((until, Due::Start(index))),
            State::Running { since } => self.exit_of(it, since).map(|(at, code)| (at, Due::Exit(index, code))),
            State::Idle | State::Waiting { .. } | State::Ended(_) => None,
        });
        let deadline = self.deadline.filter(|_| self.ending.is_none()).map(|at| (at, Due::Deadline));
        // `min_by_key` returns the first of equal ones: a container that ends exactly at the deadline has ended by
        // itself.
        containers.chain(deadline).min_by_key(|(at, _)| *at)
    }

    /// When and how a running container will end.
    fn exit_of(&self, container: &Container, since: Timestamp) -> Option<(Timestamp, i32)> {
        let Behaviour { run_for, exit_code, crashes, stop_after, .. } = container.behaviour;
        let code = if container.restarts < crashes { 1 } else { exit_code };
        let own_end = run_for.and_then(|it| since.checked_add(it).ok()).map(|at| (at, code));
        let stopped = self.ending.map(|ending| {
            let graceful = stop_after.and_then(|it| ending.since.checked_add(it).ok()).filter(|it| *it < ending.kill);
            graceful.map_or((ending.kill, SIGKILL), |at| (at, SIGTERM))
        });
        own_end.into_iter().chain(stopped).min_by_key(|(at, _)| *at)
    }

    fn start(&mut self, index: usize, at: Timestamp) {
        let container = &mut self.containers[index];
        container.state = State::Running { since: at };
        let first = container.last.is_none();
        if !first {
            container.restarts += 1;
        }
        let starts_next = first && container.role == Role::Sidecar;
        self.events_to_report.push(PodEvent::Started { container: container.name.clone() });
        if starts_next {
            self.begin_next(at);
        }
    }

    fn exit(&mut self, index: usize, code: i32, at: Timestamp) {
        let ending = self.ending.is_some();
        let container = &mut self.containers[index];
        let State::Running { since } = container.state else { return };
        let exit = Exit { code, started: since, finished: at, unknown: false };
        container.state = State::Ended(exit);
        if ending {
            return;
        }
        if self.policy.is_restarted(container.role, code) {
            let wait = container.begin_backoff(exit, self.script.backoff);
            if wait.is_some() {
                self.events_to_report.push(PodEvent::BackOff { container: container.name.clone() });
            }
        } else if container.role == Role::Init && code == 0 {
            self.begin_next(at);
        } else if self.is_done() {
            self.end(at, EndReason::Finished, self.grace);
        }
    }

    /// Creates the next init container, or all other containers when there is none.
    fn begin_next(&mut self, at: Timestamp) {
        let until = at.checked_add(self.script.start_after).unwrap_or(at);
        let waiting = State::Waiting { until, backoff: None };
        let idle = |it: &&mut Container| it.state == State::Idle;
        if let Some(next) = self.containers.iter_mut().filter(idle).find(|it| it.role != Role::Main) {
            next.state = waiting;
            return;
        }
        for main in self.containers.iter_mut().filter(idle) {
            main.state = waiting;
        }
    }

    /// Every init container that has started has finished its part.
    fn may_start_next(&self) -> bool {
        self.containers.iter().filter(|it| it.state != State::Idle).all(|it| match it.role {
            Role::Init => matches!(it.state, State::Ended(exit) if exit.code == 0),
            Role::Sidecar => it.is_running() || it.last.is_some(),
            Role::Main => true,
        })
    }

    /// An init container has failed for good, or all other containers have ended for good.
    fn is_done(&self) -> bool {
        let failed = |it: &Container| it.role == Role::Init && matches!(it.state, State::Ended(exit) if exit.code != 0);
        let ended = |it: &Container| it.role != Role::Main || matches!(it.state, State::Ended(_));
        self.containers.iter().any(failed) || self.containers.iter().all(ended)
    }

    /// Stops what runs. When called again, the earlier end counts.
    fn end(&mut self, at: Timestamp, reason: EndReason, grace: Duration) {
        let kill = at.checked_add(grace).unwrap_or(at);
        if let Some(ending) = &mut self.ending {
            ending.kill = ending.kill.min(kill);
            return;
        }
        let initialized = self.is_initialized();
        self.ending = Some(Ending { reason, since: at, kill });
        for container in &mut self.containers {
            if container.is_running() {
                self.events_to_report.push(PodEvent::Killing { container: container.name.clone() });
            }
            if let State::Waiting { .. } = container.state {
                container.state = match container.last.take() {
                    Some(exit) => State::Ended(exit),
                    // As in the kubelet: a container that should have run but was never observed counts as failed.
                    None if initialized => {
                        State::Ended(Exit { code: SIGKILL, started: at, finished: at, unknown: true })
                    }
                    None => State::Idle,
                };
            }
        }
    }
}

impl Policy {
    /// True when a container that ended by itself is started again.
    fn is_restarted(self, role: Role, code: i32) -> bool {
        match role {
            Role::Sidecar => true,
            Role::Init => code != 0 && self != Self::Never,
            Role::Main => self == Self::Always || (self == Self::OnFailure && code != 0),
        }
    }
}

impl Container {
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// When a running container becomes ready.
    fn ready_at(&self) -> Option<Timestamp> {
        let State::Running { since } = self.state else { return None };
        since.checked_add(self.behaviour.ready_after?).ok()
    }

    /// An init container that has finished is ready too.
    pub(crate) fn is_ready(&self, now: Timestamp) -> bool {
        let done = self.role == Role::Init && matches!(self.state, State::Ended(exit) if exit.code == 0);
        done || (self.role != Role::Init && self.ready_at().is_some_and(|it| it <= now))
    }

    /// The first restart is immediate, as in the kubelet. Returns the back-off of each later one.
    fn begin_backoff(&mut self, exit: Exit, first: Duration) -> Option<Duration> {
        if run_time(exit) >= BACKOFF_RESET {
            self.backoffs = 0;
        }
        let doubled = |times: u32| first.saturating_mul(2_u32.saturating_pow(times)).clamp(MIN_BACKOFF, MAX_BACKOFF);
        let backoff = self.backoffs.checked_sub(1).map(doubled);
        self.backoffs += 1;
        self.last = Some(exit);
        let until = exit.finished.checked_add(backoff.unwrap_or_default()).unwrap_or(exit.finished);
        self.state = State::Waiting { until, backoff };
        backoff
    }

    fn recover(&mut self, known: &ContainerStatus, policy: Policy, backoff: Duration, now: Timestamp) {
        self.restarts = known.restart_count.try_into().unwrap_or(0);
        self.backoffs = self.restarts;
        let terminated = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
            let it = state.as_ref()?.terminated.as_ref()?;
            let time =
                |it: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| it.as_ref().map_or(now, |it| it.0);
            let (started, finished) = (time(&it.started_at), time(&it.finished_at));
            Some(Exit { code: it.exit_code, started, finished, unknown: it.started_at.is_none() })
        };
        self.last = terminated(&known.last_state);
        let running = known.state.as_ref().and_then(|it| it.running.as_ref());
        if let Some(exit) = terminated(&known.state) {
            if policy.is_restarted(self.role, exit.code) {
                self.begin_backoff(exit, backoff);
            } else {
                self.state = State::Ended(exit);
            }
        } else if let Some(running) = running {
            self.state = State::Running { since: running.started_at.as_ref().map_or(now, |it| it.0) };
        } else if let Some(exit) = self.last {
            // It waits for its restart. A container that never ran is created later.
            self.begin_backoff(exit, backoff);
        }
    }
}

fn run_time(exit: Exit) -> Duration {
    exit.finished.duration_since(exit.started).try_into().unwrap_or_default()
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests;
