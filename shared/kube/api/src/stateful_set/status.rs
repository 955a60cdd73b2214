use serde::{Serialize, Serializer, de::MapAccess, ser::SerializeMap};

use crate::{
    json::next_or_default,
    unknown_fields::{UnknownFields, WithUnknownFields, impl_deserialize},
};

/// `status` of a StatefulSet. When it is written, it contains everything that was read, also unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatefulSetStatus {
    /// The generation that this status describes.
    pub observed_generation: i64,
    /// The number of pods.
    pub replicas: i32,
    /// Pods that run and are ready.
    pub ready: i32,
    /// Pods of the current revision.
    pub current: i32,
    /// Pods of the update revision.
    pub updated: i32,
    /// Pods that have been ready for `minReadySeconds`.
    pub available: i32,
    /// The name of the revision of the pods that are not updated yet.
    pub current_revision: Box<str>,
    /// The name of the revision of the present template.
    pub update_revision: Box<str>,
    /// How often the name of a new revision was in use.
    pub collision_count: Option<i32>,
    unknown_fields: UnknownFields,
}

impl_deserialize!(StatefulSetStatus);

impl WithUnknownFields for StatefulSetStatus {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "observedGeneration" => self.observed_generation = next_or_default(map)?,
            "replicas" => self.replicas = next_or_default(map)?,
            "readyReplicas" => self.ready = next_or_default(map)?,
            "currentReplicas" => self.current = next_or_default(map)?,
            "updatedReplicas" => self.updated = next_or_default(map)?,
            "availableReplicas" => self.available = next_or_default(map)?,
            "currentRevision" => self.current_revision = next_or_default(map)?,
            "updateRevision" => self.update_revision = next_or_default(map)?,
            "collisionCount" => self.collision_count = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl Serialize for StatefulSetStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.observed_generation != 0 {
            map.serialize_entry("observedGeneration", &self.observed_generation)?;
        }
        map.serialize_entry("replicas", &self.replicas)?;
        let counters =
            [("readyReplicas", self.ready), ("currentReplicas", self.current), ("updatedReplicas", self.updated)];
        for (key, count) in counters.into_iter().filter(|(_, count)| *count != 0) {
            map.serialize_entry(key, &count)?;
        }
        for (key, name) in [("currentRevision", &self.current_revision), ("updateRevision", &self.update_revision)] {
            if !name.is_empty() {
                map.serialize_entry(key, name)?;
            }
        }
        if let Some(count) = self.collision_count {
            map.serialize_entry("collisionCount", &count)?;
        }
        map.serialize_entry("availableReplicas", &self.available)?;
        self.unknown_fields.write(&mut map)?;
        map.end()
    }
}
