//! The progress of a rollout and its deadline.

use std::time::Duration;

use api::{ConditionStatus, Deployment, DeploymentStatus};
use clock::Timestamp;
use events::EventType;

use crate::rules::conditions::{
    NEW_SET_AVAILABLE, PAUSED, PROGRESSING, RESUMED, SET_UPDATED, TIMED_OUT, progressing, remove, replace, set,
};

/// Whether all pods are of the present template and available, and there are no others (`DeploymentComplete`).
pub(crate) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    has_all_pods(deployment, status) && status.observed_generation >= deployment.generation
}

fn has_all_pods(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    [status.updated, status.replicas, status.available].iter().all(|it| *it == deployment.spec.replicas)
}

/// Sets the condition Progressing of a rollout (`syncRolloutStatus`). `new` is the name of the new ReplicaSet.
pub(crate) fn report(deployment: &Deployment, status: &mut DeploymentStatus, new: Option<&str>, now: Timestamp) {
    let Some(deadline) = deployment.spec.progress_deadline else { return remove(status, PROGRESSING) };
    let reason = status.condition(PROGRESSING).map(|it| it.reason.clone());
    let has_reason = |wanted: &str| reason.as_deref() == Some(wanted);
    // Without a rollout no progress is expected.
    if status.replicas == status.updated && has_reason(NEW_SET_AVAILABLE) {
        return;
    }
    let subject = match new {
        Some(name) => format!("ReplicaSet {name:?}"),
        None => format!("Deployment {:?}", deployment.meta.name),
    };
    let seconds = now.as_second();
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        set(status, progressing(ConditionStatus::True, NEW_SET_AVAILABLE, &message, seconds));
    } else if has_progressed(&deployment.status, status) {
        let message = format!("{subject} is progressing.");
        replace(status, progressing(ConditionStatus::True, SET_UPDATED, &message, seconds));
    } else if has_reason(TIMED_OUT) || is_over(status, deadline, now) {
        let message = format!("{subject} has timed out progressing.");
        set(status, progressing(ConditionStatus::False, TIMED_OUT, &message, seconds));
    }
}

/// Whether new pods appeared, old pods disappeared, or pods became ready or available (`DeploymentProgressing`).
fn has_progressed(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let old_pods = |it: &DeploymentStatus| it.replicas.saturating_sub(it.updated);
    now.updated > before.updated
        || old_pods(now) < old_pods(before)
        || now.ready > before.ready
        || now.available > before.available
}

/// Whether the deadline has passed (`DeploymentTimedOut`). A finished rollout has none.
fn is_over(status: &DeploymentStatus, deadline: i32, now: Timestamp) -> bool {
    let Some(condition) = status.condition(PROGRESSING).filter(|it| *it.reason != *NEW_SET_AVAILABLE) else {
        return false;
    };
    condition.last_update.is_some_and(|it| until(it, deadline, now) < 0)
}

/// The milliseconds until the deadline. They are negative afterwards.
fn until(last_update: i64, deadline: i32, now: Timestamp) -> i64 {
    let due = last_update.saturating_add(i64::from(deadline)).saturating_mul(1_000);
    due.saturating_sub(now.as_millisecond())
}

/// When an unchanged Deployment must be checked again, so that its deadline is not missed (`requeueStuckDeployment`,
/// k/k#34458). A finished rollout has no deadline; upstream checks it ten times per second once it is older than its
/// deadline and a pod is not available.
pub(crate) fn next_check(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    /// The clock that wakes us may be ahead of the clock of the condition (k/k#39785).
    const SKEW: i64 = 1_000;
    /// The least time between two checks.
    const AT_LEAST: i64 = 10;
    let deadline = deployment.spec.progress_deadline?;
    let condition = status.condition(PROGRESSING)?;
    if is_complete(deployment, status) || [TIMED_OUT, NEW_SET_AVAILABLE].contains(&&*condition.reason) {
        return None;
    }
    let left = until(condition.last_update?, deadline, now);
    let wait = if left < SKEW { left.max(0) + AT_LEAST } else { left + SKEW };
    u64::try_from(wait).ok().map(Duration::from_millis)
}

