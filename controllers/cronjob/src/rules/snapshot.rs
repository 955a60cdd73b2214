//! The input of one sync.

use std::{collections::BTreeMap, sync::Arc};

use api::{CronJob, Job, MetaRef, StatusOwner};
use jiff::Timestamp;
use serde::Deserialize;

/// The annotation of a Job with its scheduled time.
pub(crate) const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The annotation of a Job that a user created from a CronJob, for example with `kubectl create job --from`.
const BY_HAND: &str = "cronjob.kubernetes.io/instantiate";

/// The largest assumed difference between the clocks of two managers, in seconds.
pub(crate) const MAX_CLOCK_SKEW: i64 = 3600;

/// A Job whose controller is the CronJob.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child<'a> {
    pub(crate) job: &'a Job,
    /// How it finished; `None` while it has not.
    pub(crate) end: Option<End>,
}

/// How a Job finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Failed,
}

impl End {
    /// By the first final condition. The interim conditions SuccessCriteriaMet and FailureTarget do not count.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        job.finished_condition().map(|it| if &*it.type_ == "Complete" { Self::Complete } else { Self::Failed })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Failed => "Failed",
        }
    }
}

/// Whether the controller of an object is this CronJob, and not an object of another kind or an earlier CronJob of the
/// same name.
pub(crate) fn is_child(object: MetaRef<'_>, cron_job: &CronJob) -> bool {
    object
        .controller()
        .is_some_and(|it| &*it.kind == "CronJob" && *it.name == *cron_job.meta.name && it.uid == cron_job.meta.uid)
        && *object.namespace == cron_job.meta.namespace
}

/// The Jobs that the CronJob controls, of those that have its uid in their controller reference.
pub(crate) fn children<'a>(cron_job: &CronJob, jobs: &'a [Arc<Job>]) -> Vec<Child<'a>> {
    let own = jobs.iter().filter(|it| is_child(it.meta.as_ref(), cron_job));
    own.map(|it| Child { job: it, end: End::of(it) }).collect()
}

/// The name of the Job for a time. All times of one minute have the same name, so that a minute has one Job.
pub(crate) fn job_name(cron_job: &CronJob, at: i64) -> String {
    format!("{}-{}", cron_job.meta.name, at.div_euclid(60))
}

/// The time for which this controller created a Job. `None` for a Job that it did not create, even if the Job has a
/// similar name and the same controller. The annotation has the time, and the name must match it.
pub(crate) fn scheduled_time(cron_job: &CronJob, job: &Job) -> Option<i64> {
    #[derive(Deserialize)]
    struct JobMetadata {
        annotations: BTreeMap<String, String>,
    }
    let minute = job.meta.name.strip_prefix(&*cron_job.meta.name)?.strip_prefix('-')?;
    // Few names match, so the metadata is parsed only for these instead of being cached.
    if !is_child(job.meta.as_ref(), cron_job) || !minute.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let JobMetadata { annotations } = serde_json::from_str(job.raw_metadata().get()).ok()?;
    if annotations.contains_key(BY_HAND) {
        return None;
    }
    let at = annotations.get(SCHEDULED)?.parse::<Timestamp>().ok()?.as_second();
    (job_name(cron_job, at) == *job.meta.name).then_some(at)
}

