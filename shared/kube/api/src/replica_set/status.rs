use serde::{Serialize, Serializer, de::MapAccess, ser::SerializeMap};

use crate::{
    Condition,
    json::next_or_default,
    unknown_fields::{UnknownFields, WithUnknownFields, impl_deserialize},
};

/// `status` of a ReplicaSet. When it is written, it contains everything that was read, also unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaSetStatus {
    /// The number of active pods.
    pub replicas: i32,
    /// Active pods that have all labels of the template.
    pub fully_labeled: i32,
    /// Active pods that are ready.
    pub ready: i32,
    /// Active pods that have been ready for `minReadySeconds`.
    pub available: i32,
    /// Pods that are being deleted and have not ended (KEP-3973); `None` if they are not counted.
    pub terminating: Option<i32>,
    /// The generation that this status describes.
    pub observed_generation: i64,
    /// All conditions in their order.
    pub conditions: Vec<Condition>,
    unknown_fields: UnknownFields,
}

impl_deserialize!(ReplicaSetStatus);

impl WithUnknownFields for ReplicaSetStatus {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "replicas" => self.replicas = next_or_default(map)?,
            "fullyLabeledReplicas" => self.fully_labeled = next_or_default(map)?,
            "readyReplicas" => self.ready = next_or_default(map)?,
            "availableReplicas" => self.available = next_or_default(map)?,
            "terminatingReplicas" => self.terminating = map.next_value()?,
            "observedGeneration" => self.observed_generation = next_or_default(map)?,
            "conditions" => self.conditions = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl Serialize for ReplicaSetStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("replicas", &self.replicas)?;
        let if_any = [
            ("fullyLabeledReplicas", self.fully_labeled),
            ("readyReplicas", self.ready),
            ("availableReplicas", self.available),
        ];
        for (key, count) in if_any.into_iter().filter(|(_, count)| *count != 0) {
            map.serialize_entry(key, &count)?;
        }
        if let Some(count) = self.terminating {
            map.serialize_entry("terminatingReplicas", &count)?;
        }
        if self.observed_generation != 0 {
            map.serialize_entry("observedGeneration", &self.observed_generation)?;
        }
        if !self.conditions.is_empty() {
            map.serialize_entry("conditions", &self.conditions)?;
        }
        self.unknown_fields.write(&mut map)?;
        map.end()
    }
}
