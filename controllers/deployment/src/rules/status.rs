//! The status of a Deployment.

use api::{ConditionStatus, Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use workload::StatusChange;

use crate::rules::{
    annotations::REVISION,
    conditions::{
        AVAILABLE, CREATE_ERROR, FOUND_NEW_SET, NEW_SET_CREATED, PAUSED, PROGRESSING, REPLICA_FAILURE, RESUMED,
        TEMPLATE_CHANGED, TIMED_OUT, progressing, remove, replace, set, template_changed,
    },
    plan::{Plan, Problem},
    progress,
    snapshot::Snapshot,
};

/// What came of the creation of the new ReplicaSet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Created {
    /// None was planned, or the request was not sent.
    #[default]
    Nothing,
    /// It exists now.
    Set {
        /// Its name.
        name: Box<str>,
        /// Its size.
        replicas: i32,
    },
    /// The server refused it. The message is for users.
    Refused(String),
    /// Its name is in use by another ReplicaSet.
    Collision,
}

/// The next status, after the writes of a plan. ReplicaSets that were scaled count as the cache shows them; the event
/// of the scaled ReplicaSet causes the next sync.
pub(crate) fn next_status(snapshot: &Snapshot<'_>, plan: &Plan, created: &Created) -> DeploymentStatus {
    let deployment = snapshot.deployment;
    let mut status = deployment.status.clone();
    if deployment.meta.deletion.is_none() {
        report_pause(snapshot, &mut status);
        report_new_set(snapshot, plan, created, &mut status);
    }
    count(snapshot, created, &mut status);
    report_availability(snapshot, &mut status);
    if plan.reports_progress {
        // A problem is more important than pods that become ready.
        if !matches!(created, Created::Refused(_) | Created::Collision) && plan.problem.is_none() {
            let name = match created {
                Created::Set { name, .. } => Some(&**name),
                _ => snapshot.new_set().map(|it| &*it.meta.name),
            };
            progress::report(deployment, &mut status, name, snapshot.now);
        }
        report_failure(snapshot, &mut status);
    }
    status
}

/// How the next status differs from the stored one. `revision` is stored with it.
pub(crate) fn status_change(deployment: &Deployment, revision: Option<&str>, next: &DeploymentStatus) -> StatusChange {
    let stored = &deployment.status;
    let is_end = progress::is_complete(deployment, next) && !progress::is_complete(deployment, stored);
    if revision.is_some() {
        StatusChange::Urgent
    } else if next == stored {
        StatusChange::None
    } else if !is_end && without_counters(next) == without_counters(stored) {
        StatusChange::Counters
    } else {
        StatusChange::Urgent
    }
}

/// A status without its counters and the time of the last progress, which change with each pod.
fn without_counters(status: &DeploymentStatus) -> DeploymentStatus {
    let mut status = status.clone();
    (status.replicas, status.updated, status.ready) = (0, 0, 0);
    (status.available, status.unavailable, status.terminating) = (0, 0, None);
    let progressing = status.conditions.iter_mut().filter(|it| &*it.type_ == PROGRESSING);
    progressing.for_each(|it| it.last_update = None);
    status
}

/// A pause restarts the deadline, but does not hide that it was missed (`checkPausedConditions`).
fn report_pause(snapshot: &Snapshot<'_>, status: &mut DeploymentStatus) {
    let spec = &snapshot.deployment.spec;
    let reason = status.condition(PROGRESSING).map(|it| &*it.reason);
    if spec.progress_deadline.is_none() || reason == Some(TIMED_OUT) {
        return;
    }
    let (reason, message) = match (spec.paused, reason == Some(PAUSED)) {
        (true, false) => (PAUSED, "Deployment is paused"),
        (false, true) => (RESUMED, "Deployment is resumed"),
        _ => return,
    };
    set(status, progressing(ConditionStatus::Unknown, reason, message, snapshot.now.as_second()));
}

