use serde::{
    Serialize, Serializer,
    de::MapAccess,
    ser::{Error, SerializeMap},
};

use crate::{
    Atom, Uid, Version,
    json::next_or_default,
    time::{Seconds, rfc3339},
    unknown_fields::{UnknownFields, WithUnknownFields, impl_deserialize},
};

/// `status` of a CronJob. When it is written, it contains everything that was read, also unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CronJobStatus {
    /// Jobs that are not finished, as far as the controller has observed.
    pub active: Vec<ActiveJob>,
    /// The scheduled time of the last run, in seconds since the epoch.
    pub last_schedule: Option<i64>,
    /// When a Job last completed, in seconds since the epoch.
    pub last_successful: Option<i64>,
    unknown_fields: UnknownFields,
}

/// One entry of `status.active`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActiveJob {
    /// `group/version` of the Job.
    pub api_version: Atom,
    /// Its kind.
    pub kind: Atom,
    /// Its namespace.
    pub namespace: Atom,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Uid,
    /// Its resourceVersion at creation.
    pub version: Version,
    unknown_fields: UnknownFields,
}

impl ActiveJob {
    /// A reference to the Job of this name.
    #[must_use]
    pub fn new(namespace: &Atom, name: &str, uid: Uid, version: Version) -> Self {
        Self {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            namespace: namespace.clone(),
            name: name.into(),
            uid,
            version,
            unknown_fields: UnknownFields::default(),
        }
    }
}

impl_deserialize!(CronJobStatus);
impl_deserialize!(ActiveJob);

fn time<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<i64>, A::Error> {
    Ok(map.next_value::<Option<Seconds>>()?.map(|it| it.0))
}

impl WithUnknownFields for CronJobStatus {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "active" => self.active = next_or_default(map)?,
            "lastScheduleTime" => self.last_schedule = time(map)?,
            "lastSuccessfulTime" => self.last_successful = time(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl WithUnknownFields for ActiveJob {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "apiVersion" => self.api_version = next_or_default(map)?,
            "kind" => self.kind = next_or_default(map)?,
            "namespace" => self.namespace = next_or_default(map)?,
            "name" => self.name = next_or_default(map)?,
            "uid" => self.uid = next_or_default(map)?,
            "resourceVersion" => self.version = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl Serialize for CronJobStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { active, last_schedule, last_successful, unknown_fields } = self;
        let mut map = serializer.serialize_map(None)?;
        if !active.is_empty() {
            map.serialize_entry("active", active)?;
        }
        for (key, seconds) in [("lastScheduleTime", last_schedule), ("lastSuccessfulTime", last_successful)] {
            if let Some(seconds) = seconds {
                map.serialize_entry(key, &rfc3339(*seconds).map_err(S::Error::custom)?)?;
            }
        }
        unknown_fields.write(&mut map)?;
        map.end()
    }
}

impl Serialize for ActiveJob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { api_version, kind, namespace, name, uid, version, unknown_fields } = self;
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in [("kind", kind), ("namespace", namespace)] {
            if !value.is_empty() {
                map.serialize_entry(key, value)?;
            }
        }
        if !name.is_empty() {
            map.serialize_entry("name", name)?;
        }
        if !uid.is_empty() {
            map.serialize_entry("uid", uid)?;
        }
        if !api_version.is_empty() {
            map.serialize_entry("apiVersion", api_version)?;
        }
        if !version.is_empty() {
            map.serialize_entry("resourceVersion", version)?;
        }
        unknown_fields.write(&mut map)?;
        map.end()
    }
}
