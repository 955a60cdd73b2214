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
    /// What happens at a time whose predecessor still runs.
    ConcurrencyPolicy {
        /// Both run.
        Allow = "Allow" | "",
        /// The new one has to wait.
        Forbid = "Forbid",
        /// The old one goes.
        Replace = "Replace",
    }
}

/// What our controllers read of a CronJob, and what their writes must carry back.
#[derive(Debug, Clone)]
pub struct CronJob {
    /// What every object has.
    pub meta: Meta,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// What the user wants.
    pub spec: CronJobSpec,
    /// What was last written of it. A copy, changed, is what the next write says.
    pub status: CronJobStatus,
    raw_metadata: RawMetadata,
}

/// `spec` of a CronJob, with the server's defaults for what may not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronJobSpec {
    /// The times, in the text of cron.
    pub schedule: Box<str>,
    /// The zone in which the text is read; `None` is the zone of the process.
    pub time_zone: Option<Box<str>>,
    /// How late a run may begin, in seconds.
    pub starting_deadline: Option<i64>,
    /// What happens at a time whose predecessor still runs.
    pub concurrency_policy: ConcurrencyPolicy,
    /// Nothing begins.
    pub suspend: bool,
    /// How many Jobs that succeeded are kept; `None` is all.
    pub successful_history: Option<i32>,
    /// How many Jobs that failed are kept; `None` is all.
    pub failed_history: Option<i32>,
    /// `jobTemplate` as JSON, as it came; decoded when a Job is made.
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