/// The beginning of a rollout restarts the deadline (`getNewReplicaSet`).
fn report_new_set(snapshot: &Snapshot<'_>, plan: &Plan, created: &Created, status: &mut DeploymentStatus) {
    let (deployment, now) = (snapshot.deployment, snapshot.now.as_second());
    if deployment.spec.progress_deadline.is_none() {
        return;
    }
    if let Some(Problem::TemplateChanged(at)) = plan.problem
        && let Some(changed) = snapshot.sets.get(at)
    {
        let message = template_changed(changed);
        return set(status, progressing(ConditionStatus::False, TEMPLATE_CHANGED, &message, now));
    }
    match created {
        Created::Refused(message) => {
            set(status, progressing(ConditionStatus::False, CREATE_ERROR, message, now));
        }
        Created::Set { name, .. } => {
            let message = format!("Created new replica set {name:?}");
            replace(status, progressing(ConditionStatus::True, NEW_SET_CREATED, &message, now));
        }
        Created::Nothing | Created::Collision => {
            let Some(new) = snapshot.new_set() else { return };
            // The revision is written together with the status. If it differs, the present ReplicaSet was not the new
            // one then, and a rollout begins, unless a user has edited the annotation. Upstream does not restart the
            // deadline for it.
            let stored = deployment.annotations.get(REVISION);
            let is_new = stored.is_some() && stored != plan.revision.as_deref();
            let has_work = snapshot.active_old().next().is_some() || new.spec.replicas != deployment.spec.replicas;
            let begins = is_new && has_work && !deployment.spec.paused;
            if status.condition(PROGRESSING).is_none() || begins {
                let message = format!("Found new replica set {:?}", new.meta.name);
                replace(status, progressing(ConditionStatus::True, FOUND_NEW_SET, &message, now));
            }
        }
    }
}

/// The sums over all ReplicaSets (`calculateStatus`).
fn count(snapshot: &Snapshot<'_>, created: &Created, status: &mut DeploymentStatus) {
    let sum = |of: fn(&ReplicaSet) -> i32| snapshot.all().fold(0, |sum: i32, (_, set)| sum.saturating_add(of(set)));
    status.observed_generation = snapshot.deployment.generation;
    status.replicas = sum(|it| it.status.replicas);
    status.ready = sum(|it| it.status.ready);
    status.available = sum(|it| it.status.available);
    status.updated = snapshot.new_set().map_or(0, |it| it.status.replicas);
    let size_of_created = if let Created::Set { replicas, .. } = created { *replicas } else { 0 };
    let sizes = sum(|it| it.spec.replicas).saturating_add(size_of_created);
    status.unavailable = sizes.saturating_sub(status.available).max(0);
    status.terminating = if snapshot.reports_terminating { terminating(snapshot) } else { None };
    if *created == Created::Collision {
        status.collision_count = Some(status.collision_count.unwrap_or_default().saturating_add(1));
    }
}

/// The number of terminating pods; `None` if a ReplicaSet does not report it, unless it was never synced
/// (`GetTerminatingReplicaCountForReplicaSets`).
fn terminating(snapshot: &Snapshot<'_>) -> Option<i32> {
    let mut synced = snapshot.all().map(|(_, set)| &set.status);
    synced.try_fold(0, |sum: i32, set| match set.terminating {
        Some(count) => Some(sum.saturating_add(count)),
        None if set.observed_generation == 0 => Some(sum),
        None => None,
    })
}

