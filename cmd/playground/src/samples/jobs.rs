//! The Job and CronJob controllers: pods run to completion, by number or by index, at once or by a schedule.

use fake_nodes::PREFIX;
use serde_json::{Value, json};

use super::{Act, Operation, Progress, Sample, SampleContext, Step, true_condition};
use crate::observed::Observed;

const JOBS: &[(&str, &str)] = &[("batch/v1", "Job")];
const CRON_JOBS: &[(&str, &str)] = &[("batch/v1", "CronJob"), ("batch/v1", "Job")];
const CONTROLLERS: &[&str] = &["job-controller"];

/// A real container needs some time to be created too.
const CREATING: (&str, &str) = ("start-after", "300ms");

pub(super) const PLAIN: Sample = Sample {
    name: "job",
    shows: "a Job of four pods, two at a time",
    needs: CONTROLLERS,
    objects: |context| {
        let spec = json!({ "completions": 4, "parallelism": 2, "template": template(&[("run-for", "1s"), CREATING]) });
        vec![job(context, "tally", spec)]
    },
    watched_kinds: JOBS,
    steps: &[],
    progress: |context, observed| match observed.get("Job", &context.home, "tally") {
        None => gone_or_new(observed, context, "Job", "tally"),
        Some(job) => {
            let text = format!("{} of 4 succeeded, {} active", count(job, "succeeded"), count(job, "active"));
            until_complete(job, text)
        }
    },
};

pub(super) const INDEXED: Sample = Sample {
    name: "job-indexed",
    shows: "a Job of indexes 0 to 3: index 2 fails, is tried again after ten seconds, and gives up; the others succeed",
    needs: CONTROLLERS,
    objects: |context| {
        let lines = [("run-for", "1s"), ("failing-indexes", "2"), CREATING];
        let spec = json!({
            "completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 1,
            "template": template(&lines),
        });
        vec![job(context, "shards", spec)]
    },
    watched_kinds: JOBS,
    steps: &[],
    progress: |context, observed| match observed.get("Job", &context.home, "shards") {
        None => gone_or_new(observed, context, "Job", "shards"),
        Some(job) => {
            let indexes = |field: &str| match job["status"][field].as_str() {
                None | Some("") => "none".to_owned(),
                Some(indexes) => indexes.to_owned(),
            };
            let (succeeded, failed) = (indexes("completedIndexes"), indexes("failedIndexes"));
            let text = format!(
                "indexes succeeded: {succeeded}; failed: {failed}; {} pods failed, {} active",
                count(job, "failed"),
                count(job, "active")
            );
            match true_condition(job, "Failed").map(|it| it["reason"].as_str().unwrap_or_default()) {
                Some("FailedIndexes") if succeeded == "0,1,3" && failed == "2" => {
                    Progress::done(format!("{text}; Failed: FailedIndexes"))
                }
                Some(reason) => Progress::failed(format!("{text}; Failed: {reason}")),
                None => until_failed(job, text),
            }
        }
    },
};

pub(super) const SUSPENDED: Sample = Sample {
    name: "job-suspend",
    shows: "a Job that is suspended while its two pods run, and resumed when they have stopped",
    needs: CONTROLLERS,
    objects: |context| {
        let lines = [("run-for", "4s"), ("stop-after", "500ms"), CREATING];
        let spec = json!({ "completions": 2, "parallelism": 2, "template": template(&lines) });
        vec![job(context, "pausable", spec)]
    },
    watched_kinds: JOBS,
    steps: &[
        Step {
            when: |context, observed| {
                pods_of(observed, context, "pausable").filter(|it| phase(it) == "Running").count() == 2
            },
            command: |context| suspend_command(context, "job", "pausable", true),
            act: |context| suspend(context, "Job", "pausable", true),
        },
        Step {
            when: |context, observed| {
                let job = observed.get("Job", &context.home, "pausable");
                let suspended = job.is_some_and(|it| true_condition(it, "Suspended").is_some());
                // A pod that succeeded before the Job was suspended stays.
                suspended && pods_of(observed, context, "pausable").all(|it| phase(it) == "Succeeded")
            },
            command: |context| suspend_command(context, "job", "pausable", false),
            act: |context| suspend(context, "Job", "pausable", false),
        },
    ],
    progress: |context, observed| match observed.get("Job", &context.home, "pausable") {
        None => gone_or_new(observed, context, "Job", "pausable"),
        Some(job) => {
            let suspended = if true_condition(job, "Suspended").is_some() { "Suspended, " } else { "" };
            let pods = pods_of(observed, context, "pausable").count();
            let (succeeded, active) = (count(job, "succeeded"), count(job, "active"));
            until_complete(job, format!("{suspended}{succeeded} of 2 succeeded, {active} active, {pods} pods"))
        }
    },
};

