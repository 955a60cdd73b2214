//! The conditions of a Deployment.

use api::{ConditionStatus, DeploymentCondition, DeploymentStatus, ReplicaSet};

/// The type of the condition about availability.
pub(crate) const AVAILABLE: &str = "Available";
/// The type of the condition about the rollout.
pub(crate) const PROGRESSING: &str = "Progressing";
/// The type of the condition about pods that cannot be created or deleted.
pub(crate) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The rollout is complete.
pub(crate) const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
/// The rollout made progress.
pub(crate) const SET_UPDATED: &str = "ReplicaSetUpdated";
/// The new ReplicaSet was created.
pub(crate) const NEW_SET_CREATED: &str = "NewReplicaSetCreated";
/// A ReplicaSet that existed became the new one.
pub(crate) const FOUND_NEW_SET: &str = "FoundNewReplicaSet";
/// The new ReplicaSet could not be created.
pub(crate) const CREATE_ERROR: &str = "ReplicaSetCreateError";
/// The server stored the new ReplicaSet with another template. Only ours.
pub(crate) const TEMPLATE_CHANGED: &str = "ReplicaSetTemplateChanged";
/// The rollout has made no progress within the deadline.
pub(crate) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// The rollout is paused.
pub(crate) const PAUSED: &str = "DeploymentPaused";
/// The rollout is not paused any more.
pub(crate) const RESUMED: &str = "DeploymentResumed";

/// The message about a ReplicaSet with another template.
pub(crate) fn template_changed(set: &ReplicaSet) -> String {
    format!(
        "ReplicaSet {:?} was stored with another pod template than the one that was sent; a webhook or the server \
         changes templates, and no further ReplicaSet is created",
        set.meta.name
    )
}

/// Sets a condition. If one has this status and reason already, it stays as it is, with its message and times
/// (`SetDeploymentCondition`).
pub(crate) fn set(status: &mut DeploymentStatus, condition: DeploymentCondition) {
    let current = status.condition(&condition.type_);
    if !current.is_some_and(|it| it.status == condition.status && it.reason == condition.reason) {
        replace(status, condition);
    }
}

/// Replaces a condition. The time of the transition is kept if the status is the same. The condition moves to the end.
pub(crate) fn replace(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(current) = status.condition(&condition.type_).filter(|it| it.status == condition.status) {
        condition.last_transition = current.last_transition;
    }
    remove(status, &condition.type_);
    status.conditions.push(condition);
}

/// Removes the conditions of a type.
pub(crate) fn remove(status: &mut DeploymentStatus, type_: &str) {
    status.conditions.retain(|it| *it.type_ != *type_);
}

/// A condition Progressing.
pub(crate) fn progressing(status: ConditionStatus, reason: &str, message: &str, now: i64) -> DeploymentCondition {
    DeploymentCondition::new(PROGRESSING, status, reason, message, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_replaced_only_if_its_status_or_reason_changes() {
        let mut status = DeploymentStatus::default();
        status.conditions.push(DeploymentCondition::new("Foreign", ConditionStatus::True, "R", "m", 1));
        let row = |status: &DeploymentStatus| {
            let it = status.conditions.last().unwrap();
            (it.message.to_string(), it.last_update, it.last_transition)
        };
        set(&mut status, progressing(ConditionStatus::True, "A", "one", 10));
        set(&mut status, progressing(ConditionStatus::True, "A", "two", 20));
        assert_eq!(row(&status), ("one".to_owned(), Some(10), Some(10)));
        set(&mut status, progressing(ConditionStatus::True, "B", "three", 30));
        assert_eq!(row(&status), ("three".to_owned(), Some(30), Some(10)), "the transition is kept");
        replace(&mut status, progressing(ConditionStatus::True, "B", "four", 40));
        assert_eq!(row(&status), ("four".to_owned(), Some(40), Some(10)));
        set(&mut status, progressing(ConditionStatus::False, "B", "five", 50));
        assert_eq!(row(&status), ("five".to_owned(), Some(50), Some(50)));
        remove(&mut status, PROGRESSING);
        assert_eq!(status.conditions.len(), 1, "foreign conditions stay");
    }
}
