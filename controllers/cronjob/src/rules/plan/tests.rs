use serde_json::{Value, json};

use super::*;
use crate::{
    rules::{
        schedule::tests::{at, zones},
        snapshot::{
            SCHEDULED,
            tests::{Jobs, cron_job, job, rfc3339},
        },
    },
    zones::ProcessZone,
};

/// The first day of these tests, and the minute of its first Job.
const DAY: i64 = 86_400 * 20_000;
const MINUTE: i64 = DAY / 60;

fn active(names: &[&str]) -> Value {
    let active = |name: &&str| json!({ "kind": "Job", "namespace": "ns", "name": name, "uid": name });
    names.iter().map(active).collect()
}

fn with_active(names: &[&str]) -> CronJob {
    cron_job(json!({ "status": { "active": active(names) } }))
}

struct Found {
    gone: Vec<String>,
    started: Vec<String>,
    last_successful: Option<i64>,
    ended: Vec<String>,
    unexpected: Vec<String>,
    unknown: Vec<String>,
}

fn compared(cron_job: &CronJob, jobs: &Jobs, removed: &[&str]) -> Found {
    let removed = removed.iter().map(|it| Uid::new(it)).collect();
    let children = jobs.children();
    let JobComparison { change, ended, unexpected, unknown } = compare_jobs(cron_job, &children, &removed);
    Found {
        gone: change.gone.iter().map(Uid::to_string).collect(),
        started: change.started.iter().map(|it| it.name.to_string()).collect(),
        last_successful: change.last_successful,
        ended: ended.iter().map(|(it, end)| format!("{} {}", it.job.meta.name, end.as_str())).collect(),
        unexpected: unexpected.iter().map(|it| it.job.meta.name.to_string()).collect(),
        unknown: unknown.iter().map(|it| it.name.to_string()).collect(),
    }
}

#[test]
fn acceptance_cronjob_029_finished_jobs_are_removed_from_active() {
    let jobs = Jobs::from([
        job("c-1").complete(50),
        job("c-2").failed(),
        job("c-3"),
        job("c-4").condition("SuccessCriteriaMet"),
        job("c-5").complete(70),
        job("c-6").complete(60),
    ]);
    let found = compared(&with_active(&["c-1", "c-2", "c-3", "c-4"]), &jobs, &[]);
    assert_eq!(found.gone, ["c-1", "c-2"]);
    assert_eq!(found.ended, ["c-1 Complete", "c-2 Failed"]);
    assert_eq!(found.last_successful, Some(70), "of all completed Jobs, active or not");
    assert!(found.started.is_empty() && found.unexpected.is_empty() && found.unknown.is_empty());
}

#[test]
fn a_job_deleted_by_history_has_only_the_delete_event() {
    let jobs = Jobs::from([job("c-1").complete(50)]);
    let found = compared(&with_active(&["c-1"]), &jobs, &["c-1"]);
    assert_eq!((found.gone, found.ended, found.last_successful), (vec!["c-1".to_owned()], vec![], Some(50)));
}

#[test]
fn acceptance_cronjob_033_a_job_made_by_hand_is_unexpected_and_one_with_our_name_is_ours() {
    let seconds = job("c-1795359600").annotation(SCHEDULED, Value::Null);
    let copied = job("c-79").annotation("cronjob.kubernetes.io/instantiate", "manual".into());
    let jobs = [job("by-hand"), seconds, copied, job("c-77"), job("going").deleting(), job("done").complete(9)];
    let jobs = Jobs::from(jobs);
    let found = compared(&with_active(&[]), &jobs, &[]);
    assert_eq!(found.unexpected, ["by-hand", "c-1795359600", "c-79", "going"]);
    assert_eq!(found.started, ["c-77"], "a manager ended before it wrote the status");
    assert!(found.gone.is_empty() && found.ended.is_empty());
    assert_eq!(found.last_successful, Some(9));
}

