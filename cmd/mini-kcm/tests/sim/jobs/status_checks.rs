//! The guarantees for a Job's status: every ended pod is counted exactly once.

use clock::Instant;
use serde_json::Value;
use testing::sim::Write;

use super::{
    condition_checks,
    model::{Job, Model, Phase, count, has_condition, indexes, is_finished, uncounted},
    pod_checks::by_manager,
};

type Checked = Result<(), String>;

/// Records a write of a Job in the model, and returns the broken guarantee.
pub(super) fn check_job_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    let before = write.before().unwrap_or_default();
    let Some(after) = write.after() else {
        let uid = before["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(job) = model.jobs.get_mut(uid) {
            job.gone = true;
            job.deleted_since.get_or_insert(now);
        }
        return if by_manager(write) { Err(format!("{} removes a Job", write.by)) } else { Ok(()) };
    };
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let held = if by_manager(write) { check_status(model, &uid, &before, &after, write.by) } else { Ok(()) };
    let job = model.jobs.entry(uid.clone()).or_default();
    if by_manager(write) && is_finished(&after) && !is_finished(&before) {
        job.finished_by = Some(write.by.to_owned());
    }
    job.update_from(after, now);
    let name = job.name.clone();
    model.record_surplus(&uid, now);
    held.map_err(|why| format!("{} on Job {name}: {why}", write.by))
}

fn check_status(model: &mut Model, uid: &str, before: &Value, after: &Value, by: &str) -> Checked {
    if before.is_null() {
        return Err("creates a Job".to_owned());
    }
    if before["spec"] != after["spec"] || before["metadata"]["finalizers"] != after["metadata"]["finalizers"] {
        return Err("changes more than the status".to_owned());
    }
    let known = model.jobs.get(uid).ok_or("a Job that never existed")?;
    if known.is_foreign() {
        return Err("another controller manages the Job".to_owned());
    }
    if is_finished(before) {
        return Err(format!("changes the status of a finished Job: it was finished by {:?}", known.finished_by));
    }
    check_uncounted(model, uid, before, after)?;
    let job = model.jobs.get(uid).ok_or("a Job that never existed")?;
    check_counters(job, after)?;
    if job.is_indexed() {
        check_completed_indexes(model, job, before, after)?;
        check_failed_indexes(model, job, before, after)?;
    }
    condition_checks::check_conditions(model, job, before, after)?;
    if is_finished(after) { check_finished(model, job, after, by) } else { Ok(()) }
}

/// Checks the uids that are added to the lists, and those that are removed.
fn check_uncounted(model: &mut Model, uid: &str, before: &Value, after: &Value) -> Checked {
    for (list, as_failed) in [("succeeded", false), ("failed", true)] {
        let (old, new) = (uncounted(before, list), uncounted(after, list));
        for pod in new.iter().filter(|it| !old.contains(it)) {
            check_counted_pod(model, uid, after, pod, as_failed)?;
            if let Some(job) = model.jobs.get_mut(uid) {
                job.counted.insert(pod.clone(), (as_failed, false));
            }
        }
        for pod in old.iter().filter(|it| !new.contains(it)) {
            let known = model.pods.get(pod).ok_or_else(|| format!("{pod} is not the uid of any pod"))?;
            // A pod without its owner reference no longer belongs to the Job.
            if known.tracked && !known.gone && known.job.as_deref() == Some(uid) {
                return Err(format!("{} leaves {list}, but still has its finalizer", known.name));
            }
            if let Some(it) = model.jobs.get_mut(uid).and_then(|it| it.counted.get_mut(pod)) {
                it.1 = true;
            }
        }
    }
    Ok(())
}

fn check_counted_pod(model: &Model, uid: &str, after: &Value, pod: &str, as_failed: bool) -> Checked {
    let known = model.pods.get(pod).ok_or_else(|| format!("counts {pod}, which is not the uid of any pod"))?;
    let name = &known.name;
    if !known.jobs_ever.iter().any(|it| it == uid) {
        return Err(format!("counts {name}, which never was a pod of this Job"));
    }
    let job = model.jobs.get(uid).ok_or("a Job that never existed")?;
    if job.counted.contains_key(pod) {
        return Err(format!("counted twice: {name}"));
    }
    if known.finalizer_removed_for.as_deref() == Some(uid) && known.is_controlled_by(uid) {
        return Err(format!("counts {name} after its finalizer was removed"));
    }
    if known.deleted_by_manager && has_condition(after, "SuccessCriteriaMet") {
        return Err(format!("counts {name}, which was deleted because its Job succeeded"));
    }
    let ended = match known.phase {
        Phase::Succeeded => true,
        Phase::Failed => as_failed,
        // A pod that a user deleted counts as failed. When the Job has failed, all running pods count as failed.
        Phase::Running => as_failed && (known.may_have_failed() || has_condition(after, "FailureTarget")),
    };
    if ended { Ok(()) } else { Err(format!("counts {name} as {}, but it is {:?}", word(as_failed), known.phase)) }
}