/// The event about the end of a rollout: it is complete, or has missed its deadline. Upstream sends none.
pub(crate) fn event(deployment: &Deployment, after: &DeploymentStatus) -> Option<(EventType, &'static str, String)> {
    let before = &deployment.status;
    let condition = after.condition(PROGRESSING)?;
    // Without an earlier condition nothing was rolled out.
    let earlier = before.condition(PROGRESSING).filter(|it| it.reason != condition.reason)?;
    let message = condition.message.to_string();
    match &*condition.reason {
        TIMED_OUT => Some((EventType::Warning, TIMED_OUT, message)),
        // A rollout that was complete before the Deployment was resumed causes no event.
        NEW_SET_AVAILABLE if [PAUSED, RESUMED].contains(&&*earlier.reason) && has_all_pods(deployment, before) => None,
        NEW_SET_AVAILABLE => Some((EventType::Normal, NEW_SET_AVAILABLE, message)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{NOW, at, deployment_with};

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    /// A Deployment of 10 with this condition Progressing, updated so many seconds ago, and these counts: replicas,
    /// updated, ready, available.
    fn with(deadline: Value, status: &str, reason: &str, age: i64, counts: [i32; 4]) -> Deployment {
        let [replicas, updated, ready, available] = counts;
        let times = json!({ "lastUpdateTime": at(-age), "lastTransitionTime": at(-500) });
        let mut condition = json!({ "type": "Progressing", "status": status, "reason": reason });
        crate::testing::merge(&mut condition, times);
        let conditions = if reason.is_empty() { json!([]) } else { json!([condition]) };
        let status = json!({ "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
            "availableReplicas": available, "observedGeneration": 1, "conditions": conditions });
        deployment_with(json!({ "replicas": 10, "progressDeadlineSeconds": deadline }), json!({}), status)
    }

    /// Status, reason, last update and last transition after the counts have become these.
    fn reported(deployment: &Deployment, counts: [i32; 4]) -> Option<(String, String, i64, i64)> {
        let mut status = deployment.status.clone();
        [status.replicas, status.updated, status.ready, status.available] = counts;
        report(deployment, &mut status, Some("rs"), now());
        let it = status.condition(PROGRESSING)?;
        let ago = |time: Option<i64>| NOW - time.unwrap();
        Some((it.status.to_string(), it.reason.to_string(), ago(it.last_update), ago(it.last_transition)))
    }

    fn some(status: &str, reason: &str, update: i64, transition: i64) -> Option<(String, String, i64, i64)> {
        Some((status.to_owned(), reason.to_owned(), update, transition))
    }

    const MID: [i32; 4] = [13, 5, 8, 8];
    const DONE: [i32; 4] = [10, 10, 10, 10];

    #[test]
    fn acceptance_deploy_061_a_rollout_without_progress_times_out_after_its_deadline() {
        let stuck = |age: i64| with(json!(10), "True", SET_UPDATED, age, MID);
        assert_eq!(reported(&stuck(11), MID), some("False", TIMED_OUT, 0, 0));
        assert_eq!(reported(&stuck(9), MID), some("True", SET_UPDATED, 9, 500));
        assert_eq!(reported(&stuck(10), MID), some("True", SET_UPDATED, 10, 500), "strictly");
        let timed_out = with(json!(10), "False", TIMED_OUT, 5, MID);
        assert_eq!(reported(&timed_out, MID), some("False", TIMED_OUT, 5, 500), "it stays");
    }

    #[test]
    fn acceptance_deploy_064_065_progress_restarts_the_deadline() {
        let running = with(json!(10), "True", SET_UPDATED, 9, MID);
        for progress in [[13, 6, 8, 8], [12, 5, 8, 8], [13, 5, 9, 8], [13, 5, 9, 9]] {
            assert_eq!(reported(&running, progress), some("True", SET_UPDATED, 0, 500), "{progress:?}");
        }
        assert_eq!(reported(&running, [13, 5, 7, 7]), some("True", SET_UPDATED, 9, 500), "no progress");
        let timed_out = with(json!(10), "False", TIMED_OUT, 99, MID);
        assert_eq!(reported(&timed_out, [13, 5, 9, 9]), some("True", SET_UPDATED, 0, 0));
        assert_eq!(reported(&timed_out, DONE), some("True", NEW_SET_AVAILABLE, 0, 0));
        assert_eq!(reported(&running, DONE), some("True", NEW_SET_AVAILABLE, 0, 500));
    }

    #[test]
    fn acceptance_deploy_066_a_finished_rollout_stays_finished() {
        let finished = with(json!(10), "True", NEW_SET_AVAILABLE, 99, DONE);
        assert_eq!(reported(&finished, [10, 10, 9, 9]), some("True", NEW_SET_AVAILABLE, 99, 500));
        let mut status = finished.status.clone();
        status.available = 9;
        assert_eq!(next_check(&finished, &status, now()), None, "and needs no check");
        assert_eq!(reported(&finished, [13, 3, 10, 10]), some("True", NEW_SET_AVAILABLE, 99, 500), "not begun yet");
    }

    #[test]
    fn acceptance_deploy_067_without_a_deadline_there_is_no_condition() {
        assert_eq!(reported(&with(Value::Null, "True", SET_UPDATED, 9, MID), MID), None);
        assert_eq!(reported(&with(json!(2_147_483_647), "True", SET_UPDATED, 9, MID), DONE), None);
    }

    #[test]
    fn acceptance_deploy_062_063_an_unchanged_rollout_is_checked_at_its_deadline() {
        let check = |deadline: Value, reason: &str, age: i64, counts: [i32; 4], now: Timestamp| {
            let deployment = with(deadline, "True", reason, age, counts);
            next_check(&deployment, &deployment.status, now).map(|it| it.as_millis())
        };
        assert_eq!(check(json!(600), SET_UPDATED, 180, MID, now()), Some(421_000), "7 min 1 s");
        let late = Timestamp::from_millisecond(NOW * 1_000 + 400).unwrap();
        assert_eq!(check(json!(600), SET_UPDATED, 599, MID, late), Some(610), "600 ms are left");
        assert_eq!(check(json!(600), SET_UPDATED, 700, MID, now()), Some(10));
        for (deadline, reason, counts) in [
            (json!(600), SET_UPDATED, DONE),
            (json!(600), TIMED_OUT, MID),
            (json!(600), NEW_SET_AVAILABLE, MID),
            (json!(600), "", MID),
            (Value::Null, SET_UPDATED, MID),
        ] {
            assert_eq!(check(deadline.clone(), reason, 180, counts, now()), None, "{deadline} {reason}");
        }
    }

    #[test]
    fn the_end_of_a_rollout_is_one_event() {
        let sent_with = |counts: [i32; 4], before: &str, after: &str| {
            let after = with(json!(10), "True", after, 1, [10; 4]).status;
            event(&with(json!(10), "True", before, 1, counts), &after).map(|(_, reason, _)| reason)
        };
        let sent = |before: &str, after: &str| sent_with(MID, before, after);
        assert_eq!(sent(SET_UPDATED, NEW_SET_AVAILABLE), Some(NEW_SET_AVAILABLE));
        assert_eq!(sent(SET_UPDATED, TIMED_OUT), Some(TIMED_OUT));
        assert_eq!(sent(TIMED_OUT, TIMED_OUT), None);
        assert_eq!(sent(NEW_SET_AVAILABLE, NEW_SET_AVAILABLE), None);
        assert_eq!(sent(RESUMED, NEW_SET_AVAILABLE), Some(NEW_SET_AVAILABLE), "it was paused before its end");
        for paused in [PAUSED, RESUMED] {
            assert_eq!(sent_with([10; 4], paused, NEW_SET_AVAILABLE), None, "it was complete before the pause");
        }
        assert_eq!(sent("", NEW_SET_AVAILABLE), None);
        assert_eq!(sent(SET_UPDATED, ""), None);
    }
}
