//! The status of a set (`calculateStatus`).

use std::{collections::HashSet, time::Duration};

use api::{Condition, ConditionStatus, Labels, Pod, ReplicaSetStatus, Uid};
use workload::{StatusChange, StatusWrite, is_available, is_ready};

use crate::rules::plan::{Snapshot, wanted};

/// The condition that pods could not be created or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The outcome of the change of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Managed {
    /// It was not tried, or nothing is known about it.
    Skipped,
    /// It was made, or nothing was to do.
    Done,
    /// It failed with this message.
    Failed(String),
}

/// The next status. `deleted` are pods whose deletion was sent and not observed. None of them counts as ready: the
/// cache may be late, and a Deployment would delete other pods because these are reported as ready (upstream reports
/// them). `generate_name` is the prefix of the names of the pods.
pub(crate) fn next_status(
    snapshot: &Snapshot<'_>,
    deleted: &HashSet<Uid>,
    managed: &Managed,
    generate_name: &str,
) -> ReplicaSetStatus {
    let Snapshot { set, active, terminating, now, .. } = snapshot;
    let mut status = set.status.clone();
    let count = |counts: &dyn Fn(&Pod) -> bool| saturated(active.iter().filter(|it| counts(it)).count());
    status.replicas = saturated(active.len());
    status.fully_labeled = count(&|it: &Pod| has_labels(it, &set.spec.template_labels));
    let stays = |it: &Pod| !deleted.contains(&it.meta.uid);
    status.ready = count(&|it: &Pod| is_ready(it) && stays(it));
    status.available = count(&|it: &Pod| is_available(it, set.spec.min_ready_seconds, *now) && stays(it));
    status.terminating = terminating.map(saturated);
    status.observed_generation = set.generation;
    match managed {
        Managed::Skipped => {}
        Managed::Done => status.conditions.retain(|it| &*it.type_ != REPLICA_FAILURE),
        Managed::Failed(message) => {
            let reason = match active.len().cmp(&wanted(set)) {
                std::cmp::Ordering::Less => "FailedCreate",
                std::cmp::Ordering::Greater => "FailedDelete",
                std::cmp::Ordering::Equal => "",
            };
            set_failure(&mut status.conditions, reason, message, generate_name, now.as_second());
        }
    }
    status
}

fn has_labels(pod: &Pod, labels: &Labels) -> bool {
    labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
}

fn saturated(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Sets the condition. Its time changes only with its status.
fn set_failure(conditions: &mut Vec<Condition>, reason: &str, message: &str, generate_name: &str, now: i64) {
    let before = conditions.iter().position(|it| &*it.type_ == REPLICA_FAILURE);
    let before = before.map(|at| conditions.remove(at));
    let held = before.filter(|it| it.status == ConditionStatus::True);
    // Each refused creation has another generated name, which must not lead to a write each time.
    let same = |it: &Condition| {
        &*it.reason == reason && without_names(&it.message, generate_name) == without_names(message, generate_name)
    };
    conditions.push(match held {
        Some(held) if same(&held) => held,
        held => Condition {
            type_: REPLICA_FAILURE.into(),
            status: ConditionStatus::True,
            reason: reason.into(),
            message: message.into(),
            last_transition: held.and_then(|it| it.last_transition).or(Some(now)),
        },
    });
}

/// The message without the random part of generated names.
fn without_names(message: &str, generate_name: &str) -> String {
    /// The characters that the server adds to the prefix of a name.
    const RANDOM: usize = 5;
    let mut parts = message.split(generate_name);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(generate_name);
        text.extend(part.chars().skip(RANDOM));
    }
    text
}

/// The same status for a newer state of the set, which keeps its other fields and conditions.
pub(crate) fn transfer(next: &ReplicaSetStatus, mut newer: ReplicaSetStatus) -> ReplicaSetStatus {
    Counters::of(next).write_to(&mut newer);
    newer.observed_generation = next.observed_generation.max(newer.observed_generation);
    newer.conditions.retain(|it| &*it.type_ != REPLICA_FAILURE);
    newer.conditions.extend(next.conditions.iter().filter(|it| &*it.type_ == REPLICA_FAILURE).cloned());
    newer
}

/// The numbers of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters {
    replicas: i32,
    fully_labeled: i32,
    ready: i32,
    available: i32,
    terminating: Option<i32>,
}

impl Counters {
    fn of(status: &ReplicaSetStatus) -> Self {
        let ReplicaSetStatus { replicas, fully_labeled, ready, available, terminating, .. } = *status;
        Self { replicas, fully_labeled, ready, available, terminating }
    }

    fn write_to(self, status: &mut ReplicaSetStatus) {
        let Self { replicas, fully_labeled, ready, available, terminating } = self;
        (status.replicas, status.fully_labeled, status.ready) = (replicas, fully_labeled, ready);
        (status.available, status.terminating) = (available, terminating);
    }

    /// All pods that the spec wants are available, and no others exist.
    fn is_complete(self, wanted: i32) -> bool {
        self.replicas == wanted && self.available == wanted
    }
}

/// Decides when to store the new status. `since_last` is the time since the last write of this process.
///
/// Counters that change in quick succession are stored together. Users wait for the end of a change, a failure, and an
/// observed generation, so these are stored at once. So is the loss of an available pod: a Deployment would delete
/// other pods because that one is reported as available.
pub(crate) fn status_write(
    stored: &ReplicaSetStatus,
    next: &ReplicaSetStatus,
    wanted: i32,
    since_last: Option<Duration>,
) -> StatusWrite {
    let (before, counters) = (Counters::of(stored), Counters::of(next));
    let is_urgent = stored.observed_generation != next.observed_generation || stored.conditions != next.conditions;
    let is_end = counters.is_complete(wanted) && !before.is_complete(wanted);
    let is_loss = counters.available < before.available.min(wanted);
    let change = if is_urgent || is_end || is_loss {
        StatusChange::Urgent
    } else if before == counters {
        StatusChange::None
    } else {
        StatusChange::Counters
    };
    change.write(since_last)
}

#[cfg(test)]
mod tests;