#[test]
fn active_jobs_missing_from_the_cache_are_read_unless_they_cannot_be_ours() {
    let odd = json!([
        { "kind": "Job", "namespace": "ns", "name": "c-1", "uid": "u-1" },
        { "kind": "Job", "namespace": "elsewhere", "name": "c-2", "uid": "u-2" },
        { "kind": "Job", "namespace": "ns", "name": "", "uid": "u-3" },
        {},
        { "kind": "Job", "namespace": "ns", "name": "c-5", "uid": "c-5" },
    ]);
    let jobs = Jobs::from([job("c-1"), job("c-5")]);
    let found = compared(&cron_job(json!({ "status": { "active": odd } })), &jobs, &[]);
    assert_eq!(found.unknown, ["c-1"], "only a Job of this name with another uid exists");
    assert_eq!(found.gone, ["", "u-2", "u-3"]);
    assert_eq!(found.started, ["c-1"]);
}

#[test]
fn acceptance_cronjob_035_a_job_being_deleted_stays_active_unless_it_was_replaced() {
    let jobs = Jobs::from([job("c-78").deleting()]);
    for (policy, begun) in [("Forbid", vec!["c-78"]), ("Allow", vec!["c-78"]), ("Replace", vec![])] {
        let c = cron_job(json!({ "spec": { "concurrencyPolicy": policy } }));
        assert_eq!(compared(&c, &jobs, &[]).started, begun, "{policy}");
    }
    let ended = Jobs::from([job("c-78").complete(9).deleting()]);
    assert!(compared(&cron_job(json!({})), &ended, &[]).started.is_empty());
}

/// Checks a plan as text: the run, the notices, and the seconds until the next time.
fn check(cron_job: &CronJob, jobs: &Jobs, now: i64, want: (&str, &[&str], Option<i64>)) {
    let children = jobs.children();
    let change = compare_jobs(cron_job, &children, &BTreeSet::new()).change;
    let base = Base::of(cron_job.status.last_schedule, cron_job.creation, now, |_| now);
    let timing = Timing::of(&cron_job.spec, &zones(ProcessZone::Named("UTC")));
    let Plan { run, notices, next } = plan(cron_job, &children, &change.active(&cron_job.status), timing, base, now);
    let run = match run {
        Run::Nothing => "-".to_owned(),
        Run::Exists { at, child } => format!("begun {} {}", at - DAY, child.job.meta.name),
        Run::Create { at, replaces, .. } => {
            let replaces: Vec<&str> = replaces.iter().map(|it| &*it.name).collect();
            format!("begin {} replacing {replaces:?}", at - DAY)
        }
    };
    let notices: Vec<&str> = notices.iter().map(|it| it.event().1).collect();
    assert_eq!((run.as_str(), &*notices, next.map(|it| it - now)), want);
}

/// A minutely CronJob that was created at the start of [`DAY`].
fn minutely(fields: Value) -> CronJob {
    let mut object = json!({ "metadata": { "creationTimestamp": rfc3339(DAY) } });
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
    cron_job(object)
}

fn spec(field: &str, value: &str) -> CronJob {
    minutely(json!({ "spec": { field: value } }))
}

fn none() -> Jobs {
    Jobs::from([])
}

#[test]
fn acceptance_cronjob_012_before_the_first_time_nothing_runs() {
    let hourly = spec("schedule", "10 * * * *");
    check(&hourly, &none(), DAY + 180, ("-", &[], Some(420)));
}

#[test]
fn acceptance_cronjob_013_a_time_that_is_just_now_is_due() {
    check(&minutely(json!({})), &none(), DAY + 60, ("begin 60 replacing []", &[], Some(60)));
}

#[test]
fn acceptance_cronjob_014_of_several_missed_times_the_latest_runs() {
    let hourly = spec("schedule", "0 * * * *");
    check(&hourly, &none(), DAY + 5 * 3600 + 30, ("begin 18000 replacing []", &[], Some(3570)));
}