/// The latest time for which this controller created a Job, if `lastScheduleTime` is earlier: a manager created the Job
/// and did not write the status. Times more than [`MAX_CLOCK_SKEW`] in the future are ignored as a clock error.
pub(crate) fn unrecorded_time(cron_job: &CronJob, children: &[Child<'_>], now: i64) -> Option<i64> {
    let last = cron_job.status.last_schedule;
    let made = children.iter().filter_map(|it| scheduled_time(cron_job, it.job));
    made.filter(|at| *at <= now + MAX_CLOCK_SKEW && last.is_none_or(|it| it < *at)).max()
}

#[cfg(test)]
pub(crate) mod tests {
    use api::Cached;
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn rfc3339(seconds: i64) -> Value {
        jiff::Timestamp::from_second(seconds).unwrap().to_string().into()
    }

    pub(crate) struct JobBuilder(Value);

    /// A Job of the CronJob `c`, with its name as uid. If the name is that of a time, it looks like created by the
    /// controller.
    pub(crate) fn job(name: &str) -> JobBuilder {
        let owner = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c", "controller": true });
        let metadata = json!({ "name": name, "namespace": "ns", "uid": name, "ownerReferences": [owner] });
        let job = JobBuilder(json!({ "metadata": metadata, "status": {} }));
        match name.strip_prefix("c-").and_then(|it| it.parse::<i64>().ok()) {
            Some(minute) => job.annotation(SCHEDULED, rfc3339(minute * 60)),
            None => job,
        }
    }

    impl JobBuilder {
        pub(crate) fn annotation(mut self, key: &str, value: Value) -> Self {
            self.0["metadata"]["annotations"][key] = value;
            self
        }

        pub(crate) fn owner(mut self, field: &str, value: &str) -> Self {
            self.0["metadata"]["ownerReferences"][0][field] = value.into();
            self
        }

        pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
            self.0["metadata"]["namespace"] = namespace.into();
            self
        }

        pub(crate) fn started(mut self, at: i64) -> Self {
            self.0["status"]["startTime"] = rfc3339(at);
            self
        }

        pub(crate) fn complete(mut self, at: i64) -> Self {
            self.0["status"]["completionTime"] = rfc3339(at);
            self.condition("Complete")
        }

        pub(crate) fn failed(self) -> Self {
            self.condition("Failed")
        }

        pub(crate) fn condition(mut self, type_: &str) -> Self {
            let mut conditions = self.0["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.push(json!({ "type": type_, "status": "True" }));
            self.0["status"]["conditions"] = conditions.into();
            self
        }

        pub(crate) fn deleting(mut self) -> Self {
            self.0["metadata"]["deletionTimestamp"] = rfc3339(0);
            self
        }

        pub(crate) fn build(self) -> Arc<Job> {
            Arc::new(Job::decode_object(self.0.to_string().as_bytes()).unwrap())
        }
    }

    pub(crate) struct Jobs(Vec<Arc<Job>>);

    impl<const N: usize> From<[JobBuilder; N]> for Jobs {
        fn from(jobs: [JobBuilder; N]) -> Self {
            Self(jobs.into_iter().map(JobBuilder::build).collect())
        }
    }

    impl Jobs {
        pub(crate) fn children(&self) -> Vec<Child<'_>> {
            children(&cron_job(json!({})), &self.0)
        }
    }

    /// The CronJob `c` in namespace `ns`, created at the epoch, with these fields merged in.
    pub(crate) fn cron_job(fields: Value) -> CronJob {
        let mut object = json!({
            "metadata": { "name": "c", "namespace": "ns", "uid": "c", "creationTimestamp": rfc3339(0) },
            "spec": { "schedule": "* * * * *", "concurrencyPolicy": "Allow" },
            "status": {},
        });
        merge(&mut object, fields);
        CronJob::decode_object(object.to_string().as_bytes()).unwrap()
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    #[test]
    fn acceptance_cronjob_034_only_this_very_cron_job_has_children() {
        let jobs = Jobs::from([
            job("mine"),
            job("kind").owner("kind", "Workflow"),
            job("earlier").owner("uid", "another"),
            job("renamed").owner("name", "d"),
            job("elsewhere").in_namespace("other"),
        ]);
        let names: Vec<&str> = jobs.children().iter().map(|it| &*it.job.meta.name).collect();
        assert_eq!(names, ["mine"]);
    }

    #[test]
    fn acceptance_cronjob_030_a_job_is_finished_only_when_complete_or_failed() {
        for (job, want) in [
            (job("j"), None),
            (job("j").condition("SuccessCriteriaMet"), None),
            (job("j").condition("FailureTarget"), None),
            (job("j").condition("FailureTarget").failed(), Some(End::Failed)),
            (job("j").condition("SuccessCriteriaMet").complete(1), Some(End::Complete)),
            (job("j").failed().complete(1), Some(End::Failed)),
        ] {
            assert_eq!(End::of(&job.build()), want);
        }
    }

    #[test]
    fn all_times_of_a_minute_have_one_job_name() {
        let c = cron_job(json!({}));
        assert_eq!(job_name(&c, 1_779_184_800), "c-29653080");
        assert_eq!(job_name(&c, 1_779_184_859), "c-29653080");
        assert_eq!(job_name(&c, 1_779_184_860), "c-29653081");
    }

    #[test]
    fn acceptance_cronjob_033_a_job_is_ours_by_its_annotation_and_not_by_its_name_alone() {
        let c = cron_job(json!({}));
        let told = |name: &str, at: &str| job(name).annotation(SCHEDULED, at.into());
        let ten = "2026-05-19T10:00:00Z";
        for (what, job, want) in [
            ("ours", told("c-29653080", ten), Some(1_779_184_800)),
            ("annotated in another zone", told("c-29653080", "2026-05-19T12:00:30+02:00"), Some(1_779_184_830)),
            ("of another minute", told("c-29653080", "2026-05-19T10:01:00Z"), None),
            ("a number of its own", told("c-029653080", ten), None),
            ("another name", told("by-hand", ten), None),
            ("another's name", told("d-29653080", ten), None),
            ("no name", told("c-", ten), None),
            ("not a time", told("c-29653080", "ten"), None),
            ("no annotation", job("c-29653080").annotation(SCHEDULED, Value::Null), None),
            ("a name with seconds", job("c-1795359600").annotation(SCHEDULED, ten.into()), None),
            ("made by hand", told("c-29653080", ten).annotation(BY_HAND, "manual".into()), None),
            ("of an earlier CronJob", told("c-29653080", ten).owner("uid", "another"), None),
        ] {
            assert_eq!(scheduled_time(&c, &job.build()), want, "{what}");
        }
    }

    #[test]
    fn a_time_missing_from_the_status_is_found_from_the_jobs() {
        let (early, late, far) = (job("c-10").build(), job("c-20").build(), job("c-200").build());
        let by_hand = job("c-30").annotation(BY_HAND, "manual".into()).build();
        let cases = [
            ("no Job", vec![], None, None),
            ("the last of them", vec![&early, &late], None, Some(1_200)),
            ("already in the status", vec![&early, &late], Some(1_200), None),
            ("an earlier one is in the status", vec![&early, &late], Some(600), Some(1_200)),
            ("made by hand", vec![&early, &by_hand], Some(600), None),
            ("a time far in the future", vec![&early, &far], None, Some(600)),
        ];
        for (name, jobs, last, want) in cases {
            let mut cron_job =
                CronJob::decode_object(br#"{"metadata":{"name":"c","namespace":"ns","uid":"c"}}"#).unwrap();
            cron_job.status.last_schedule = last;
            let children: Vec<Child<'_>> = jobs.into_iter().map(|job| Child { job, end: None }).collect();
            assert_eq!(unrecorded_time(&cron_job, &children, 1_200), want, "{name}");
        }
    }
}
