use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::MapAccess};

use crate::{
    Atom, Cached, Meta, MetaRef, NoIndex, Resource, Typed,
    json::{as_json, next_or_default},
    metadata::{Extra, Metadata},
    time::Micros,
};

/// The fields of a Lease that our controllers read: the heartbeat of a node, or the lock of a leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The common metadata.
    pub meta: Meta,
    /// All annotations, unchanged. Our leaders write notes there. The Lease of a node has none.
    pub annotations: BTreeMap<String, String>,
    /// holderIdentity; empty if there is no holder.
    pub holder: Atom,
    /// leaseDurationSeconds.
    pub duration_seconds: Option<i32>,
    /// acquireTime in microseconds since the epoch.
    pub acquire_micros: Option<i64>,
    /// renewTime in microseconds since the epoch.
    pub renew_micros: Option<i64>,
    /// leaseTransitions.
    pub transitions: Option<i32>,
}

impl Cached for Lease {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for Lease {
    fn resource() -> Resource {
        Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease")
    }
}

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec } = Wire::deserialize(deserializer)?;
        let Metadata { meta, extra: LeaseMetadata { annotations } } = metadata;
        let WireSpec { holder_identity, lease_duration_seconds, acquire_time, renew_time, lease_transitions } =
            spec.unwrap_or_default();
        Ok(Self {
            meta,
            annotations,
            holder: holder_identity.unwrap_or_default(),
            duration_seconds: lease_duration_seconds,
            acquire_micros: acquire_time.map(|it| it.0),
            renew_micros: renew_time.map(|it| it.0),
            transitions: lease_transitions,
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata<LeaseMetadata>,
    spec: Option<WireSpec>,
}

#[derive(Default)]
struct LeaseMetadata {
    annotations: BTreeMap<String, String>,
}

impl Extra for LeaseMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "annotations" => self.annotations = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    holder_identity: Option<Atom>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<Micros>,
    renew_time: Option<Micros>,
    lease_transitions: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_record_has_microseconds() {
        let lease = Lease::decode_object(
            br#"{"metadata":{"name":"l","namespace":"kube-system","annotations":{"a":"1"}},"spec":{
                "holderIdentity":"me_1","leaseDurationSeconds":15,"acquireTime":"2026-01-02T03:04:05.000001Z",
                "renewTime":"2026-01-02T03:04:05.999999Z","leaseTransitions":3}}"#,
        )
        .unwrap();
        assert_eq!((&*lease.holder, lease.duration_seconds, lease.transitions), ("me_1", Some(15), Some(3)));
        assert_eq!(lease.acquire_micros, Some(1_767_323_045_000_001));
        assert_eq!(lease.renew_micros, Some(1_767_323_045_999_999));
        assert_eq!(lease.annotations["a"], "1");
        let released = Lease::decode_object(br#"{"metadata":{"name":"l"},"spec":{"holderIdentity":null}}"#).unwrap();
        assert_eq!((&*released.holder, released.renew_micros), ("", None));
    }
}
