use clock::Timestamp;
use serde_json::Value;

use super::{
    AGE, Column, NAME, NONE, Printer, age, ages, boolean, cells, condition, containers, integer, list_at, name,
    number_at, or, selector, text, text_at, wide,
};
use crate::meta;

pub(super) fn printer(plural: &str) -> Option<Printer> {
    Some(match plural {
        "jobs" => Printer { columns: JOB, cells: job },
        "cronjobs" => Printer { columns: CRON_JOB, cells: cron_job },
        _ => return None,
    })
}

const JOB: &[Column] = &[
    NAME,
    text("Status"),
    text("Completions"),
    text("Duration"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

fn job(it: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(&it["spec"]["template"]["spec"]);
    cells![
        name(it),
        status(it),
        completions(it),
        duration(it, now),
        age(it, now),
        names,
        images,
        selector(&it["spec"]["selector"]),
    ]
}

fn status(job: &Value) -> &'static str {
    let is = |of: &str| condition(job, of) == "True";
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if meta::is_deleting(job) => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Value) -> String {
    let succeeded = number_at(job, "status.succeeded");
    match (job["spec"]["completions"].as_i64(), number_at(job, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// From the start to the end, or to now; empty before the start.
fn duration(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| ages::parse(&job["status"][field]);
    match (time("startTime"), time("completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => ages::between(start, end.unwrap_or(now)),
    }
}

const CRON_JOB: &[Column] = &[
    NAME,
    text("Schedule"),
    text("Timezone"),
    boolean("Suspend"),
    integer("Active"),
    text("Last Schedule"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

fn cron_job(it: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &it["spec"]["jobTemplate"]["spec"];
    let [names, images] = containers(&spec["template"]["spec"]);
    let last = &it["status"]["lastScheduleTime"];
    cells![
        name(it),
        text_at(it, "spec.schedule"),
        or(text_at(it, "spec.timeZone"), NONE),
        if it["spec"]["suspend"] == true { "True" } else { "False" },
        list_at(it, "status.active").len(),
        if last.is_string() { ages::since(last, now) } else { NONE.to_owned() },
        age(it, now),
        names,
        images,
        selector(&spec["selector"]),
    ]
}
