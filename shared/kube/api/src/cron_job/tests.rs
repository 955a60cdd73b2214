use serde_json::{Value, json};

use super::*;
use crate::{Frame, Uid, Version};

const CRON_JOB: &str = r#"{"kind":"CronJob","apiVersion":"batch/v1","metadata":{"name":"c","namespace":"ns","uid":"U-1",
    "resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z","annotations":{"a":"b"},
    "managedFields":[{"manager":"kubectl"}]},
    "spec":{"schedule":"*/5 * * * *","timeZone":"Europe/Berlin","startingDeadlineSeconds":9223372036854775807,
      "concurrencyPolicy":"Forbid","suspend":true,"successfulJobsHistoryLimit":0,"failedJobsHistoryLimit":2,
      "jobTemplate":{"metadata":{"labels":{"x":"y"}},"spec":{"new":1.50}}},
    "status":{"active":[{"kind":"Job","namespace":"ns","name":"c-1","uid":"u-1","apiVersion":"batch/v1",
        "resourceVersion":"5","fieldPath":"f"}],
      "lastScheduleTime":"2026-01-02T03:05:00Z","lastSuccessfulTime":"2026-01-02T03:05:07Z","nextScheduleTime":"soon"}}"#;

fn decode(text: &str) -> CronJob {
    CronJob::decode_object(text.as_bytes()).unwrap()
}

#[test]
fn cron_job_has_the_fields_that_controllers_read() {
    let CronJob { meta, creation, spec, status, .. } = decode(CRON_JOB);
    assert_eq!((&*meta.name, meta.uid, creation), ("c", Uid::new("U-1"), Some(1_767_323_045)));
    let want = CronJobSpec {
        schedule: "*/5 * * * *".into(),
        time_zone: Some("Europe/Berlin".into()),
        starting_deadline: Some(i64::MAX),
        concurrency_policy: ConcurrencyPolicy::Forbid,
        suspend: true,
        successful_history: Some(0),
        failed_history: Some(2),
        template: r#"{"metadata":{"labels":{"x":"y"}},"spec":{"new":1.50}}"#.into(),
    };
    assert_eq!(spec, want);
    assert_eq!((status.last_schedule, status.last_successful), (Some(1_767_323_100), Some(1_767_323_107)));
    let [active] = &*status.active else { panic!("{status:?}") };
    assert_eq!((&*active.name, &active.uid, &active.version), ("c-1", &Uid::new("u-1"), &Version::new("5")));
}

#[test]
fn absent_fields_have_the_servers_defaults_and_unknown_values_are_kept() {
    let bare = decode(r#"{"metadata":{"name":"c"},"spec":null}"#);
    assert_eq!(bare.spec.concurrency_policy, ConcurrencyPolicy::Allow);
    assert_eq!((bare.spec.suspend, bare.spec.successful_history), (false, None));
    assert_eq!(bare.status, CronJobStatus::default());
    let newer = decode(r#"{"metadata":{"name":"c"},"spec":{"concurrencyPolicy":"Queue"}}"#);
    assert_eq!(newer.spec.concurrency_policy, ConcurrencyPolicy::Other("Queue".into()));
}

#[test]
fn status_is_written_with_all_fields_that_were_read() {
    let cron_job = decode(CRON_JOB);
    let written = serde_json::to_value(&cron_job.status).unwrap();
    let read: Value = serde_json::from_str(CRON_JOB).unwrap();
    assert_eq!(written, read["status"]);
    assert!(!cron_job.raw_metadata().get().contains("managedFields"));
    assert_eq!(serde_json::to_value(CronJobStatus::default()).unwrap(), json!({}));
    let made = ActiveJob::new(&"ns".into(), "c-2", Uid::new("u-2"), Version::new("9"));
    let want = json!({ "apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "c-2", "uid": "u-2",
        "resourceVersion": "9" });
    assert_eq!(serde_json::to_value(&made).unwrap(), want);
}

#[test]
fn cron_job_that_does_not_decode_keeps_its_metadata() {
    let frame = r#"{"type":"ADDED","object":{"metadata":{"name":"c"},"status":{"lastScheduleTime":"yesterday"}}}"#;
    let Frame::Unreadable(_, meta, why) = CronJob::decode_frame(frame.as_bytes()) else { panic!() };
    assert_eq!(&*meta.name, "c");
    assert!(why.contains("lastScheduleTime"), "{why}");
}