fn report_availability(snapshot: &Snapshot<'_>, status: &mut DeploymentStatus) {
    let now = snapshot.now.as_second();
    let condition = if i64::from(status.available) >= snapshot.limits().min_available() {
        let message = "Deployment has minimum availability.";
        DeploymentCondition::new(AVAILABLE, ConditionStatus::True, "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        DeploymentCondition::new(AVAILABLE, ConditionStatus::False, "MinimumReplicasUnavailable", message, now)
    };
    set(status, condition);
}

/// Shows that the new ReplicaSet, or else the oldest other one, cannot create or delete pods (`getReplicaFailures`).
fn report_failure(snapshot: &Snapshot<'_>, status: &mut DeploymentStatus) {
    let sets = snapshot.new_set().into_iter().chain(snapshot.old().map(|(_, set)| set));
    let failure = sets.flat_map(|it| &it.status.conditions).find(|it| &*it.type_ == REPLICA_FAILURE);
    let Some(failure) = failure else { return remove(status, REPLICA_FAILURE) };
    let (reason, message) = (&failure.reason, &failure.message);
    let mut condition = DeploymentCondition::new(REPLICA_FAILURE, failure.status.clone(), reason, message, 0);
    (condition.last_update, condition.last_transition) = (failure.last_transition, failure.last_transition);
    set(status, condition);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        rules::plan::plan,
        testing::{World, at, deployment, deployment_with},
    };

    fn status_of(world: &World) -> DeploymentStatus {
        let snapshot = world.snapshot();
        next_status(&snapshot, &plan(&snapshot), &Created::Nothing)
    }

    fn numbers(status: &DeploymentStatus) -> [i32; 5] {
        [status.replicas, status.updated, status.ready, status.available, status.unavailable]
    }

    fn reason(status: &DeploymentStatus, type_: &str) -> String {
        status.condition(type_).map(|it| format!("{} {}", it.status, it.reason)).unwrap_or_default()
    }

    #[test]
    fn acceptance_deploy_031_counts_are_sums_over_the_replica_sets() {
        let spec = json!({ "replicas": 10, "minReadySeconds": 3_600 });
        let world = |sets: &[&str]| World::new(deployment(spec.clone()), sets);
        assert_eq!(numbers(&status_of(&world(&["a new 10/0 ready:10"]))), [10, 10, 10, 0, 10]);
        assert_eq!(numbers(&status_of(&world(&["a new 10"]))), [10, 10, 10, 10, 0]);
        assert_eq!(numbers(&status_of(&world(&["a new 5/2", "b old 8"]))), [13, 5, 10, 10, 3]);
        assert_eq!(numbers(&status_of(&world(&["b old 8"]))), [8, 0, 8, 8, 0]);
    }

    #[test]
    fn acceptance_deploy_070_surplus_available_pods_are_not_negative() {
        let world = World::new(deployment(json!({ "replicas": 10 })), &["a new 10/12"]);
        assert_eq!(numbers(&status_of(&world)), [12, 12, 12, 12, 0]);
    }

    #[test]
    fn acceptance_deploy_071_terminating_pods_are_counted_if_all_sets_report_them() {
        let terminating = |sets: &[&str]| status_of(&World::new(deployment(json!({})), sets)).terminating;
        assert_eq!(terminating(&["a new 3 terminating:1", "b old 0 terminating:2"]), Some(3));
        assert_eq!(terminating(&["a new 3 terminating:1", "b old 0"]), None, "one does not report");
        assert_eq!(terminating(&["a new 3 terminating:1", "b old 0 never"]), Some(1), "it was never synced");
        let world = World::new(deployment(json!({})), &["a new 3 terminating:1"]);
        let snapshot = Snapshot { reports_terminating: false, ..world.snapshot() };
        assert_eq!(next_status(&snapshot, &plan(&snapshot), &Created::Nothing).terminating, None, "the gate is off");
    }

    #[test]
    fn acceptance_deploy_068_available_needs_all_but_the_pods_that_may_be_unavailable() {
        let available = |replicas: i64, set: &str| {
            let rolling = json!({ "maxSurge": 3, "maxUnavailable": 2 });
            let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
            let spec = json!({ "replicas": replicas, "strategy": strategy });
            reason(&status_of(&World::new(deployment(spec), &[set])), AVAILABLE)
        };
        assert_eq!(available(10, "a new 10/8"), "True MinimumReplicasAvailable");
        assert_eq!(available(10, "a new 10/7"), "False MinimumReplicasUnavailable");
        assert_eq!(available(0, "a new 0"), "True MinimumReplicasAvailable");
        let recreate = deployment(json!({ "replicas": 10, "strategy": { "type": "Recreate" } }));
        assert_eq!(
            reason(&status_of(&World::new(recreate, &["a new 10/9"])), AVAILABLE),
            "False MinimumReplicasUnavailable"
        );
    }

    #[test]
    fn acceptance_deploy_069_a_failure_of_a_replica_set_is_shown_until_it_is_over() {
        let world = World::new(deployment(json!({})), &["b old 1 failure", "a new 3/2 failure"]);
        let failed = status_of(&world);
        let condition = failed.condition(REPLICA_FAILURE).unwrap();
        assert_eq!((&*condition.reason, &*condition.message), ("FailedCreate", "a is refused"));
        assert_eq!((condition.last_update, condition.last_transition), (Some(5), Some(5)));
        let stored =
            json!({ "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate" }] });
        let world = World::new(deployment_with(json!({}), json!({}), stored.clone()), &["a new 3"]);
        assert_eq!(reason(&status_of(&world), REPLICA_FAILURE), "");
        let world = World::new(deployment_with(json!({ "paused": true }), json!({}), stored), &["a new 3"]);
        assert_eq!(reason(&status_of(&world), REPLICA_FAILURE), "True FailedCreate", "only a rollout changes it");
    }

    #[test]
    fn acceptance_deploy_053_054_a_pause_is_shown_unless_the_deadline_was_missed() {
        let progressing = |paused: bool, reason_before: &str| {
            let condition = json!({ "type": "Progressing", "status": "True", "reason": reason_before,
                "lastUpdateTime": at(-5), "lastTransitionTime": at(-5) });
            let spec = json!({ "paused": paused, "progressDeadlineSeconds": 600 });
            let stored = json!({ "conditions": [condition] });
            reason(&status_of(&World::new(deployment_with(spec, json!({}), stored), &["a new 3/2"])), PROGRESSING)
        };
        assert_eq!(progressing(true, "ReplicaSetUpdated"), "Unknown DeploymentPaused");
        assert_eq!(progressing(true, TIMED_OUT), "True ProgressDeadlineExceeded", "unchanged");
        assert_eq!(progressing(true, PAUSED), "True DeploymentPaused", "unchanged");
        let resumed = World::new(
            deployment_with(
                json!({ "progressDeadlineSeconds": 600 }),
                json!({}),
                json!({ "replicas": 3, "updatedReplicas": 3, "readyReplicas": 2, "availableReplicas": 2,
                    "conditions": [{ "type": "Progressing", "status": "Unknown", "reason": PAUSED }] }),
            ),
            &["a new 3/2"],
        );
        let status = status_of(&resumed);
        assert_eq!(reason(&status, PROGRESSING), "Unknown DeploymentResumed");
        assert_eq!(status.condition(PROGRESSING).unwrap().last_update, Some(crate::testing::NOW), "it counts from now");
    }

    #[test]
    fn acceptance_deploy_067_a_deadline_that_is_set_later_begins_with_the_set_that_was_found() {
        let spec = json!({ "progressDeadlineSeconds": 600 });
        let stored = json!({ "replicas": 3, "updatedReplicas": 3, "readyReplicas": 2, "availableReplicas": 2 });
        let world = World::new(deployment_with(spec, json!({}), stored), &["a new 3/2"]);
        let status = status_of(&world);
        assert_eq!(reason(&status, PROGRESSING), "True FoundNewReplicaSet");
        assert_eq!(&*status.condition(PROGRESSING).unwrap().message, "Found new replica set \"a\"");
    }

    #[test]
    fn a_rollout_to_a_set_that_exists_restarts_the_deadline() {
        let progressing = |stored_revision: Value, paused: bool| {
            let condition = json!({ "type": "Progressing", "status": "False", "reason": TIMED_OUT,
                "lastUpdateTime": at(-50), "lastTransitionTime": at(-50) });
            let stored =
                json!({ "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "conditions": [condition] });
            let spec = json!({ "progressDeadlineSeconds": 600, "paused": paused });
            let metadata = json!({ "annotations": { REVISION: stored_revision } });
            let world =
                World::new(deployment_with(spec, metadata, stored), &["a new 0 revision:3", "b old 3 revision:2"]);
            reason(&status_of(&world), PROGRESSING)
        };
        assert_eq!(progressing(json!("2"), false), "True FoundNewReplicaSet");
        assert_eq!(progressing(json!("3"), false), "False ProgressDeadlineExceeded", "it has begun before");
        assert_eq!(progressing(json!("2"), true), "False ProgressDeadlineExceeded", "it does not begin");
    }

    #[test]
    fn the_creation_of_a_set_is_shown() {
        let spec = json!({ "progressDeadlineSeconds": 600 });
        let stored = json!({ "replicas": 3, "readyReplicas": 3, "availableReplicas": 3 });
        let world = World::new(deployment_with(spec, json!({}), stored), &["b old 3 revision:1"]);
        let snapshot = world.snapshot();
        let status = |created: Created| next_status(&snapshot, &plan(&snapshot), &created);
        let created = status(Created::Set { name: "d-h".into(), replicas: 1 });
        assert_eq!(reason(&created, PROGRESSING), "True NewReplicaSetCreated");
        assert_eq!(numbers(&created), [3, 0, 3, 3, 1]);
        let refused = status(Created::Refused("no".to_owned()));
        assert_eq!(reason(&refused, PROGRESSING), "False ReplicaSetCreateError");
        assert_eq!(status(Created::Collision).collision_count, Some(1));
    }

    #[test]
    fn only_counters_in_mid_rollout_wait_for_further_changes() {
        let condition = |reason: &str, age: i64| {
            json!({ "type": "Progressing", "status": "True", "reason": reason, "message": "m",
                "lastUpdateTime": at(-age), "lastTransitionTime": at(-500) })
        };
        let status = |counts: [i32; 3], generation: i64, condition: &Value| {
            let [replicas, updated, available] = counts;
            let status = json!({ "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available,
                "observedGeneration": generation, "conditions": [condition] });
            deployment_with(json!({}), json!({}), status)
        };
        let running = condition("ReplicaSetUpdated", 9);
        let stored = status([4, 1, 3], 1, &running);
        let change = |counts: [i32; 3], generation: i64, condition: &Value| {
            status_change(&stored, None, &status(counts, generation, condition).status)
        };
        assert_eq!(change([4, 1, 3], 1, &running), StatusChange::None);
        assert_eq!(change([4, 2, 3], 1, &condition("ReplicaSetUpdated", 1)), StatusChange::Counters);
        assert_eq!(change([3, 3, 3], 1, &running), StatusChange::Urgent, "the end");
        assert_eq!(change([4, 2, 3], 2, &running), StatusChange::Urgent, "a generation is observed");
        assert_eq!(change([4, 2, 3], 1, &condition("ProgressDeadlineExceeded", 9)), StatusChange::Urgent);
        assert_eq!(status_change(&stored, Some("2"), &stored.status), StatusChange::Urgent, "a revision");
    }

    #[test]
    fn acceptance_deploy_072_the_observed_generation_is_that_of_the_copy_also_while_paused_or_deleting() {
        for (spec, metadata) in [
            (json!({}), json!({ "generation": 7 })),
            (json!({ "paused": true }), json!({ "generation": 7 })),
            (json!({}), json!({ "generation": 7, "deletionTimestamp": at(-5) })),
        ] {
            let world = World::new(deployment_with(spec, metadata, json!({})), &["a new 3"]);
            assert_eq!(status_of(&world).observed_generation, 7);
        }
    }
}
