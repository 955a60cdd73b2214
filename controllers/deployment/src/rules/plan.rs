//! What a sync does (`syncDeployment`).

use api::{DeploymentStrategy, ReplicaSet};

use crate::rules::{
    annotations::{self, Annotations, DESIRED_REPLICAS, MAX_REPLICAS},
    history,
    limits::Limits,
    progress::is_complete,
    rollback::{self, Rollback},
    rollout,
    scale::proportional,
    snapshot::{Snapshot, size},
    template,
};

/// The writes of a sync, in this order. The status follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The new ReplicaSet to create.
    pub(crate) create: Option<Creation>,
    /// The changes of ReplicaSets that exist.
    pub(crate) changes: Vec<SetChange>,
    /// The positions of the ReplicaSets to delete.
    pub(crate) delete: Vec<usize>,
    /// The rollback to execute. The status is left to the next sync.
    pub(crate) rollback: Option<Rollback>,
    /// The revision of the Deployment afterwards; `None` if it stays as it is.
    pub(crate) revision: Option<String>,
    /// Whether the status reports the progress of a rollout.
    pub(crate) reports_progress: bool,
    /// What prevents the rollout.
    pub(crate) problem: Option<Problem>,
}

/// The ReplicaSet to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creation {
    /// Its size.
    pub(crate) replicas: i32,
    /// Its revision.
    pub(crate) revision: i64,
}

/// A change of a ReplicaSet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SetChange {
    /// Its position.
    pub(crate) at: usize,
    /// Its next size.
    pub(crate) replicas: Option<i32>,
    /// Its next `minReadySeconds`.
    pub(crate) min_ready_seconds: Option<i32>,
    /// The annotations to set.
    pub(crate) annotations: Annotations,
}

/// Why a rollout does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The server stored the new ReplicaSet, at this position, with another template. Another one would be changed too.
    TemplateChanged(usize),
    /// The strategy is not known.
    Strategy(String),
}

/// Decides what to do for a Deployment.
pub(crate) fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let deployment = snapshot.deployment;
    let mut builder = PlanBuilder::new(snapshot);
    // The garbage collector deletes or orphans its ReplicaSets.
    if deployment.meta.deletion.is_some() {
        return builder.plan;
    }
    builder.update_new_set();
    if deployment.spec.paused {
        builder.scale();
        if rollback::requested(&deployment.annotations).is_none() {
            builder.delete_surplus();
        }
        return builder.plan;
    }
    if let Some(requested) = rollback::requested(&deployment.annotations) {
        builder.roll_back(requested);
        return builder.plan;
    }
    if is_scaling_event(snapshot) {
        builder.scale();
        return builder.plan;
    }
    builder.plan.reports_progress = true;
    match &deployment.spec.strategy {
        DeploymentStrategy::RollingUpdate => builder.update_rolling(),
        DeploymentStrategy::Recreate => builder.recreate(),
        DeploymentStrategy::Other(other) => builder.plan.problem = Some(Problem::Strategy(other.to_string())),
    }
    builder.plan
}

/// Whether `replicas` has changed since the active ReplicaSets were scaled (`isScalingEvent`).
fn is_scaling_event(snapshot: &Snapshot<'_>) -> bool {
    let replicas = snapshot.deployment.spec.replicas;
    let desired = |set: &ReplicaSet| annotations::replicas(&set.annotations, DESIRED_REPLICAS);
    snapshot.active().filter_map(|(_, set)| desired(set)).any(|it| it != replicas)
}

/// Whether the status of a ReplicaSet has pods. As long as its controller has not observed the last size, it may create pods
/// that no status counts yet.
fn may_have_pods(set: &ReplicaSet) -> bool {
    set.status.replicas > 0 || set.status.observed_generation < set.generation
}

/// A plan while it is made.
struct PlanBuilder<'a> {
    snapshot: &'a Snapshot<'a>,
    limits: Limits,
    plan: Plan,
    /// The ReplicaSet that gets all replicas, now or when it may be scaled up.
    kept: Option<usize>,
}

impl<'a> PlanBuilder<'a> {
    fn new(snapshot: &'a Snapshot<'a>) -> Self {
        Self { snapshot, limits: snapshot.limits(), plan: Plan::default(), kept: None }
    }

    /// Gives the new ReplicaSet the annotations, `minReadySeconds` and revision that it must have (`getNewReplicaSet`).
    fn update_new_set(&mut self) {
        let snapshot = self.snapshot;
        let Some((at, set)) = snapshot.new.zip(snapshot.new_set()) else { return };
        let next = snapshot.next_revision();
        let changes = annotations::annotation_changes(&snapshot.annotations, &snapshot.new_annotations, next);
        let revision = changes.get(annotations::REVISION).or(snapshot.new_annotations.get(annotations::REVISION));
        self.plan.revision = revision.cloned();
        let wanted = snapshot.deployment.spec.min_ready_seconds;
        if !changes.is_empty() || wanted != set.spec.min_ready_seconds {
            let change = self.change(at);
            change.annotations = changes;
            change.min_ready_seconds = (wanted != set.spec.min_ready_seconds).then_some(wanted);
        }
    }

