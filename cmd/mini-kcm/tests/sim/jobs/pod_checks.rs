//! The guarantees of the Job controller for pods.

use std::time::Duration;

use clock::Instant;
use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    model::{Job, LAG, Model, Phase, Pod, controller, count, has_condition, indexes},
    status_checks,
};

type Checked = Result<(), String>;

/// The maximum difference of two machines' wall clocks, in either direction, after rounding to whole seconds.
const CLOCKS_DIFFER: Duration = Duration::from_secs(33);
/// The maximum time from a read of a Job to the store of an adoption that depends on it. No term continues longer
/// without a renewal.
const ADOPTS_WITHIN: Duration = Duration::from_secs(15);

/// Records a write in the model, and returns the broken guarantee.
pub(super) fn check_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    match &*write.resource() {
        "pods" => check_pod_write(model, write, now),
        "jobs.batch" => status_checks::check_job_write(model, write, now),
        _ => Ok(()),
    }
}

pub(super) fn by_manager(write: &Write) -> bool {
    write.by != "world"
}

fn check_pod_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    let after = write.after();
    let object = after.as_ref().cloned().or_else(|| write.before()).unwrap_or_default();
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let before = model.pods.get(&uid).cloned();
    let mut next = before.clone().unwrap_or_default();
    next.update_from(&object, now);
    next.gone = after.is_none();
    let held = if by_manager(write) {
        if write.change() == Change::Added {
            next.created_for = next.job.clone().map(|job| (job, write.by.to_owned()));
        }
        match before {
            None => check_created_pod(model, &next, &object, now),
            Some(before) => {
                let lost = before.tracked && !next.tracked && !next.gone;
                if lost && next.job == before.job && is_unfinished(model, before.job.as_deref()) {
                    next.finalizer_removed_for.clone_from(&before.job);
                }
                next.uncountable |= lost && before.is_running();
                next.deleted_by_manager |= before.is_active() && !next.is_active();
                let held = if lost { check_finalizer_removal(model, &before, &next, now) } else { Ok(()) };
                let adopted = before.job.is_none() && next.job.is_some();
                held.and_then(|()| if adopted { check_adoption(model, &before, &next, now) } else { Ok(()) })
            }
        }
    } else {
        let before = before.unwrap_or_else(|| next.clone());
        next.changed_by_user |= before.labels != next.labels || before.job != next.job;
        // Removed in spite of our finalizer, so it will not be counted.
        next.uncountable |= next.gone && before.tracked;
        Ok(())
    };
    let jobs = next.jobs_ever.clone();
    let name = next.name.clone();
    model.pods.insert(uid, next);
    jobs.iter().for_each(|it| model.record_surplus(it, now));
    held.map_err(|why| format!("{} on pod {name}: {why}", write.by))
}

fn is_unfinished(model: &Model, job: Option<&str>) -> bool {
    job.and_then(|it| model.jobs.get(it)).is_some_and(|it| it.deleted_since.is_none() && !it.is_finished())
}

/// Checks a pod that a manager creates.
fn check_created_pod(model: &Model, pod: &Pod, object: &Value, now: Instant) -> Checked {
    let uid = pod.job.as_deref().ok_or("creates a pod without a Job")?;
    let job = model.jobs.get(uid).ok_or("creates a pod for a Job that never existed")?;
    if job.is_foreign() {
        return Err("creates a pod for a Job of another controller".to_owned());
    }
    if !pod.tracked {
        return Err("creates a pod without finalizer".to_owned());
    }
    if job.is_finished() {
        return Err(format!("creates a pod for {}, which is finished", job.name));
    }
    if job.deleted_since.is_some_and(|it| it + LAG < now) {
        return Err(format!("creates a pod for {}, which was deleted long ago", job.name));
    }
    let (parallelism, completions) = job.largest_size(now);
    let working = |it: &&Pod| it.is_active() || (job.may_replace_only_ended() && it.is_running());
    let active = count(model.pods_of(uid).filter(working).count()) + 1;
    if active > parallelism {
        return Err(format!(
            "more active than parallelism: {active} pods of {}, whose parallelism is {parallelism}",
            job.name
        ));
    }
    if job.is_indexed() {
        check_index(model, job, pod, completions, working)?;
    }
    check_backoff(model, job, pod, now)?;
    check_failure_count(model, job, pod)?;
    check_creation_limit(model, job, pod, parallelism)?;
    check_template(job, object)
}