#[test]
fn acceptance_cronjob_015_more_than_a_hundred_missed_times_are_reported_and_the_latest_runs() {
    let c = minutely(json!({}));
    check(&c, &none(), DAY + 100 * 60, ("begin 6000 replacing []", &[], Some(60)));
    check(&c, &none(), DAY + 101 * 60, ("begin 6060 replacing []", &["TooManyMissedTimes"], Some(60)));
    check(&c, &none(), DAY + 50_000 * 60, ("begin 3000000 replacing []", &["TooManyMissedTimes"], Some(60)));
}

#[test]
fn acceptance_cronjob_017_a_time_that_is_too_late_is_reported_and_does_not_run() {
    let c = minutely(json!({ "spec": { "schedule": "0 * * * *", "startingDeadlineSeconds": 10 } }));
    check(&c, &none(), DAY + 3611, ("-", &["MissSchedule"], Some(3589)));
    check(&c, &none(), DAY + 3609, ("begin 3600 replacing []", &[], Some(3591)));
}

#[test]
fn acceptance_cronjob_019_a_schedule_without_times_is_reported_and_not_synced_again() {
    check(&spec("schedule", "59 23 31 2 *"), &none(), DAY + 60, ("-", &["InvalidSchedule"], None));
}

#[test]
fn an_unparseable_schedule_is_reported_and_not_synced_again() {
    check(&spec("schedule", "every minute"), &none(), DAY + 60, ("-", &["UnparseableSchedule"], None));
}

#[test]
fn acceptance_cronjob_023_024_025_policies_differ_while_a_job_is_active() {
    let jobs = Jobs::from([job("c-1")]);
    for (policy, run, notices) in [
        ("Allow", "begin 120 replacing []", vec![]),
        ("Forbid", "-", vec!["JobAlreadyActive"]),
        ("Replace", "begin 120 replacing [\"c-1\"]", vec![]),
        ("Queue", "begin 120 replacing []", vec![]),
    ] {
        let c = minutely(json!({
            "spec": { "concurrencyPolicy": policy },
            "status": { "active": active(&["c-1"]), "lastScheduleTime": rfc3339(DAY + 60) },
        }));
        check(&c, &jobs, DAY + 125, (run, &notices, Some(55)));
    }
    let forbid = spec("concurrencyPolicy", "Forbid");
    check(&forbid, &none(), DAY + 125, ("begin 120 replacing []", &[], Some(55)));
    // The previous Job was created, but the status was not written.
    check(&forbid, &Jobs::from([job("c-1")]), DAY + 125, ("-", &["JobAlreadyActive"], Some(55)));
}

#[test]
fn acceptance_cronjob_033_forbid_is_not_blocked_by_a_job_made_by_hand() {
    let forbid = spec("concurrencyPolicy", "Forbid");
    check(&forbid, &Jobs::from([job("by-hand")]), DAY + 60, ("begin 60 replacing []", &[], Some(60)));
}

#[test]
fn acceptance_cronjob_035_an_existing_job_is_not_created_again_and_the_status_is_repaired() {
    let name = format!("c-{}", MINUTE + 2);
    let want = format!("begun 120 {name}");
    for policy in ["Allow", "Forbid", "Replace"] {
        let c = spec("concurrencyPolicy", policy);
        check(&c, &Jobs::from([job(&name)]), DAY + 125, (&want, &[], Some(55)));
        check(&c, &Jobs::from([job(&name).complete(9)]), DAY + 125, (&want, &[], Some(55)));
    }
    let late = minutely(json!({ "spec": { "startingDeadlineSeconds": 1 } }));
    check(&late, &Jobs::from([job(&name)]), DAY + 125, (&want, &[], Some(55)));
}

#[test]
fn acceptance_cronjob_039_a_suspended_one_starts_nothing_and_a_resumed_one_runs_the_latest_time() {
    let suspended = |it: bool| minutely(json!({ "spec": { "suspend": it } }));
    check(&suspended(true), &none(), DAY + 600, ("-", &[], None));
    check(&suspended(false), &none(), DAY + 605, ("begin 600 replacing []", &[], Some(55)));
}

