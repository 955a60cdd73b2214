//! A model of CronJobs and Jobs, and the guarantees of both controllers.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::{Instant, Timestamp};
use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

/// More than the maximum staleness of a controller.
const LAG: Duration = Duration::from_secs(200);
/// The maximum difference of two machines' wall clocks, in seconds, after rounding to whole seconds.
const CLOCKS_DIFFER: i64 = 32;
/// The maximum delay of a request in the network, in seconds.
const ON_ITS_WAY: i64 = 5;
const TIME: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

type Checked = Result<(), String>;

/// Every CronJob and every Job that ever existed, by uid.
#[derive(Default)]
pub(super) struct Model {
    pub(super) crons: BTreeMap<String, Cron>,
    pub(super) jobs: BTreeMap<String, Job>,
}

/// One CronJob.
#[derive(Default)]
pub(super) struct Cron {
    pub(super) name: String,
    /// The last stored object.
    pub(super) object: Value,
    pub(super) gone: bool,
    /// The time since which it is gone or being deleted.
    deleted_since: Option<Instant>,
    /// The started times, in seconds since the epoch, each with the process that started it and its Job.
    pub(super) started: BTreeMap<i64, (String, String)>,
    /// The specs (schedule, suspension, limits), each with the time since which it is stored.
    spec_history: Vec<(Instant, Value)>,
    /// Per process, the time of its first write for this CronJob.
    first_writes: BTreeMap<String, Instant>,
}

/// One Job.
#[derive(Default)]
pub(super) struct Job {
    pub(super) name: String,
    /// The CronJob that controls it.
    pub(super) cron: Option<String>,
    /// True for a Job of a scheduled time.
    pub(super) scheduled: bool,
    /// The last stored object.
    pub(super) object: Value,
    pub(super) gone: bool,
    /// The time when it was removed.
    removed_at: Option<Instant>,
    /// A user or the garbage collector removed it.
    removed_by_other: bool,
}

impl Job {
    /// `Complete` or `Failed`, and the time of this condition in seconds.
    pub(super) fn finished(&self) -> Option<(&str, i64)> {
        let conditions = self.object["status"]["conditions"].as_array()?;
        let last = |it: &&Value| matches!(it["type"].as_str(), Some("Complete" | "Failed")) && it["status"] == "True";
        let it = conditions.iter().find(last)?;
        Some((it["type"].as_str()?, seconds(&it["lastTransitionTime"])?))
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.object["metadata"]["deletionTimestamp"].is_string()
    }

    /// The earliest time of its deletion, from the stored object.
    pub(super) fn expires_at(&self) -> Option<i64> {
        Some(self.finished()?.1 + self.object["spec"]["ttlSecondsAfterFinished"].as_i64()?)
    }
}

impl Cron {
    /// The specs that a controller may still use, each with the time since which it is stored.
    fn usable_specs(&self, now: Instant) -> impl Iterator<Item = (Instant, &Value)> {
        let seen = self.spec_history.iter().enumerate().filter(move |(at, _)| {
            let until = self.spec_history.get(at + 1).map(|it| it.0);
            until.is_none_or(|it| it + LAG > now)
        });
        seen.map(|it| (it.1.0, &it.1.1))
    }

    /// The specs that a controller may still use.
    fn possible_specs(&self, now: Instant) -> impl Iterator<Item = &Value> {
        self.usable_specs(now).map(|it| it.1)
    }

    /// True when `by` knew the CronJob before an edit that added this time to its schedule, and the edit was after the
    /// time (k/k#130838).
    fn is_before_edit(&self, by: &str, time: i64, now: Instant, wall: i64) -> bool {
        let Some(then) = now.checked_sub(duration(wall - time)) else { return false };
        let fitting = |it: &(Instant, &Value)| is_time_of(it.1["schedule"].as_str().unwrap_or_default(), time);
        // Specs that a process may have used at that time, with any clock difference.
        let mut specs_then = self.usable_specs(then).filter(|it| it.0 <= then + duration(CLOCKS_DIFFER));
        let edit = self.spec_history.iter().map(|it| (it.0, &it.1)).filter(|it| it.0 > then).find(fitting);
        let knew = edit.is_some_and(|edit| self.first_writes.get(by).is_some_and(|it| *it < edit.0));
        knew && !specs_then.any(|it| fitting(&it))
    }

    pub(super) fn limit(&self, finished: &str) -> usize {
        limit(&self.object["spec"], finished)
    }
}

/// The history limit for Jobs with this condition.
fn limit(spec: &Value, finished: &str) -> usize {
    let field = if finished == "Complete" { "successfulJobsHistoryLimit" } else { "failedJobsHistoryLimit" };
    spec[field].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX)
}