/// No index has two active pods, and no pod is created for an index that is completed or not wanted.
fn check_index(model: &Model, job: &Job, pod: &Pod, completions: i64, working: impl Fn(&&Pod) -> bool) -> Checked {
    let index = pod.index.ok_or("creates a pod without an index")?;
    if index >= completions {
        return Err(format!("creates a pod for index {index} of {}, whose completions are {completions}", job.name));
    }
    if let Some(other) = model.pods_of(&job.uid).find(|it| working(it) && it.index == Some(index)) {
        return Err(format!("two active pods for one index: {index} of {} has {}", job.name, other.name));
    }
    let status = &job.object["status"];
    for list in ["completedIndexes", "failedIndexes"] {
        if indexes(&status[list]).contains(&index) {
            return Err(format!("creates a pod for index {index} of {}, which is among {list}", job.name));
        }
    }
    Ok(())
}

/// Checks the back-off after failures. The model uses only failures whose pods still exist, because a new controller
/// can observe only these.
fn check_backoff(model: &Model, job: &Job, pod: &Pod, now: Instant) -> Checked {
    let by_index = !job.spec("backoffLimitPerIndex").is_null();
    let own = |it: &&Pod| it.jobs_ever.contains(&job.uid) && (!by_index || it.index == pod.index);
    // The back-off of an index is stored on its pods alone. It is lost when a pod was removed without being counted.
    if by_index && model.pods.values().filter(own).any(|it| it.uncountable) {
        return Ok(());
    }
    // A new controller cannot recognize a pod that lost its owner reference after it was counted.
    let of = |it: &&Pod| own(it) && !it.uncountable && (it.job.is_some() || it.tracked);
    let ended = |phase: Phase| {
        model.pods.values().filter(of).filter(move |it| it.phase == phase).filter_map(|it| Some((it.ended?, it.gone)))
    };
    let success = ended(Phase::Succeeded).map(|it| it.0).max();
    let failed: Vec<Instant> =
        ended(Phase::Failed).filter(|it| !it.1 && success.is_none_or(|at| it.0 > at)).map(|it| it.0).collect();
    let Some(last) = failed.iter().max() else { return Ok(()) };
    let doublings = u32::try_from(failed.len() - 1).unwrap_or(u32::MAX).min(6);
    let wait = Duration::from_secs(600.min(10 << doublings));
    if *last + wait > now + CLOCKS_DIFFER {
        let since = now.saturating_duration_since(*last);
        return Err(format!(
            "back-off: {} failures of {}, but the next pod is created {since:?} after the last",
            failed.len(),
            job.name
        ));
    }
    Ok(())
}

/// Checks the index failure count of a new pod.
fn check_failure_count(model: &Model, job: &Job, pod: &Pod) -> Checked {
    if job.spec("backoffLimitPerIndex").is_null() || job.is_elastic() {
        return Ok(());
    }
    let of = |it: &&Pod| it.jobs_ever.contains(&job.uid) && it.index == pod.index;
    // The count is stored on pods alone. It is lost with a pod that was removed, or lost its finalizer, without being
    // counted.
    if model.pods.values().filter(of).any(|it| it.uncountable || (it.changed_by_user && !it.is_controlled_by(&job.uid)))
    {
        return Ok(());
    }
    let counts = |it: &&Pod| {
        it.phase == Phase::Failed && it.finalizer_removed_for.is_some() && !it.ignored && !it.changed_by_user
    };
    let failed = model.pods.values().filter(of).filter(counts);
    let failures = count(failed.count());
    let noted = pod.failures.unwrap_or(-1);
    if noted < failures {
        return Err(format!(
            "index {:?} of {} failed {failures} times, but its next pod has the failure count {noted}",
            pod.index, job.name
        ));
    }
    Ok(())
}

