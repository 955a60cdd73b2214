//! The guarantees for a Job's status: every ended pod is counted exactly once.

use clock::Instant;
use serde_json::Value;
use testing::sim::Write;

use super::{
    book::{Book, Job, Phase, count, holds, indexes, is_finished, uncounted},
    outcome,
    promises::by_manager,
};

type Held = Result<(), String>;

/// Records a write of a Job in the book, and returns the broken guarantee.
pub(super) fn job(book: &mut Book, write: &Write, now: Instant) -> Held {
    let before = write.before().unwrap_or_default();
    let Some(after) = write.after() else {
        let uid = before["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(job) = book.jobs.get_mut(uid) {
            job.gone = true;
            job.ends.get_or_insert(now);
        }
        return if by_manager(write) { Err(format!("{} removes a Job", write.by)) } else { Ok(()) };
    };
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let held = if by_manager(write) { status(book, &uid, &before, &after, write.by) } else { Ok(()) };
    let job = book.jobs.entry(uid.clone()).or_default();
    if by_manager(write) && is_finished(&after) && !is_finished(&before) {
        job.finished_by = Some(write.by.to_owned());
    }
    job.read(after, now);
    let name = job.name.clone();
    book.weigh(&uid, now);
    held.map_err(|why| format!("{} on Job {name}: {why}", write.by))
}

fn status(book: &mut Book, uid: &str, before: &Value, after: &Value, by: &str) -> Held {
    if before.is_null() {
        return Err("makes a Job".to_owned());
    }
    if before["spec"] != after["spec"] || before["metadata"]["finalizers"] != after["metadata"]["finalizers"] {
        return Err("changes more than the status".to_owned());
    }
    let known = book.jobs.get(uid).ok_or("a Job that never was")?;
    if known.is_foreign() {
        return Err("another controller has it".to_owned());
    }
    if is_finished(before) {
        return Err(format!("re-opened: it is finished, by {:?}", known.finished_by));
    }
    lists(book, uid, before, after)?;
    let job = book.jobs.get(uid).ok_or("a Job that never was")?;
    counters(job, after)?;
    if job.is_indexed() {
        completed(book, job, before, after)?;
        failed(book, job, before, after)?;
    }
    outcome::outcome(book, job, before, after)?;
    if is_finished(after) { finished(book, job, after, by) } else { Ok(()) }
}

/// Checks the uids that are added to the lists, and those that are removed.
fn lists(book: &mut Book, uid: &str, before: &Value, after: &Value) -> Held {
    for (list, as_failed) in [("succeeded", false), ("failed", true)] {
        let (old, new) = (uncounted(before, list), uncounted(after, list));
        for pod in new.iter().filter(|it| !old.contains(it)) {
            enters(book, uid, after, pod, as_failed)?;
            if let Some(job) = book.jobs.get_mut(uid) {
                job.counted.insert(pod.clone(), (as_failed, false));
            }
        }
        for pod in old.iter().filter(|it| !new.contains(it)) {
            let known = book.pods.get(pod).ok_or_else(|| format!("{pod} was never a pod"))?;
            // A pod without its owner reference no longer belongs to the Job.
            if known.tracked && !known.gone && known.job.as_deref() == Some(uid) {
                return Err(format!("{} leaves {list}, and has its finalizer still", known.name));
            }
            if let Some(it) = book.jobs.get_mut(uid).and_then(|it| it.counted.get_mut(pod)) {
                it.1 = true;
            }
        }
    }
    Ok(())
}

fn enters(book: &Book, uid: &str, after: &Value, pod: &str, as_failed: bool) -> Held {
    let known = book.pods.get(pod).ok_or_else(|| format!("counts {pod}, which was never a pod's uid"))?;
    let name = &known.name;
    if !known.of.iter().any(|it| it == uid) {
        return Err(format!("counts {name}, which was never a pod of it"));
    }
    let job = book.jobs.get(uid).ok_or("a Job that never was")?;
    if job.counted.contains_key(pod) {
        return Err(format!("counted twice: {name}"));
    }
    if known.released && known.is_of(uid) {
        return Err(format!("counts {name} after it let it go"));
    }
    if known.deleted_by_manager && holds(after, "SuccessCriteriaMet") {
        return Err(format!("counts {name}, which went with the success of its Job"));
    }
    let ended = match known.phase {
        Phase::Succeeded => true,
        Phase::Failed => as_failed,
        // A pod that a user deleted counts as failed. When the Job has failed, all running pods count as failed.
        Phase::Works => as_failed && (known.may_have_failed() || holds(after, "FailureTarget")),
    };
    if ended { Ok(()) } else { Err(format!("counts {name} as {}, and it is {:?}", word(as_failed), known.phase)) }
}

