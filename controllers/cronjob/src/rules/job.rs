//! The request body of the Job for a time.

use std::collections::BTreeMap;

use api::CronJob;
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::rules::snapshot::{SCHEDULED, job_name};

#[derive(Deserialize)]
struct Template {
    metadata: Option<TemplateMetadata>,
    spec: Option<Box<RawValue>>,
}

/// No other metadata of the template is used. The server does not validate these fields before a Job is created.
#[derive(Deserialize, Default)]
struct TemplateMetadata {
    labels: Option<BTreeMap<String, Value>>,
    annotations: Option<BTreeMap<String, Value>>,
}

/// A Job.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Body<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: String,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, Value>>,
    annotations: BTreeMap<String, Value>,
    owner_references: [Owner<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    uid: &'a api::Uid,
    controller: bool,
    block_owner_deletion: bool,
}

/// The Job for the time `at`. The annotation with the time uses `zone`.
///
/// # Errors
/// Never for a template from the API server.
pub(crate) fn body<'a>(cron_job: &'a CronJob, at: i64, zone: &TimeZone) -> Result<Body<'a>, serde_json::Error> {
    let Template { metadata, spec } = serde_json::from_str(&cron_job.spec.template)?;
    let TemplateMetadata { labels, annotations } = metadata.unwrap_or_default();
    let mut annotations = annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.to_owned(), rfc3339(at, zone).into());
    let meta = &cron_job.meta;
    let owner = Owner {
        api_version: "batch/v1",
        kind: "CronJob",
        name: &meta.name,
        uid: &meta.uid,
        controller: true,
        block_owner_deletion: true,
    };
    let metadata = Metadata {
        name: job_name(cron_job, at),
        namespace: &meta.namespace,
        labels,
        annotations,
        owner_references: [owner],
    };
    Ok(Body { api_version: "batch/v1", kind: "Job", metadata, spec })
}

/// RFC 3339 with an offset in hours and minutes, or `Z` for UTC.
fn rfc3339(at: i64, zone: &TimeZone) -> String {
    let at = Timestamp::from_second(at).unwrap_or_default();
    let offset = zone.to_offset(at);
    let wall = offset.to_datetime(at).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let minutes = offset.seconds() / 60;
    if offset.seconds() == 0 {
        return format!("{wall}Z");
    }
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{wall}{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        rules::{
            schedule::{
                ZoneNames,
                tests::{at, zones},
            },
            snapshot::tests::cron_job,
        },
        zones::ProcessZone,
    };

    const T: &str = "2026-05-19T10:00:00Z";

    fn zone(name: &str) -> TimeZone {
        zones(ProcessZone::Named("UTC")).zone(name).unwrap()
    }

    fn made(template: Value, zone: &TimeZone) -> Value {
        let owner = cron_job(json!({ "spec": { "jobTemplate": template } }));
        serde_json::to_value(body(&owner, at(T), zone).unwrap()).unwrap()
    }

    #[test]
    fn acceptance_cronjob_027_a_job_is_its_template_with_a_name_a_time_and_an_owner() {
        let template = json!({
            "metadata": { "name": "n", "namespace": "other", "labels": { "a": "b" }, "annotations": { "c": "d" },
                "finalizers": ["f"], "ownerReferences": [{ "uid": "x" }], "creationTimestamp": null },
            "spec": { "suspend": true, "ttlSecondsAfterFinished": 5, "new": [1.5],
                "template": { "spec": { "containers": [] } } },
        });
        let want = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "c-29653080",
                "namespace": "ns",
                "labels": { "a": "b" },
                "annotations": { "c": "d", SCHEDULED: "2026-05-19T10:00:00Z" },
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c",
                    "controller": true, "blockOwnerDeletion": true }],
            },
            "spec": template["spec"],
        });
        assert_eq!(made(template, &TimeZone::UTC), want);
        let bare = made(json!({ "spec": {} }), &TimeZone::UTC);
        assert_eq!(bare["metadata"].get("labels"), None);
    }

    #[test]
    fn acceptance_cronjob_028_a_timestamp_in_the_template_is_overwritten() {
        let template = json!({ "metadata": { "annotations": { SCHEDULED: "never" } }, "spec": {} });
        assert_eq!(made(template, &TimeZone::UTC)["metadata"]["annotations"][SCHEDULED], T);
    }

    #[test]
    fn acceptance_cronjob_044_a_template_for_another_controller_is_copied_as_it_is() {
        let template = json!({ "spec": { "managedBy": "example.com/other" } });
        assert_eq!(made(template, &TimeZone::UTC)["spec"]["managedBy"], "example.com/other");
    }

    #[test]
    fn the_annotation_uses_the_zone_of_the_cron_job() {
        for (name, want) in [
            ("Europe/Berlin", "2026-05-19T12:00:00+02:00"),
            ("America/St_Johns", "2026-05-19T07:30:00-02:30"),
            ("Asia/Kolkata", "2026-05-19T15:30:00+05:30"),
            ("Africa/Abidjan", "2026-05-19T10:00:00Z"),
        ] {
            assert_eq!(rfc3339(at(T), &zone(name)), want);
        }
    }
}
