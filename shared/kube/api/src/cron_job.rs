use serde::{Deserialize, Deserializer, de::MapAccess};
use serde_json::value::RawValue;

use crate::{
    Cached, Meta, MetaRef, NoIndex, RawMetadata, Resource, StatusOwner, Typed,
    json::{as_json, named},
    metadata::{Extra, Metadata},
    time::Seconds,
    words::words,
};

mod status;

pub use status::{ActiveJob, CronJobStatus};

words! {
    /// What happens at a scheduled time when the previous Job is still running.
    ConcurrencyPolicy {
        /// Both Jobs run.
        Allow = "Allow" | "",
        /// The new Job is not created while the previous one is running.
        Forbid = "Forbid",
        /// The running Job is deleted.
        Replace = "Replace",
    }
}

/// The fields of a CronJob that our controllers read, and those that their writes must contain.
#[derive(Debug, Clone)]
pub struct CronJob {
    /// The common metadata.
    pub meta: Meta,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// The spec.
    pub spec: CronJobSpec,
    /// The last stored status. A changed copy of it is the body of the next status write.
    pub status: CronJobStatus,
    raw_metadata: RawMetadata,
}

/// `spec` of a CronJob. Missing fields have the server's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronJobSpec {
    /// The schedule in cron format.
    pub schedule: Box<str>,
    /// The time zone of the schedule; `None` means the time zone of the process.
    pub time_zone: Option<Box<str>>,
    /// How late a Job may start, in seconds.
    pub starting_deadline: Option<i64>,
    /// What happens at a scheduled time when the previous Job is still running.
    pub concurrency_policy: ConcurrencyPolicy,
    /// True if no Job is created.
    pub suspend: bool,
    /// The number of successful Jobs to keep; `None` means all.
    pub successful_history: Option<i32>,
    /// The number of failed Jobs to keep; `None` means all.
    pub failed_history: Option<i32>,
    /// `jobTemplate` as unchanged JSON. It is decoded when a Job is created.
    pub template: Box<str>,
}

impl Cached for CronJob {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for CronJob {
    fn resource() -> Resource {
        Resource::namespaced("batch", "v1", "cronjobs", "CronJob")
    }
}

impl StatusOwner for CronJob {
    fn raw_metadata(&self) -> &RawMetadata {
        &self.raw_metadata
    }
}

impl<'de> Deserialize<'de> for CronJob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: RawMetadata,
            spec: Option<CronJobSpec>,
            status: Option<CronJobStatus>,
        }
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let parsed: Metadata<CronJobMetadata> = named("metadata", metadata.get()).map_err(serde::de::Error::custom)?;
        Ok(Self {
            meta: parsed.meta,
            creation: parsed.extra.creation,
            spec: spec.unwrap_or_default(),
            status: status.unwrap_or_default(),
            raw_metadata: metadata,
        })
    }
}

#[derive(Default)]
struct CronJobMetadata {
    creation: Option<i64>,
}

impl Extra for CronJobMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "creationTimestamp" => self.creation = map.next_value::<Option<Seconds>>()?.map(|it| it.0),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Default for CronJobSpec {
    fn default() -> Self {
        WireSpec::default().into()
    }
}

impl<'de> Deserialize<'de> for CronJobSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WireSpec::deserialize(deserializer).map(Self::from)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    schedule: Option<Box<str>>,
    time_zone: Option<Box<str>>,
    starting_deadline_seconds: Option<i64>,
    concurrency_policy: Option<ConcurrencyPolicy>,
    suspend: Option<bool>,
    successful_jobs_history_limit: Option<i32>,
    failed_jobs_history_limit: Option<i32>,
    job_template: Option<Box<RawValue>>,
}

impl From<WireSpec> for CronJobSpec {
    fn from(wire: WireSpec) -> Self {
        Self {
            schedule: wire.schedule.unwrap_or_default(),
            time_zone: wire.time_zone,
            starting_deadline: wire.starting_deadline_seconds,
            concurrency_policy: wire.concurrency_policy.unwrap_or_default(),
            suspend: wire.suspend.unwrap_or_default(),
            successful_history: wire.successful_jobs_history_limit,
            failed_history: wire.failed_jobs_history_limit,
            template: wire.job_template.map(Box::<str>::from).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