    /// Follows `replicas` without a rollout (`scale`).
    fn scale(&mut self) {
        let snapshot = self.snapshot;
        let active: Vec<usize> = snapshot.active().map(|(at, _)| at).collect();
        let newest_old = || snapshot.old().next_back().map(|(at, _)| at);
        match active[..] {
            [] => {
                self.kept = snapshot.new.or_else(newest_old);
                if let Some(at) = self.kept {
                    self.scale_set(at, self.scaled_size(at));
                }
            }
            // The annotations are written too, or every further sync would take this for a scaling event (k/k#102551).
            [at] if is_scaling_event(snapshot) => self.scale_set_and_annotate(at, self.scaled_size(at)),
            [at] => self.scale_set(at, self.scaled_size(at)),
            _ if self.is_saturated() => self.scale_down_all_old(),
            _ => self.scale_many(),
        }
    }

    /// The size of a ReplicaSet that gets all replicas. With Recreate it is not scaled up while pods of others exist,
    /// also not when the Deployment is paused.
    fn scaled_size(&self, at: usize) -> i64 {
        let Self { snapshot, limits, .. } = self;
        let Some(set) = snapshot.sets.get(at) else { return limits.replicas };
        let recreates = snapshot.deployment.spec.strategy == DeploymentStrategy::Recreate;
        let others_have_pods = snapshot.all().any(|(other, set)| other != at && may_have_pods(set));
        // The new ReplicaSet has no old pods. One without replicas has none either, or only some that are being
        // deleted.
        let old_pods_belong_to_others = snapshot.new == Some(at) || size(set) == 0;
        if recreates && (others_have_pods || (old_pods_belong_to_others && snapshot.has_old_pods)) {
            size(set).min(limits.replicas)
        } else {
            limits.replicas
        }
    }

    /// Whether the new ReplicaSet has all replicas, and they are available (`IsSaturated`). Then an adopted old one is
    /// not needed (k/k#44436).
    fn is_saturated(&self) -> bool {
        let replicas = self.snapshot.deployment.spec.replicas;
        self.snapshot.new_set().is_some_and(|set| {
            set.spec.replicas == replicas
                && annotations::replicas(&set.annotations, DESIRED_REPLICAS) == Some(replicas)
                && set.status.available == replicas
        })
    }

    fn scale_many(&mut self) {
        let Self { snapshot, limits, .. } = *self;
        match snapshot.deployment.spec.strategy {
            DeploymentStrategy::RollingUpdate => {
                let sizes = proportional(snapshot.active(), limits, snapshot.deployment.status.replicas);
                sizes.into_iter().for_each(|(at, size)| self.scale_set_and_annotate(at, size));
            }
            // The strategy was changed in mid-rollout. Upstream writes nothing, and never continues. The new ReplicaSet
            // gets its full size when all old pods are gone.
            DeploymentStrategy::Recreate if !snapshot.deployment.spec.paused => {
                self.scale_down_all_old();
                if let Some((at, set)) = snapshot.new.zip(snapshot.new_set()).filter(|(_, set)| size(set) > 0) {
                    self.scale_set_and_annotate(at, size(set).min(limits.replicas));
                }
            }
            _ => {}
        }
    }

    /// Executes a rollback after the new ReplicaSet exists, so that the present template is not lost.
    fn roll_back(&mut self, requested: i64) {
        let snapshot = self.snapshot;
        let old = snapshot.old();
        let mut revisions: Vec<rollback::Revision> = old
            .filter_map(|(at, set)| Some((annotations::revision(&set.annotations)?, self.unless_present(at, set))))
            .collect();
        match snapshot.new {
            Some(_) => {
                let revision = self.plan.revision.as_ref().and_then(|it| it.parse().ok());
                revisions.extend(revision.map(|it| (it, None)));
            }
            // Without pods: its template is not rolled out. If the server changes it, the rollback needs no copy of it.
            None => {
                if self.create_new_set(0) {
                    revisions.push((snapshot.next_revision(), None));
                }
            }
        }
        self.plan.rollback = Some(rollback::find(requested, &revisions));
    }

    /// The position of an old ReplicaSet, unless it has the template of the Deployment too.
    fn unless_present(&self, at: usize, set: &ReplicaSet) -> Option<usize> {
        let is_present = template::is_equal(&set.spec.template, &self.snapshot.deployment.spec.template);
        (!is_present.is_ok_and(|it| it)).then_some(at)
    }