fn word(as_failed: bool) -> &'static str {
    if as_failed { "failed" } else { "succeeded" }
}

/// A counter is the number of uids that have left its list.
fn counters(job: &Job, after: &Value) -> Held {
    let left = |as_failed: bool| count(job.counted.values().filter(|it| **it == (as_failed, true)).count());
    let status = &after["status"];
    for (field, as_failed) in [("succeeded", false), ("failed", true)] {
        if job.is_indexed() && !as_failed {
            continue;
        }
        let (stored, left) = (status[field].as_i64().unwrap_or(0), left(as_failed));
        if stored != left {
            return Err(format!("{stored} pods are {field} by its status, and {left} were counted"));
        }
    }
    Ok(())
}

/// An index is complete when one of its pods has succeeded, and it stays complete.
fn completed(book: &Book, job: &Job, before: &Value, after: &Value) -> Held {
    let (old, new) = (indexes(&before["status"]["completedIndexes"]), indexes(&after["status"]["completedIndexes"]));
    let succeeded = after["status"]["succeeded"].as_i64().unwrap_or(0);
    if succeeded != count(new.len()) {
        return Err(format!("{succeeded} have succeeded by its status, and {} indexes are complete", new.len()));
    }
    let most = job.completions().unwrap_or(0);
    if let Some(lost) = old.iter().find(|it| !new.contains(it) && **it < most) {
        return Err(format!("index {lost} is complete no more"));
    }
    let succeeds = |index: i64| {
        let mut pods = book.pods.values().filter(|it| it.of.contains(&job.uid));
        let is_neutral = |it: &super::book::Pod| it.deleted_by_manager && holds(after, "SuccessCriteriaMet");
        pods.any(|it| it.index == Some(index) && it.phase == Phase::Succeeded && !is_neutral(it))
    };
    match new.iter().find(|it| !succeeds(**it)) {
        Some(index) => Err(format!("index {index} is complete, and no pod of it has succeeded")),
        None => Ok(()),
    }
}

/// An index has failed when more of its pods failed than allowed.
fn failed(book: &Book, job: &Job, before: &Value, after: &Value) -> Held {
    let (old, new) = (indexes(&before["status"]["failedIndexes"]), indexes(&after["status"]["failedIndexes"]));
    let most = job.completions().unwrap_or(0);
    if let Some(lost) = old.iter().find(|it| !new.contains(it) && **it < most) {
        return Err(format!("index {lost} has failed no more"));
    }
    let limit = job.spec("backoffLimitPerIndex").as_i64().unwrap_or(0);
    let strict = job.spec("podFailurePolicy").is_null();
    for index in new.iter().filter(|it| !old.contains(it)) {
        let pods = book.pods.values().filter(|it| it.of.contains(&job.uid) && it.index == Some(*index));
        let failures = count(pods.filter(|it| it.may_have_failed()).count());
        if failures <= limit && strict {
            return Err(format!("index {index} has failed with {failures} failures, and may have {limit}"));
        }
        if failures == 0 {
            return Err(format!("index {index} has failed, and none of its pods did"));
        }
    }
    Ok(())
}

/// A Job is finished only after all of its pods have ended.
fn finished(book: &Book, job: &Job, after: &Value, by: &str) -> Held {
    let own = |it: &&super::book::Pod| it.made.as_ref().is_some_and(|it| it.1 == by);
    if let Some(pod) = book.pods_of(&job.uid).filter(own).find(|it| it.tracked && !it.gone) {
        return Err(format!("finished before all its pods are: {} is {:?}", pod.name, pod.phase));
    }
    let succeeded = after["status"]["succeeded"].as_i64().unwrap_or(0);
    let conditions = after["status"]["conditions"].as_array();
    let complete = conditions.into_iter().flatten().find(|it| it["type"] == "Complete" && it["status"] == "True");
    // An announced success stays valid, also when completions were increased later.
    let enough = job.is_elastic() || succeeded >= job.completions().unwrap_or(1);
    let reached = complete.is_none_or(|it| it["reason"] != "CompletionsReached" || enough);
    if reached { Ok(()) } else { Err(format!("complete with {succeeded} successes of {:?}", job.completions())) }
}