/// Limits the active pods that were created for a Job, also those that no longer belong to it. A pod that another
/// manager created and that lost its owner reference cannot be recognized, so it does not count.
fn check_creation_limit(model: &Model, job: &Job, pod: &Pod, parallelism: i64) -> Checked {
    let by = pod.created_for.as_ref().map(|it| &it.1);
    let out = model.pods.values().filter(|it| {
        let own = |(made_for, made_by): &(String, String)| {
            *made_for == job.uid && (Some(made_by) == by || it.is_controlled_by(&job.uid))
        };
        it.created_for.as_ref().is_some_and(own) && it.is_active()
    });
    let out = count(out.count()) + 1;
    if out > parallelism.saturating_mul(2) {
        return Err(format!(
            "creation limit: {out} active pods were created for {}, whose parallelism is {parallelism}",
            job.name
        ));
    }
    Ok(())
}

/// A new pod must match its Job's template, and be owned by the Job.
fn check_template(job: &Job, pod: &Value) -> Checked {
    let labels = job.object["spec"]["template"]["metadata"]["labels"].as_object();
    let kept = labels.is_some_and(|it| it.iter().all(|(label, value)| pod["metadata"]["labels"][label] == *value));
    let owner = controller(pod).ok_or("creates a pod without owner")?;
    if !kept || owner["name"] != job.name.as_str() || pod["metadata"]["namespace"] != job.namespace.as_str() {
        return Err(format!("creates a pod of {} that does not match its template", job.name));
    }
    Ok(())
}

/// Checks the removal of a finalizer by a manager.
fn check_finalizer_removal(model: &mut Model, before: &Pod, after: &Pod, now: Instant) -> Checked {
    if before.foreign {
        return Err("removes the finalizer of a pod whose controller has another kind".to_owned());
    }
    let Some(uid) = before.job.clone() else { return Ok(()) };
    model.record_surplus(&uid, now);
    let Some(job) = model.jobs.get(&uid) else { return Ok(()) };
    if job.is_foreign() {
        return Err(format!("removes the finalizer of a pod of {}, which another controller manages", job.name));
    }
    if job.deleted_since.is_some() || job.is_finished() {
        return Ok(());
    }
    if after.job != before.job {
        let same = if before.changed_by_user {
            Ok(())
        } else {
            Err(format!("releases a pod of {} that matches its selector", job.name))
        };
        return same;
    }
    if job.counted.contains_key(&before.uid) {
        return Ok(());
    }
    let out_of_range = job.is_indexed() && before.index.is_none_or(|it| it >= job.completions().unwrap_or(0));
    let status = &job.object["status"];
    let counted = match before.phase {
        _ if out_of_range => true,
        Phase::Succeeded => {
            job.is_indexed() && before.index.is_some_and(|it| indexes(&status["completedIndexes"]).contains(&it))
        }
        Phase::Failed => before.ignored && !job.spec("podFailurePolicy").is_null(),
        // A surplus pod, or a pod that was deleted because the Job has succeeded.
        Phase::Running => job.may_shrink(now) || (has_condition(&job.object, "SuccessCriteriaMet") && before.deleting),
    };
    if counted {
        Ok(())
    } else {
        Err(format!("loses its finalizer before it is counted: it is {:?}, of {}", before.phase, job.name))
    }
}

/// Checks an adoption by a manager.
fn check_adoption(model: &Model, before: &Pod, after: &Pod, now: Instant) -> Checked {
    let job =
        after.job.as_deref().and_then(|it| model.jobs.get(it)).ok_or("adopts a pod for a Job that never existed")?;
    if job.deleted_since.is_some_and(|it| it + ADOPTS_WITHIN < now) {
        return Err(format!("adopts a pod for {}, which is deleted", job.name));
    }
    if before.foreign || job.is_foreign() {
        return Err(format!("adopts a pod for {}, but the pod or the Job belongs to another controller", job.name));
    }
    if !after.tracked {
        return Err(format!("adopts a pod for {} without finalizer", job.name));
    }
    Ok(())
}