pub(super) const CRON: Sample = Sample {
    name: "cronjob",
    shows: "a CronJob that creates a Job by its schedule, and is suspended when that has succeeded",
    needs: &["cronjob-controller"],
    objects: |context| {
        let job = json!({ "spec": { "template": template(&[("run-for", "1s"), CREATING]) } });
        vec![json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": { "namespace": context.home, "name": "chime" },
            "spec": { "schedule": "@every 5s", "concurrencyPolicy": "Forbid", "jobTemplate": job },
        })]
    },
    watched_kinds: CRON_JOBS,
    steps: &[Step {
        when: |context, observed| {
            observed.get("CronJob", &context.home, "chime").is_some_and(|it| succeeded_at(it).is_some())
        },
        command: |context| suspend_command(context, "cronjob", "chime", true),
        act: |context| suspend(context, "CronJob", "chime", true),
    }],
    progress: |context, observed| {
        let Some(cron) = observed.get("CronJob", &context.home, "chime") else {
            return gone_or_new(observed, context, "CronJob", "chime");
        };
        let suspended = cron["spec"]["suspend"] == true;
        let jobs = observed.named("Job", &context.home, "chime-").count();
        let text = match (cron["status"]["lastScheduleTime"].as_str(), succeeded_at(cron)) {
            (None, _) => format!("{jobs} Jobs, waits for the next time of its schedule"),
            (Some(made), None) => format!("{jobs} Jobs, the last for {}", clock(made)),
            (Some(made), Some(done)) => {
                format!("{jobs} Jobs, the last for {}, the last success at {}", clock(made), clock(done))
            }
        };
        match (suspended, succeeded_at(cron)) {
            (true, Some(_)) => Progress::done(format!("{text}; suspended")),
            _ => Progress::going(text),
        }
    },
};

fn job(context: &SampleContext, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "namespace": context.home, "name": name },
        "spec": spec,
    })
}

/// A pod template whose pods have this script.
fn template(lines: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<String, Value> =
        lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
    json!({
        "metadata": { "annotations": annotations },
        "spec": { "restartPolicy": "Never", "containers": containers },
    })
}

fn until_complete(job: &Value, text: String) -> Progress {
    match (true_condition(job, "Complete"), true_condition(job, "Failed")) {
        (Some(_), _) => Progress::done(format!("{text}; Complete")),
        (None, Some(failed)) => Progress::failed(format!("{text}; Failed: {}", failed["reason"])),
        (None, None) => Progress::going(text),
    }
}

/// For a Job that must fail.
fn until_failed(job: &Value, text: String) -> Progress {
    match true_condition(job, "Complete") {
        Some(_) => Progress::failed(format!("{text}; Complete")),
        None => Progress::going(text),
    }
}

fn pods_of<'a>(observed: &'a Observed, context: &SampleContext, job: &str) -> impl Iterator<Item = &'a Value> {
    let label = json!(job);
    let pods: Vec<&Value> = observed.named("Pod", &context.home, &format!("{job}-")).collect();
    pods.into_iter().filter(move |it| it["metadata"]["labels"]["batch.kubernetes.io/job-name"] == label)
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or("Pending")
}

fn count(job: &Value, field: &str) -> i64 {
    job["status"][field].as_i64().unwrap_or(0)
}

fn succeeded_at(cron: &Value) -> Option<&str> {
    cron["status"]["lastSuccessfulTime"].as_str()
}

/// The time of day of a timestamp of the API.
fn clock(time: &str) -> &str {
    time.split_once('T').map_or(time, |(_, it)| it.trim_end_matches('Z'))
}

fn gone_or_new(observed: &Observed, context: &SampleContext, kind: &str, name: &str) -> Progress {
    if observed.is_gone(kind, &context.home, name) { Progress::failed("deleted") } else { Progress::going("created") }
}

fn suspend_command(context: &SampleContext, resource: &str, name: &str, suspend: bool) -> String {
    let patch = format!(r#"{{"spec":{{"suspend":{suspend}}}}}"#);
    format!("kubectl patch {resource} {name} -n {} --type=merge -p '{patch}'", context.home)
}

fn suspend(context: &SampleContext, kind: &'static str, name: &str, suspend: bool) -> Act {
    Act {
        api_version: "batch/v1",
        kind,
        namespace: context.home.clone(),
        name: name.to_owned(),
        operation: Operation::Merge(json!({ "spec": { "suspend": suspend } })),
    }
}
