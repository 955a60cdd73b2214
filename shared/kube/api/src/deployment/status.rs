use serde::{
    Serialize, Serializer,
    de::MapAccess,
    ser::{Error, SerializeMap},
};

use crate::{
    Atom, ConditionStatus,
    json::next_or_default,
    time::{Seconds, rfc3339},
    unknown_fields::{UnknownFields, WithUnknownFields, impl_deserialize},
};

/// `status` of a Deployment. When it is written, it contains everything that was read, also unknown fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeploymentStatus {
    /// The generation that this status describes.
    pub observed_generation: i64,
    /// The number of active pods.
    pub replicas: i32,
    /// Active pods of the present template.
    pub updated: i32,
    /// Active pods that are ready.
    pub ready: i32,
    /// Active pods that have been ready for `minReadySeconds`.
    pub available: i32,
    /// Pods that are missing, or not available yet.
    pub unavailable: i32,
    /// Pods that are being deleted (KEP-3973); `None` if a ReplicaSet does not count them.
    pub terminating: Option<i32>,
    /// All conditions in their order.
    pub conditions: Vec<DeploymentCondition>,
    /// How often the name of a new ReplicaSet was in use.
    pub collision_count: Option<i32>,
    unknown_fields: UnknownFields,
}

/// One entry of a Deployment's `status.conditions`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeploymentCondition {
    /// The type of the condition.
    pub type_: Atom,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When it was last updated, in seconds since the epoch.
    pub last_update: Option<i64>,
    /// When `status` last changed, in seconds since the epoch.
    pub last_transition: Option<i64>,
    /// The reason, in one word.
    pub reason: Atom,
    /// The reason, for people.
    pub message: Box<str>,
    unknown_fields: UnknownFields,
}

impl DeploymentStatus {
    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.conditions.iter().find(|it| &*it.type_ == type_)
    }
}

impl DeploymentCondition {
    /// A condition with its times set to `now`.
    #[must_use]
    pub fn new(type_: &str, status: ConditionStatus, reason: &str, message: &str, now: i64) -> Self {
        Self {
            type_: type_.into(),
            status,
            last_update: Some(now),
            last_transition: Some(now),
            reason: reason.into(),
            message: message.into(),
            unknown_fields: UnknownFields::default(),
        }
    }
}

impl_deserialize!(DeploymentStatus);
impl_deserialize!(DeploymentCondition);

impl WithUnknownFields for DeploymentStatus {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "observedGeneration" => self.observed_generation = next_or_default(map)?,
            "replicas" => self.replicas = next_or_default(map)?,
            "updatedReplicas" => self.updated = next_or_default(map)?,
            "readyReplicas" => self.ready = next_or_default(map)?,
            "availableReplicas" => self.available = next_or_default(map)?,
            "unavailableReplicas" => self.unavailable = next_or_default(map)?,
            "terminatingReplicas" => self.terminating = map.next_value()?,
            "conditions" => self.conditions = next_or_default(map)?,
            "collisionCount" => self.collision_count = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl WithUnknownFields for DeploymentCondition {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        let time = |map: &mut A| map.next_value::<Option<Seconds>>().map(|it| it.map(|it| it.0));
        match key {
            "type" => self.type_ = next_or_default(map)?,
            "status" => self.status = next_or_default(map)?,
            "lastUpdateTime" => self.last_update = time(map)?,
            "lastTransitionTime" => self.last_transition = time(map)?,
            "reason" => self.reason = next_or_default(map)?,
            "message" => self.message = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn unknown_fields(&mut self) -> &mut UnknownFields {
        &mut self.unknown_fields
    }
}

impl Serialize for DeploymentStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.observed_generation != 0 {
            map.serialize_entry("observedGeneration", &self.observed_generation)?;
        }
        let if_any = [
            ("replicas", self.replicas),
            ("updatedReplicas", self.updated),
            ("readyReplicas", self.ready),
            ("availableReplicas", self.available),
            ("unavailableReplicas", self.unavailable),
        ];
        for (key, count) in if_any.into_iter().filter(|(_, count)| *count != 0) {
            map.serialize_entry(key, &count)?;
        }
        if let Some(count) = self.terminating {
            map.serialize_entry("terminatingReplicas", &count)?;
        }
        if !self.conditions.is_empty() {
            map.serialize_entry("conditions", &self.conditions)?;
        }
        if let Some(count) = self.collision_count {
            map.serialize_entry("collisionCount", &count)?;
        }
        self.unknown_fields.write(&mut map)?;
        map.end()
    }
}

impl Serialize for DeploymentCondition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { type_, status, last_update, last_transition, reason, message, unknown_fields } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", type_)?;
        map.serialize_entry("status", status)?;
        for (key, seconds) in [("lastUpdateTime", last_update), ("lastTransitionTime", last_transition)] {
            if let Some(seconds) = seconds {
                map.serialize_entry(key, &rfc3339(*seconds).map_err(S::Error::custom)?)?;
            }
        }
        if !reason.is_empty() {
            map.serialize_entry("reason", reason)?;
        }
        if !message.is_empty() {
            map.serialize_entry("message", message)?;
        }
        unknown_fields.write(&mut map)?;
        map.end()
    }
}