pub(super) fn seconds(time: &Value) -> Option<i64> {
    time.as_str()?.parse::<Timestamp>().ok().map(|it| it.as_second())
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

impl Model {
    /// The existing Jobs of a CronJob.
    pub(super) fn children<'a>(&'a self, cron: &'a str) -> impl Iterator<Item = &'a Job> {
        self.jobs.values().filter(move |it| it.cron.as_deref() == Some(cron) && !it.gone)
    }

    /// The times that this process started and that are not in the status yet.
    pub(super) fn unrecorded_starts(&self, by: &str) -> Vec<String> {
        let mut missing = Vec::new();
        for cron in self.crons.values().filter(|it| it.deleted_since.is_none()) {
            let last = seconds(&cron.object["status"]["lastScheduleTime"]);
            let of_it =
                cron.started.iter().filter(|(time, (starter, _))| starter == by && last.is_none_or(|it| it < **time));
            missing.extend(of_it.map(|(time, _)| format!("{time} of {}", cron.name)));
        }
        missing
    }

    /// Records a write, and returns the broken guarantee.
    pub(super) fn check_write(&mut self, write: &Write, now: Instant, wall: Timestamp) -> Checked {
        let by_manager = write.by != "world";
        let held = match &*write.resource() {
            "jobs.batch" => self.check_job_write(write, by_manager, now, wall.as_second()),
            "cronjobs.batch" => self.check_cron_write(write, by_manager, now),
            _ => Ok(()),
        };
        held.map_err(|why| format!("{} on {} {}: {why}", write.by, write.kind(), write.name()))
    }

    fn check_cron_write(&mut self, write: &Write, by_manager: bool, now: Instant) -> Checked {
        let (before, after) = (write.before().unwrap_or_default(), write.after());
        let object = after.clone().unwrap_or_else(|| before.clone());
        let uid = text(&object, "uid");
        let cron = self.crons.entry(uid.clone()).or_default();
        cron.name = text(&object, "name");
        cron.gone = after.is_none();
        if cron.gone || object["metadata"]["deletionTimestamp"].is_string() {
            cron.deleted_since.get_or_insert(now);
        }
        if cron.spec_history.last().is_none_or(|it| it.1 != object["spec"]) {
            cron.spec_history.push((now, object["spec"].clone()));
        }
        cron.object = object;
        if by_manager {
            cron.first_writes.entry(write.by.to_owned()).or_insert(now);
        }
        let Some(after) = after.filter(|_| by_manager) else {
            return if by_manager { Err("removes the CronJob".to_owned()) } else { Ok(()) };
        };
        if before["spec"] != after["spec"] {
            return Err("changes the spec".to_owned());
        }
        let last = |it: &Value| seconds(&it["status"]["lastScheduleTime"]);
        if last(&after) < last(&before) {
            return Err(format!("lastScheduleTime goes back from {:?} to {:?}", last(&before), last(&after)));
        }
        let active: Vec<&Value> = after["status"]["active"].as_array().into_iter().flatten().collect();
        let mut seen = BTreeSet::new();
        for it in active {
            let job = it["uid"].as_str().and_then(|it| self.jobs.get(it)).ok_or("an active Job never existed")?;
            if job.cron.as_deref() != Some(&*uid) {
                return Err(format!("the active Job {} has another owner", job.name));
            }
            if !seen.insert(it["uid"].to_string()) {
                return Err(format!("the active Job {} is listed twice", job.name));
            }
        }
        Ok(())
    }

    fn check_job_write(&mut self, write: &Write, by_manager: bool, now: Instant, wall: i64) -> Checked {
        let after = write.after();
        let object = after.clone().or_else(|| write.before()).unwrap_or_default();
        let uid = text(&object, "uid");
        let held = match (by_manager, write.change()) {
            (true, Change::Added) => self.check_start(write.by, &object, now, wall),
            (true, _) => self.check_deletion(&uid, after.as_ref(), now, wall),
            _ => Ok(()),
        };
        let job = self.jobs.entry(uid).or_default();
        job.name = text(&object, "name");
        job.gone = after.is_none();
        // A delayed request may create it with the name of another manager, just before that manager does.
        job.scheduled = object["metadata"]["annotations"][TIME].is_string();
        let owner = object["metadata"]["ownerReferences"]
            .as_array()
            .and_then(|it| it.iter().find(|it| it["controller"] == true));
        job.cron = owner.filter(|it| it["kind"] == "CronJob").and_then(|it| it["uid"].as_str()).map(str::to_owned);
        if job.gone {
            job.removed_at = Some(now);
            // A deletion because of the TTL does not depend on the CronJob's status.
            let has_ttl = object["spec"]["ttlSecondsAfterFinished"].is_number();
            job.removed_by_other = !by_manager && (!job.is_deleting() || has_ttl);
        }
        job.object = object;
        held
    }

    /// Checks a Job that a manager creates.
    fn check_start(&mut self, by: &str, job: &Value, now: Instant, wall: i64) -> Checked {
        let owner = &job["metadata"]["ownerReferences"][0];
        let uid = owner["uid"].as_str().unwrap_or_default();
        let time = seconds(&job["metadata"]["annotations"][TIME]).ok_or("creates a Job without its scheduled time")?;
        let cron = self.crons.get_mut(uid).ok_or("creates a Job of a CronJob that never existed")?;
        let earlier = cron.started.insert(time, (by.to_owned(), text(job, "uid")));
        cron.first_writes.entry(by.to_owned()).or_insert(now);
        let cron = self.crons.get(uid).ok_or("creates a Job of a CronJob that never existed")?;
        // A second start is allowed when the first process crashed before its status write, and the Job was removed by
        // a user or by its TTL. In this case the first start cannot be known.
        let is_lost = |(starter, job): &(String, String)| {
            let removed = self.jobs.get(job).is_some_and(|it| it.removed_by_other);
            starter != by && removed && seconds(&cron.object["status"]["lastScheduleTime"]).is_none_or(|it| it < time)
        };
        if earlier.as_ref().is_some_and(|it| !is_lost(it)) {
            return Err(format!("started twice: {time} of {}", cron.name));
        }
        if text(job, "name") != format!("{}-{}", cron.name, time.div_euclid(60)) {
            return Err(format!("the name does not follow from the scheduled time {time}"));
        }
        if cron.deleted_since.is_some_and(|it| it + LAG < now) {
            return Err("its CronJob was deleted long ago".to_owned());
        }
        if cron.possible_specs(now).all(|it| it["suspend"] == true) {
            return Err("its CronJob is suspended".to_owned());
        }
        if !cron.possible_specs(now).any(|it| is_time_of(it["schedule"].as_str().unwrap_or_default(), time)) {
            return Err(format!("{time} is not a time of {}", cron.object["spec"]["schedule"]));
        }
        if cron.is_before_edit(by, time, now, wall) {
            return Err(format!("{time} was past when {} became its schedule", cron.object["spec"]["schedule"]));
        }
        let made = seconds(&cron.object["metadata"]["creationTimestamp"]).unwrap_or(0);
        if time <= made || time > wall + CLOCKS_DIFFER {
            return Err(format!("{time} is not due at {wall}: the CronJob was created at {made}"));
        }
        if let Some(deadline) = cron.object["spec"]["startingDeadlineSeconds"].as_i64()
            && wall - time > deadline + CLOCKS_DIFFER + ON_ITS_WAY
        {
            return Err(format!("{time} is too late at {wall}"));
        }
        let policy = cron.object["spec"]["concurrencyPolicy"].as_str().unwrap_or_default();
        let runs = |it: &&Job| it.scheduled && it.finished().is_none();
        let other = self.children(uid).filter(runs).find(|it| policy == "Forbid" || !it.is_deleting());
        match other.filter(|_| matches!(policy, "Forbid" | "Replace")) {
            Some(other) => Err(format!("{policy}, but {} runs", other.name)),
            None => Ok(()),
        }
    }

    /// Checks the deletion of a Job by a manager, which needs a reason.
    fn check_deletion(&self, uid: &str, after: Option<&Value>, now: Instant, wall: i64) -> Checked {
        let job = self.jobs.get(uid).ok_or("a Job that never existed")?;
        let deletes = after.is_none_or(|it| it["metadata"]["deletionTimestamp"].is_string());
        if !deletes {
            return Err("changes the Job".to_owned());
        }
        if job.is_deleting() {
            return Ok(());
        }
        if job.expires_at().is_some_and(|it| it <= wall + CLOCKS_DIFFER) {
            return Ok(());
        }
        let Some((cron, it)) = job.cron.as_ref().and_then(|it| Some((it, self.crons.get(it)?))) else {
            return Err(format!("deleted at {wall} without a reason: it expires at {:?}", job.expires_at()));
        };
        let Some((how, _)) = job.finished() else {
            let replaced = it.object["spec"]["concurrencyPolicy"] == "Replace" && job.scheduled;
            return if replaced { Ok(()) } else { Err("deletes a running Job".to_owned()) };
        };
        // A controller may not have observed yet that a Job is gone.
        let seen = |it: &&Job| it.cron.as_ref() == Some(cron) && it.removed_at.is_none_or(|it| it + LAG > now);
        let alike = self.jobs.values().filter(seen).filter(|it| it.finished().is_some_and(|it| it.0 == how)).count();
        let fewest = it.possible_specs(now).map(|it| limit(it, how)).min().unwrap_or(usize::MAX);
        if alike > fewest {
            Ok(())
        } else {
            Err(format!("deletes one of {alike} Jobs with condition {how}, but the history limit is {fewest}"))
        }
    }
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// True when the time belongs to the schedule. Covers only the schedules of this scenario.
fn is_time_of(schedule: &str, time: i64) -> bool {
    match schedule {
        "* * * * *" => time.rem_euclid(60) == 0,
        "*/2 * * * *" => time.rem_euclid(120) == 0,
        "1-59/2 * * * *" => time.rem_euclid(120) == 60,
        "@every 90s" => true,
        _ => match schedule.strip_suffix(" * * * *").and_then(|it| it.parse::<i64>().ok()) {
            Some(minute) => time.rem_euclid(3600) == minute * 60,
            // The daylight saving scenario checks that the time is the right one.
            None => time.rem_euclid(900) == 0,
        },
    }
}
