//! The guarantees of the Job controller for pods.

use std::time::Duration;

use clock::Instant;
use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    book::{Book, Job, LAG, Phase, Pod, controller, count, holds, indexes},
    counting,
};

type Held = Result<(), String>;

/// The maximum difference of two machines' wall clocks, in either direction, after rounding to whole seconds.
const CLOCKS_DIFFER: Duration = Duration::from_secs(33);
/// The maximum time from a read of a Job to the store of an adoption that depends on it. No term continues longer
/// without a renewal.
const ADOPTS_WITHIN: Duration = Duration::from_secs(15);

/// Records a write in the book, and returns the broken guarantee.
pub(super) fn look(book: &mut Book, write: &Write, now: Instant) -> Held {
    match &*write.resource() {
        "pods" => pod(book, write, now),
        "jobs.batch" => counting::job(book, write, now),
        _ => Ok(()),
    }
}

pub(super) fn by_manager(write: &Write) -> bool {
    write.by != "world"
}

fn pod(book: &mut Book, write: &Write, now: Instant) -> Held {
    let after = write.after();
    let object = after.as_ref().cloned().or_else(|| write.before()).unwrap_or_default();
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let before = book.pods.get(&uid).cloned();
    let mut next = before.clone().unwrap_or_default();
    next.read(&object, now);
    next.gone = after.is_none();
    let held = if by_manager(write) {
        if write.change() == Change::Added {
            next.made = next.job.clone().map(|job| (job, write.by.to_owned()));
        }
        match before {
            None => made(book, &next, &object, now),
            Some(before) => {
                let lost = before.tracked && !next.tracked && !next.gone;
                next.released |= lost && next.job == before.job && is_under_way(book, before.job.as_deref());
                next.given_up |= lost && before.works();
                next.deleted_by_manager |= before.is_active() && !next.is_active();
                let held = if lost { let_go(book, &before, &next, now) } else { Ok(()) };
                let adopted = before.job.is_none() && next.job.is_some();
                held.and_then(|()| if adopted { adoption(book, &before, &next, now) } else { Ok(()) })
            }
        }
    } else {
        let before = before.unwrap_or_else(|| next.clone());
        next.touched |= before.labels != next.labels || before.job != next.job;
        // Removed in spite of our finalizer, so it will not be counted.
        next.given_up |= next.gone && before.tracked;
        Ok(())
    };
    let jobs = next.of.clone();
    let name = next.name.clone();
    book.pods.insert(uid, next);
    jobs.iter().for_each(|it| book.weigh(it, now));
    held.map_err(|why| format!("{} on pod {name}: {why}", write.by))
}

fn is_under_way(book: &Book, job: Option<&str>) -> bool {
    job.and_then(|it| book.jobs.get(it)).is_some_and(|it| it.ends.is_none() && !it.is_finished())
}

/// Checks a pod that a manager creates.
fn made(book: &Book, pod: &Pod, object: &Value, now: Instant) -> Held {
    let uid = pod.job.as_deref().ok_or("makes a pod without a Job")?;
    let job = book.jobs.get(uid).ok_or("makes a pod for a Job that never was")?;
    if job.is_foreign() {
        return Err("makes a pod for a Job of another controller".to_owned());
    }
    if !pod.tracked {
        return Err("makes a pod without finalizer".to_owned());
    }
    if job.is_finished() {
        return Err(format!("makes a pod for {}, which is finished", job.name));
    }
    if job.ends.is_some_and(|it| it + LAG < now) {
        return Err(format!("makes a pod for {}, which is long gone", job.name));
    }
    let (parallelism, completions) = job.most(now);
    let working = |it: &&Pod| it.is_active() || (job.waits_for_the_end() && it.works());
    let active = count(book.pods_of(uid).filter(working).count()) + 1;
    if active > parallelism {
        return Err(format!("more active than parallelism: {active} pods of {}, which wants {parallelism}", job.name));
    }
    if job.is_indexed() {
        index(book, job, pod, completions, working)?;
    }
    waits(book, job, pod, now)?;
    failures(book, job, pod)?;
    creation_limit(book, job, pod, parallelism)?;
    form(job, object)
}

/// No index has two active pods, and no pod is created for an index that is completed or not wanted.
fn index(book: &Book, job: &Job, pod: &Pod, completions: i64, working: impl Fn(&&Pod) -> bool) -> Held {
    let index = pod.index.ok_or("makes a pod without an index")?;
    if index >= completions {
        return Err(format!("makes a pod for index {index} of {}, which has {completions}", job.name));
    }
    if let Some(other) = book.pods_of(&job.uid).find(|it| working(it) && it.index == Some(index)) {
        return Err(format!("two active pods for one index: {index} of {} has {}", job.name, other.name));
    }
    let status = &job.object["status"];
    for list in ["completedIndexes", "failedIndexes"] {
        if indexes(&status[list]).contains(&index) {
            return Err(format!("makes a pod for index {index} of {}, which is among {list}", job.name));
        }
    }
    Ok(())
}