#[test]
fn acceptance_cronjob_040_one_that_is_being_deleted_starts_nothing() {
    let metadata = json!({ "creationTimestamp": rfc3339(DAY), "deletionTimestamp": rfc3339(DAY) });
    check(&cron_job(json!({ "metadata": metadata })), &none(), DAY + 60, ("-", &[], None));
}

#[test]
fn acceptance_cronjob_041_an_unknown_zone_is_reported_also_while_suspended() {
    for suspend in [false, true] {
        let c = minutely(json!({ "spec": { "timeZone": "Europe/Bern", "suspend": suspend } }));
        check(&c, &none(), DAY + 60, ("-", &["UnknownTimeZone"], None));
    }
    check(&spec("timeZone", "Europe/Berlin"), &none(), DAY + 60, ("begin 60 replacing []", &[], Some(60)));
}

#[test]
fn acceptance_cronjob_043_two_times_of_one_minute_have_one_job() {
    let c = |last: i64| {
        minutely(json!({
            "spec": { "schedule": "@every 30s" },
            "status": { "lastScheduleTime": rfc3339(DAY + last) },
        }))
    };
    check(&c(60), &none(), DAY + 90, ("-", &[], Some(30)));
    check(&c(60), &none(), DAY + 120, ("begin 120 replacing []", &[], Some(30)));
    check(&c(75), &none(), DAY + 105, ("-", &[], Some(30)));
    check(&c(75), &none(), DAY + 141, ("begin 135 replacing []", &[], Some(24)));
}

#[test]
fn acceptance_cronjob_045_a_time_that_ran_does_not_run_again() {
    let ran = minutely(json!({ "status": { "lastScheduleTime": rfc3339(DAY + 60) } }));
    check(&ran, &none(), DAY + 60, ("-", &[], Some(60)));
    let name = format!("c-{}", MINUTE + 1);
    let named = minutely(json!({ "status": { "active": active(&[&name]) } }));
    check(&named, &none(), DAY + 60, ("-", &[], Some(60)));
}

#[test]
fn acceptance_cronjob_008_a_zone_within_the_text_is_used_and_reported() {
    let c = minutely(json!({
        "metadata": { "creationTimestamp": rfc3339(at("2026-01-15T13:00:00Z")) },
        "spec": { "schedule": "TZ=America/New_York 0 9 * * *", "timeZone": "Asia/Tokyo" },
    }));
    let nine = at("2026-01-15T14:00:00Z");
    let want = format!("begin {} replacing []", nine - DAY);
    check(&c, &none(), nine, (&want, &["UnsupportedSchedule"], Some(86_400)));
}

#[test]
fn a_last_time_far_in_the_future_does_not_prevent_runs() {
    let c = minutely(json!({ "status": { "lastScheduleTime": rfc3339(DAY + 1_000_000) } }));
    let timing = Timing::of(&c.spec, &zones(ProcessZone::Named("UTC")));
    let base = Base::of(c.status.last_schedule, c.creation, DAY + 60, |_| DAY + 30);
    assert_eq!(base.wrong(), Some(DAY + 1_000_000));
    let Plan { run, notices, next } = plan(&c, &[], &[], timing, base, DAY + 60);
    assert!(matches!(run, Run::Create { at, .. } if at == DAY + 60), "{run:?}");
    assert_eq!((notices[0].event().1, next), ("LastScheduleInFuture", Some(DAY + 120)));
}

#[test]
fn a_time_run_by_a_faster_clock_does_not_run_again() {
    let c = |ahead: i64| minutely(json!({ "status": { "lastScheduleTime": rfc3339(DAY + 600 + ahead) } }));
    let now = DAY + 600;
    check(&c(60), &none(), now, ("-", &[], Some(60)));
    // Five minutes in the future, and the Jobs of these times are gone.
    check(&c(300), &none(), now, ("-", &["LastScheduleInFuture"], Some(60)));
    check(&c(3600), &none(), now, ("-", &["LastScheduleInFuture"], Some(60)));
    let told = Base::of(Some(now + 300), None, now, |_| now);
    assert_eq!((told.from, told.wrong()), (now + 300, None));
}
