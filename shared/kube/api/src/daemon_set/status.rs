use serde::{Serialize, Serializer, de::MapAccess, ser::SerializeMap};

use crate::{
    json::next_or_default,
    unknown_fields::{UnknownFields, WithUnknownFields, impl_deserialize},
};

/// `status` of a DaemonSet. When it is written, it contains everything that was read, also unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonSetStatus {
    /// The generation that this status describes.
    pub observed_generation: i64,
    /// Nodes that should run a pod.
    pub desired: i32,
    /// Nodes that should run a pod and have at least one.
    pub current: i32,
    /// Nodes that should not run a pod and have one.
    pub misscheduled: i32,
    /// Nodes that should run a pod and have a ready one.
    pub ready: i32,
    /// Nodes that should run a pod and have one of the present template.
    pub updated: i32,
    /// Nodes that should run a pod and have one that has been ready for `minReadySeconds`.
    pub available: i32,
    /// Nodes that should run a pod and have no available one.
    pub unavailable: i32,
    /// How often the name of a new revision was in use.
    pub collision_count: Option<i32>,
    unknown_fields: UnknownFields,
}

impl_deserialize!(DaemonSetStatus);

impl WithUnknownFields for DaemonSetStatus {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "observedGeneration" => self.observed_generation = next_or_default(map)?,
            "desiredNumberScheduled" => self.desired = next_or_default(map)?,
            "currentNumberScheduled" => self.current = next_or_default(map)?,
            "numberMisscheduled" => self.misscheduled = next_or_default(map)?,
            "numberReady" => self.ready = next_or_default(map)?,
            "updatedNumberScheduled" => self.updated = next_or_default(map)?,
            "numberAvailable" => self.available = next_or_default(map)?,
            "numberUnavailable" => self.unavailable = next_or_default(map)?,
            "collisionCount" => self.collision_count = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl Serialize for DaemonSetStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let always = [
            ("currentNumberScheduled", self.current),
            ("numberMisscheduled", self.misscheduled),
            ("desiredNumberScheduled", self.desired),
            ("numberReady", self.ready),
        ];
        for (key, count) in always {
            map.serialize_entry(key, &count)?;
        }
        if self.observed_generation != 0 {
            map.serialize_entry("observedGeneration", &self.observed_generation)?;
        }
        let if_any = [
            ("updatedNumberScheduled", self.updated),
            ("numberAvailable", self.available),
            ("numberUnavailable", self.unavailable),
        ];
        for (key, count) in if_any.into_iter().filter(|(_, count)| *count != 0) {
            map.serialize_entry(key, &count)?;
        }
        if let Some(count) = self.collision_count {
            map.serialize_entry("collisionCount", &count)?;
        }
        self.unknown_fields.write(&mut map)?;
        map.end()
    }
}
