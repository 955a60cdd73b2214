use serde::{
    Serialize, Serializer,
    de::MapAccess,
    ser::{Error, SerializeMap},
};

use crate::{
    Atom, ConditionStatus, Uid,
    json::next_or_default,
    time::{Seconds, rfc3339},
    unknown_fields::{UnknownFields, WithUnknownFields, impl_deserialize},
};

/// `status` of a Job. When it is written, it contains everything that was read, also unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobStatus {
    /// All conditions in their order.
    pub conditions: Vec<JobCondition>,
    /// When the Job became active, in seconds since the epoch.
    pub start: Option<i64>,
    /// When it completed, in seconds since the epoch.
    pub completion: Option<i64>,
    /// The number of pods that are neither finished nor being deleted.
    pub active: i32,
    /// The number of active pods that are ready.
    pub ready: Option<i32>,
    /// The number of pods that are being deleted and not finished.
    pub terminating: Option<i32>,
    /// The number of succeeded pods, or indexes, that are counted permanently.
    pub succeeded: i32,
    /// The number of failed pods that are counted permanently.
    pub failed: i32,
    /// The succeeded indexes as intervals; empty for none.
    pub completed_indexes: Box<str>,
    /// The failed indexes as intervals.
    pub failed_indexes: Option<Box<str>>,
    /// The finished pods that still have our finalizer.
    pub uncounted: Option<UncountedPods>,
    unknown_fields: UnknownFields,
}

/// `status.uncountedTerminatedPods`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UncountedPods {
    /// The succeeded pods.
    pub succeeded: Vec<Uid>,
    /// The failed pods.
    pub failed: Vec<Uid>,
    unknown_fields: UnknownFields,
}

/// One entry of a Job's `status.conditions`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobCondition {
    /// The type of the condition.
    pub type_: Atom,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, in one word.
    pub reason: Atom,
    /// The reason, for people.
    pub message: Box<str>,
    /// When it was last checked, in seconds since the epoch.
    pub last_probe: Option<i64>,
    /// When `status` last changed, in seconds since the epoch.
    pub last_transition: Option<i64>,
    unknown_fields: UnknownFields,
}

impl JobStatus {
    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&JobCondition> {
        self.conditions.iter().find(|it| &*it.type_ == type_)
    }

    /// True if a condition of this type has the status `True`.
    #[must_use]
    pub fn is_condition_true(&self, type_: &str) -> bool {
        self.conditions.iter().any(|it| &*it.type_ == type_ && it.status == ConditionStatus::True)
    }

    /// The condition Complete or Failed that finished the Job.
    #[must_use]
    pub fn finished_condition(&self) -> Option<&JobCondition> {
        let ends =
            |it: &&JobCondition| matches!(&*it.type_, "Complete" | "Failed") && it.status == ConditionStatus::True;
        self.conditions.iter().find(ends)
    }
}

impl JobCondition {
    /// A condition with its times set to `now`.
    #[must_use]
    pub fn new(type_: &str, status: ConditionStatus, reason: &str, message: &str, now: i64) -> Self {
        Self {
            type_: type_.into(),
            status,
            reason: reason.into(),
            message: message.into(),
            last_probe: Some(now),
            last_transition: Some(now),
            unknown_fields: UnknownFields::default(),
        }
    }
}

impl UncountedPods {
    /// The number of pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl_deserialize!(JobStatus);
impl_deserialize!(UncountedPods);
impl_deserialize!(JobCondition);

fn time<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<i64>, A::Error> {
    Ok(map.next_value::<Option<Seconds>>()?.map(|it| it.0))
}

impl WithUnknownFields for JobStatus {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "conditions" => self.conditions = next_or_default(map)?,
            "startTime" => self.start = time(map)?,
            "completionTime" => self.completion = time(map)?,
            "active" => self.active = next_or_default(map)?,
            "ready" => self.ready = map.next_value()?,
            "terminating" => self.terminating = map.next_value()?,
            "succeeded" => self.succeeded = next_or_default(map)?,
            "failed" => self.failed = next_or_default(map)?,
            "completedIndexes" => self.completed_indexes = next_or_default(map)?,
            "failedIndexes" => self.failed_indexes = map.next_value()?,
            "uncountedTerminatedPods" => self.uncounted = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl WithUnknownFields for UncountedPods {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "succeeded" => self.succeeded = next_or_default(map)?,
            "failed" => self.failed = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl WithUnknownFields for JobCondition {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "type" => self.type_ = next_or_default(map)?,
            "status" => self.status = next_or_default(map)?,
            "reason" => self.reason = next_or_default(map)?,
            "message" => self.message = next_or_default(map)?,
            "lastProbeTime" => self.last_probe = time(map)?,
            "lastTransitionTime" => self.last_transition = time(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

/// Writes a map without its absent fields, as the server does.
struct Writer<M>(M);

impl<M: SerializeMap> Writer<M> {
    fn some<T: Serialize>(&mut self, key: &str, value: Option<T>) -> Result<(), M::Error> {
        value.map_or(Ok(()), |value| self.0.serialize_entry(key, &value))
    }

    fn time(&mut self, key: &str, seconds: Option<i64>) -> Result<(), M::Error> {
        self.some(key, seconds.map(rfc3339).transpose().map_err(M::Error::custom)?)
    }

    fn end(mut self, unknown_fields: &UnknownFields) -> Result<M::Ok, M::Error> {
        unknown_fields.write(&mut self.0)?;
        self.0.end()
    }
}

impl Serialize for JobStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { conditions, start, completion, active, ready, terminating, .. } = self;
        let Self { succeeded, failed, completed_indexes, failed_indexes, uncounted, unknown_fields, .. } = self;
        let count = |it: &i32| (*it != 0).then_some(*it);
        let mut map = Writer(serializer.serialize_map(None)?);
        map.some("conditions", (!conditions.is_empty()).then_some(conditions))?;
        map.time("startTime", *start)?;
        map.time("completionTime", *completion)?;
        map.some("active", count(active))?;
        map.some("ready", *ready)?;
        map.some("terminating", *terminating)?;
        map.some("succeeded", count(succeeded))?;
        map.some("failed", count(failed))?;
        map.some("completedIndexes", (!completed_indexes.is_empty()).then_some(completed_indexes))?;
        map.some("failedIndexes", failed_indexes.as_ref())?;
        map.some("uncountedTerminatedPods", uncounted.as_ref())?;
        map.end(unknown_fields)
    }
}

impl Serialize for UncountedPods {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { succeeded, failed, unknown_fields } = self;
        let mut map = Writer(serializer.serialize_map(None)?);
        map.some("succeeded", (!succeeded.is_empty()).then_some(succeeded))?;
        map.some("failed", (!failed.is_empty()).then_some(failed))?;
        map.end(unknown_fields)
    }
}

impl Serialize for JobCondition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { type_, status, reason, message, last_probe, last_transition, unknown_fields } = self;
        let mut map = Writer(serializer.serialize_map(None)?);
        map.some("type", Some(type_))?;
        map.some("status", Some(status))?;
        map.time("lastProbeTime", *last_probe)?;
        map.time("lastTransitionTime", *last_transition)?;
        map.some("reason", (!reason.is_empty()).then_some(reason))?;
        map.some("message", (!message.is_empty()).then_some(message))?;
        map.end(unknown_fields)
    }
}