/// Checks the back-off after failures. The book uses only failures whose pods still exist, because a new controller can
/// observe only these.
fn waits(book: &Book, job: &Job, pod: &Pod, now: Instant) -> Held {
    let by_index = !job.spec("backoffLimitPerIndex").is_null();
    let own = |it: &&Pod| it.of.contains(&job.uid) && (!by_index || it.index == pod.index);
    // The back-off of an index is stored on its pods alone. It is lost when a pod was removed without being counted.
    if by_index && book.pods.values().filter(own).any(|it| it.given_up) {
        return Ok(());
    }
    // A new controller cannot recognize a pod that lost its owner reference after it was counted.
    let of = |it: &&Pod| own(it) && !it.given_up && (it.job.is_some() || it.tracked);
    let ended = |phase: Phase| {
        book.pods.values().filter(of).filter(move |it| it.phase == phase).filter_map(|it| Some((it.ended?, it.gone)))
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
            "back-off: {} failures of {}, and the next try is {since:?} later",
            failed.len(),
            job.name
        ));
    }
    Ok(())
}

/// Checks the index failure count of a new pod.
fn failures(book: &Book, job: &Job, pod: &Pod) -> Held {
    if job.spec("backoffLimitPerIndex").is_null() || job.is_elastic() {
        return Ok(());
    }
    let of = |it: &&Pod| it.of.contains(&job.uid) && it.index == pod.index;
    // The count is stored on pods alone. It is lost with a pod that was removed or released without being counted.
    if book.pods.values().filter(of).any(|it| it.given_up || (it.touched && !it.is_of(&job.uid))) {
        return Ok(());
    }
    let counts = |it: &&Pod| it.phase == Phase::Failed && it.released && !it.ignored && !it.touched;
    let failed = book.pods.values().filter(of).filter(counts);
    let released = count(failed.count());
    let noted = pod.failures.unwrap_or(-1);
    if noted < released {
        return Err(format!(
            "index {:?} of {} failed {released} times, and its next pod says {noted}",
            pod.index, job.name
        ));
    }
    Ok(())
}

/// Limits the active pods that were created for a Job, also those that no longer belong to it. A pod that another
/// manager created and that lost its owner reference cannot be recognized, so it does not count.
fn creation_limit(book: &Book, job: &Job, pod: &Pod, parallelism: i64) -> Held {
    let by = pod.made.as_ref().map(|it| &it.1);
    let out = book.pods.values().filter(|it| {
        let own = |(made_for, made_by): &(String, String)| {
            *made_for == job.uid && (Some(made_by) == by || it.is_of(&job.uid))
        };
        it.made.as_ref().is_some_and(own) && it.is_active()
    });
    let out = count(out.count()) + 1;
    if out > parallelism.saturating_mul(2) {
        return Err(format!("the creation limit: {out} pods of {} are out, and it wants {parallelism}", job.name));
    }
    Ok(())
}

/// A new pod must match its Job's template, and be owned by the Job.
fn form(job: &Job, pod: &Value) -> Held {
    let labels = job.object["spec"]["template"]["metadata"]["labels"].as_object();
    let kept = labels.is_some_and(|it| it.iter().all(|(label, value)| pod["metadata"]["labels"][label] == *value));
    let owner = controller(pod).ok_or("a pod without owner")?;
    if !kept || owner["name"] != job.name.as_str() || pod["metadata"]["namespace"] != job.namespace.as_str() {
        return Err(format!("a pod of {} is not as its template says", job.name));
    }
    Ok(())
}

/// Checks the removal of a finalizer by a manager.
fn let_go(book: &mut Book, before: &Pod, after: &Pod, now: Instant) -> Held {
    if before.foreign {
        return Err("takes the finalizer of a pod that another kind controls".to_owned());
    }
    let Some(uid) = before.job.clone() else { return Ok(()) };
    book.weigh(&uid, now);
    let Some(job) = book.jobs.get(&uid) else { return Ok(()) };
    if job.is_foreign() {
        return Err(format!("takes the finalizer of a pod of {}, which another controller has", job.name));
    }
    if job.ends.is_some() || job.is_finished() {
        return Ok(());
    }
    if after.job != before.job {
        let same =
            if before.touched { Ok(()) } else { Err(format!("lets a pod of {} go, which is its own", job.name)) };
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
        Phase::Works => job.may_shrink(now) || (holds(&job.object, "SuccessCriteriaMet") && before.deleting),
    };
    if counted {
        Ok(())
    } else {
        Err(format!("let go before it is counted: it is {:?}, of {}", before.phase, job.name))
    }
}

/// Checks an adoption by a manager.
fn adoption(book: &Book, before: &Pod, after: &Pod, now: Instant) -> Held {
    let job = after.job.as_deref().and_then(|it| book.jobs.get(it)).ok_or("adopts for a Job that never was")?;
    if job.ends.is_some_and(|it| it + ADOPTS_WITHIN < now) {
        return Err(format!("adopts for {}, which is gone", job.name));
    }
    if before.foreign || job.is_foreign() {
        return Err(format!("adopts what is not its own, for {}", job.name));
    }
    if !after.tracked {
        return Err(format!("adopts for {} without finalizer", job.name));
    }
    Ok(())
}