    /// One step of a rolling update (`rolloutRolling`).
    fn update_rolling(&mut self) {
        let (snapshot, total) = (self.snapshot, self.snapshot.total());
        let new = match snapshot.new.zip(snapshot.new_set()) {
            None => {
                if !self.create_new_set(self.limits.next_size_of_new(0, total)) {
                    return;
                }
                (self.plan.create.map_or(0, |it| i64::from(it.replicas)), 0)
            }
            Some((at, set)) => {
                let next = if size(set) > self.limits.replicas {
                    self.limits.replicas
                } else {
                    self.limits.next_size_of_new(size(set), total)
                };
                if next != size(set) {
                    return self.scale_set(at, next);
                }
                (size(set), rollout::available_of_new(set))
            }
        };
        let scaled_down = rollout::scaled_down_old_sets(snapshot, new);
        let has_no_scale_down = scaled_down.is_empty();
        scaled_down.into_iter().for_each(|(at, size)| self.scale_set(at, size));
        if has_no_scale_down && is_complete(snapshot.deployment, &snapshot.deployment.status) {
            self.delete_surplus();
        }
    }

    /// One step with the strategy Recreate (`rolloutRecreate`): the new ReplicaSet gets pods when all old ones are gone.
    fn recreate(&mut self) {
        let snapshot = self.snapshot;
        if snapshot.new.is_none() && self.has_changed_template() {
            return;
        }
        let has_active_old = snapshot.active_old().next().is_some();
        self.scale_down_all_old();
        let has_old_status = snapshot.old().any(|(_, set)| may_have_pods(set));
        if has_active_old || has_old_status || snapshot.has_old_pods {
            return;
        }
        match snapshot.new {
            None => {
                self.create_new_set(self.limits.replicas);
            }
            Some(at) => self.scale_set(at, self.limits.replicas),
        }
        if is_complete(snapshot.deployment, &snapshot.deployment.status) {
            self.delete_surplus();
        }
    }

    /// Plans the new ReplicaSet with this size; returns false if it cannot be created.
    fn create_new_set(&mut self, size: i64) -> bool {
        if self.has_changed_template() {
            return false;
        }
        let revision = self.snapshot.next_revision();
        self.plan.create = Some(Creation { replicas: to_i32(size), revision });
        self.plan.revision = Some(revision.to_string());
        true
    }

    /// Whether a ReplicaSet has the name for the present template but another template: a webhook changed it, or the server
    /// dropped a field (k/k#57167, k/k#141961). Upstream creates ReplicaSets without end. If the server changes no
    /// templates (`check_template`), it is a collision of names, and the next one gets another name.
    fn has_changed_template(&mut self) -> bool {
        let snapshot = self.snapshot;
        let found = snapshot.all().find(|(_, set)| *set.meta.name == *snapshot.name_of_new);
        self.plan.problem = found.map(|(at, _)| Problem::TemplateChanged(at));
        found.is_some()
    }

    fn scale_down_all_old(&mut self) {
        let snapshot = self.snapshot;
        snapshot.active_old().for_each(|(at, _)| self.scale_set(at, 0));
    }

    /// Deletes old ReplicaSets over the limit, except those that this plan scales up or keeps for that.
    fn delete_surplus(&mut self) {
        let (changes, kept) = (&self.plan.changes, self.kept);
        let is_needed = |at: &usize| kept == Some(*at) || changes.iter().any(|it| it.at == *at);
        self.plan.delete = history::surplus(self.snapshot).into_iter().filter(|it| !is_needed(it)).collect();
    }

    fn scale_set(&mut self, at: usize, next: i64) {
        if self.snapshot.sets.get(at).is_some_and(|it| size(it) != next) {
            self.scale_set_and_annotate(at, next);
        }
    }

    /// Changes the size if it differs, and the annotations about it too (`scaleReplicaSet`).
    fn scale_set_and_annotate(&mut self, at: usize, next: i64) {
        let Some(set) = self.snapshot.sets.get(at) else { return };
        let wanted = [
            (DESIRED_REPLICAS, to_i32(self.limits.replicas).to_string()),
            (MAX_REPLICAS, self.limits.max_total().to_string()),
        ];
        let differing: Vec<(&str, String)> =
            wanted.into_iter().filter(|(key, value)| set.annotations.get(key) != Some(value.as_str())).collect();
        let replicas = (size(set) != next).then(|| to_i32(next));
        if replicas.is_none() && differing.is_empty() {
            return;
        }
        let change = self.change(at);
        change.replicas = replicas;
        change.annotations.extend(differing.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }

    /// The change of a ReplicaSet; a new one is the last.
    fn change(&mut self, at: usize) -> &mut SetChange {
        let changes = &mut self.plan.changes;
        let known = changes.iter().position(|it| it.at == at);
        let index = known.unwrap_or(changes.len());
        if known.is_none() {
            changes.push(SetChange { at, ..SetChange::default() });
        }
        &mut changes[index]
    }
}

/// A size for the API. The sum of `replicas` and the surge may be larger.
fn to_i32(size: i64) -> i32 {
    i32::try_from(size.max(0)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