fn word(as_failed: bool) -> &'static str {
    if as_failed { "failed" } else { "succeeded" }
}

/// A counter is the number of uids that have left its list.
fn check_counters(job: &Job, after: &Value) -> Checked {
    let left = |as_failed: bool| count(job.counted.values().filter(|it| **it == (as_failed, true)).count());
    let status = &after["status"];
    for (field, as_failed) in [("succeeded", false), ("failed", true)] {
        if job.is_indexed() && !as_failed {
            continue;
        }
        let (stored, left) = (status[field].as_i64().unwrap_or(0), left(as_failed));
        if stored != left {
            return Err(format!("the status has {field}={stored}, but {left} pods were counted"));
        }
    }
    Ok(())
}

/// An index is complete when one of its pods has succeeded, and it stays complete.
fn check_completed_indexes(model: &Model, job: &Job, before: &Value, after: &Value) -> Checked {
    let (old, new) = (indexes(&before["status"]["completedIndexes"]), indexes(&after["status"]["completedIndexes"]));
    let succeeded = after["status"]["succeeded"].as_i64().unwrap_or(0);
    if succeeded != count(new.len()) {
        return Err(format!("the status has succeeded={succeeded}, but {} indexes are complete", new.len()));
    }
    let most = job.completions().unwrap_or(0);
    if let Some(lost) = old.iter().find(|it| !new.contains(it) && **it < most) {
        return Err(format!("index {lost} is no longer complete"));
    }
    let succeeds = |index: i64| {
        let mut pods = model.pods.values().filter(|it| it.jobs_ever.contains(&job.uid));
        let is_neutral = |it: &super::model::Pod| it.deleted_by_manager && has_condition(after, "SuccessCriteriaMet");
        pods.any(|it| it.index == Some(index) && it.phase == Phase::Succeeded && !is_neutral(it))
    };
    match new.iter().find(|it| !succeeds(**it)) {
        Some(index) => Err(format!("index {index} is complete, but none of its pods has succeeded")),
        None => Ok(()),
    }
}

/// An index has failed when more of its pods failed than allowed.
fn check_failed_indexes(model: &Model, job: &Job, before: &Value, after: &Value) -> Checked {
    let (old, new) = (indexes(&before["status"]["failedIndexes"]), indexes(&after["status"]["failedIndexes"]));
    let most = job.completions().unwrap_or(0);
    if let Some(lost) = old.iter().find(|it| !new.contains(it) && **it < most) {
        return Err(format!("index {lost} is no longer failed"));
    }
    let limit = job.spec("backoffLimitPerIndex").as_i64().unwrap_or(0);
    let strict = job.spec("podFailurePolicy").is_null();
    for index in new.iter().filter(|it| !old.contains(it)) {
        let pods = model.pods.values().filter(|it| it.jobs_ever.contains(&job.uid) && it.index == Some(*index));
        let failures = count(pods.filter(|it| it.may_have_failed()).count());
        if failures <= limit && strict {
            return Err(format!("index {index} has failed with {failures} failures, but its limit is {limit}"));
        }
        if failures == 0 {
            return Err(format!("index {index} has failed, but none of its pods has failed"));
        }
    }
    Ok(())
}

/// A Job is finished only after all of its pods have ended.
fn check_finished(model: &Model, job: &Job, after: &Value, by: &str) -> Checked {
    let own = |it: &&super::model::Pod| it.created_for.as_ref().is_some_and(|it| it.1 == by);
    if let Some(pod) = model.pods_of(&job.uid).filter(own).find(|it| it.tracked && !it.gone) {
        return Err(format!("the Job is finished before all its pods have ended: {} is {:?}", pod.name, pod.phase));
    }
    let succeeded = after["status"]["succeeded"].as_i64().unwrap_or(0);
    let conditions = after["status"]["conditions"].as_array();
    let complete = conditions.into_iter().flatten().find(|it| it["type"] == "Complete" && it["status"] == "True");
    // An announced success stays valid, also when completions were increased later.
    let enough = job.is_elastic() || succeeded >= job.completions().unwrap_or(1);
    let reached = complete.is_none_or(|it| it["reason"] != "CompletionsReached" || enough);
    if reached {
        Ok(())
    } else {
        Err(format!("complete with {succeeded} succeeded pods, but completions are {:?}", job.completions()))
    }
}
