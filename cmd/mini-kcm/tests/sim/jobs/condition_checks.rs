//! A Job ends because of its pods and its users, and never because of pods that a controller deleted to end it.

use serde_json::Value;

use super::model::{Job, Model, count, indexes};

type Checked = Result<(), String>;

/// Each announcing condition with its final condition.
const ENDS: [(&str, &str); 2] = [("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")];

/// Checks the conditions of a manager's status write against those before it.
pub(super) fn check_conditions(model: &Model, job: &Job, before: &Value, after: &Value) -> Checked {
    for (announcement, end) in ENDS {
        let (old, new) = (reason(before, announcement), reason(after, announcement));
        match (&old, &new) {
            (None, Some(new)) => check_announcement(model, job, after, new)?,
            (Some(old), new) if new.as_ref() != Some(old) => {
                return Err(format!("the reason of {announcement} changes from {old} to {new:?}"));
            }
            _ => {}
        }
        if let Some(ended) = reason(after, end).filter(|it| new.as_ref() != Some(it)) {
            return Err(format!("{end} has the reason {ended}, but was announced with {new:?}"));
        }
    }
    Ok(())
}

/// The reason of a true condition.
fn reason(job: &Value, condition: &str) -> Option<String> {
    let all = job["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == condition && it["status"] == "True");
    found.map(|it| it["reason"].as_str().unwrap_or_default().to_owned())
}

fn check_announcement(model: &Model, job: &Job, after: &Value, reason: &str) -> Checked {
    match reason {
        "BackoffLimitExceeded" => check_backoff_limit(model, job),
        "SuccessPolicy" => check_success_policy(job, after),
        _ => Ok(()),
    }
}

/// A running pod that a manager deleted does not count as failed.
fn check_backoff_limit(model: &Model, job: &Job) -> Checked {
    let by_index = !job.spec("backoffLimitPerIndex").is_null();
    let limit = job.spec("backoffLimit").as_i64().unwrap_or(if by_index { i64::MAX } else { 6 });
    let own = model.pods.values().filter(|it| it.jobs_ever.contains(&job.uid));
    let failures = count(own.filter(|it| it.may_have_failed()).count());
    if failures <= limit {
        return Err(format!(
            "fails by its back-off limit: {failures} of its pods have failed, but the limit is {limit}"
        ));
    }
    Ok(())
}

fn check_success_policy(job: &Job, after: &Value) -> Checked {
    let done = indexes(&after["status"]["completedIndexes"]);
    let rules = job.spec("successPolicy")["rules"].as_array();
    let is_met = |rule: &&Value| {
        let wanted = rule["succeededIndexes"].as_str().map(|_| indexes(&rule["succeededIndexes"]));
        let of_those = done.iter().filter(|it| wanted.as_ref().is_none_or(|wanted| wanted.contains(it)));
        let all = wanted.as_ref().map_or(i64::MAX, |it| count(it.len()));
        count(of_those.count()) >= rule["succeededCount"].as_i64().unwrap_or(all)
    };
    if rules.into_iter().flatten().any(|it| is_met(&it)) {
        return Ok(());
    }
    Err(format!("succeeds by its policy, but {done:?} meet none of its rules"))
}
