use serde::{Deserialize, Deserializer, de::MapAccess};

use crate::{
    Atom, Cached, ConditionStatus, Labels, Meta, MetaRef, NoIndex, Resource, Taint, Typed,
    json::as_json,
    labels::Pairs,
    metadata::{Extra, Metadata},
    time::Seconds,
};

/// The fields of a node that our controllers read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The common metadata.
    pub meta: Meta,
    /// All labels.
    pub labels: Labels,
    /// The annotation [`Node::TTL_ANNOTATION`] as text; `None` if it is absent. Other annotations are dropped, because
    /// some of them are large.
    pub ttl: Option<Atom>,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// spec.unschedulable: true if the node is cordoned.
    pub unschedulable: bool,
    /// All taints in their order.
    pub taints: Box<[Taint]>,
    /// All conditions in their order.
    pub conditions: Box<[NodeCondition]>,
}

/// A condition of a node. Only these conditions have a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// The type of the condition.
    pub type_: Atom,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, in one word.
    pub reason: Atom,
    /// When the kubelet last reported the condition, in seconds since the epoch.
    pub last_heartbeat: Option<i64>,
    /// When `status` last changed, in seconds since the epoch.
    pub last_transition: Option<i64>,
}

impl Node {
    /// The annotation that contains for how many seconds the kubelet may use a cached Secret or ConfigMap.
    pub const TTL_ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&NodeCondition> {
        self.conditions.iter().find(|it| &*it.type_ == type_)
    }
}

impl Cached for Node {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for Node {
    fn resource() -> Resource {
        Resource::cluster("", "v1", "nodes", "Node")
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let Metadata { meta, extra } = metadata;
        let WireSpec { unschedulable, taints } = spec.unwrap_or_default();
        let WireStatus { conditions } = status.unwrap_or_default();
        Ok(Self {
            meta,
            labels: extra.labels,
            ttl: extra.ttl,
            creation: extra.creation,
            unschedulable: unschedulable.unwrap_or_default(),
            taints: taints.unwrap_or_default(),
            conditions: conditions.into_iter().flatten().map(NodeCondition::from).collect(),
        })
    }
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata<NodeMetadata>,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Default)]
struct NodeMetadata {
    labels: Labels,
    ttl: Option<Atom>,
    creation: Option<i64>,
}

impl Extra for NodeMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "labels" => self.labels = Pairs { keep: |_| true }.next(map)?,
            "annotations" => {
                let kept = Pairs { keep: |key| key == Node::TTL_ANNOTATION }.next(map)?;
                self.ttl = kept.get(Node::TTL_ANNOTATION).map(Atom::from);
            }
            "creationTimestamp" => self.creation = map.next_value::<Option<Seconds>>()?.map(|it| it.0),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[derive(Deserialize, Default)]
struct WireSpec {
    unschedulable: Option<bool>,
    taints: Option<Box<[Taint]>>,
}

#[derive(Deserialize, Default)]
struct WireStatus {
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    r#type: Option<Atom>,
    status: Option<ConditionStatus>,
    reason: Option<Atom>,
    last_heartbeat_time: Option<Seconds>,
    last_transition_time: Option<Seconds>,
}

impl From<WireCondition> for NodeCondition {
    fn from(wire: WireCondition) -> Self {
        let WireCondition { r#type, status, reason, last_heartbeat_time, last_transition_time } = wire;
        Self {
            type_: r#type.unwrap_or_default(),
            status: status.unwrap_or_default(),
            reason: reason.unwrap_or_default(),
            last_heartbeat: last_heartbeat_time.map(|it| it.0),
            last_transition: last_transition_time.map(|it| it.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaintEffect;

    #[test]
    fn node_has_labels_taints_and_conditions() {
        let node = Node::decode_object(
            br#"{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"a"},
                "creationTimestamp":"2026-01-02T03:04:05Z"},
                "spec":{"podCIDR":"10.0.0.0/24","unschedulable":true,"taints":[
                    {"key":"node.kubernetes.io/unreachable","effect":"NoExecute","timeAdded":"2026-01-02T03:04:06Z"},
                    {"key":"k","value":"v","effect":"NoRoom"}]},
                "status":{"capacity":{"cpu":"4"},"conditions":[{"type":"Ready","status":"Unknown",
                    "reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.",
                    "lastHeartbeatTime":"2026-01-02T03:04:07Z","lastTransitionTime":"2026-01-02T03:04:08Z"}]}}"#,
        )
        .unwrap();
        assert_eq!(node.labels.get("topology.kubernetes.io/zone"), Some("a"));
        assert_eq!((node.creation, node.unschedulable), (Some(1_767_323_045), true));
        assert_eq!((&node.taints[0].effect, node.taints[0].added), (&TaintEffect::NoExecute, Some(1_767_323_046)));
        assert_eq!((&*node.taints[1].value, node.taints[1].effect.as_str()), ("v", "NoRoom"));
        let ready = node.condition("Ready").unwrap();
        assert_eq!((&ready.status, &*ready.reason), (&ConditionStatus::Unknown, "NodeStatusUnknown"));
        assert_eq!((ready.last_heartbeat, ready.last_transition), (Some(1_767_323_047), Some(1_767_323_048)));
    }

    #[test]
    fn of_the_annotations_only_the_ttl_is_kept() {
        let ttl_of = |annotations: &str| {
            let node = format!(r#"{{"metadata":{{"name":"n1","annotations":{annotations}}}}}"#);
            Node::decode_object(node.as_bytes()).unwrap().ttl.map(|it| it.to_string())
        };
        let full = r#"{"csi.volume.kubernetes.io/nodeid":"{}","node.alpha.kubernetes.io/ttl":"15","z":"1"}"#;
        assert_eq!(ttl_of(full).as_deref(), Some("15"));
        assert_eq!(ttl_of(r#"{"node.alpha.kubernetes.io/ttl":"abc"}"#).as_deref(), Some("abc"));
        assert_eq!(ttl_of(r#"{"node.alpha.kubernetes.io/ttl":""}"#).as_deref(), Some(""));
        assert_eq!((ttl_of(r#"{"other":"15"}"#), ttl_of("{}"), ttl_of("null")), (None, None, None));
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let bare = Node::decode_object(br#"{"metadata":{"name":"n1"}}"#).unwrap();
        for nulls in [
            r#"{"metadata":{"name":"n1","labels":null,"creationTimestamp":null},"spec":null,"status":null}"#,
            r#"{"metadata":{"name":"n1"},"spec":{"taints":null,"unschedulable":null},"status":{"conditions":null}}"#,
        ] {
            assert_eq!(Node::decode_object(nulls.as_bytes()).unwrap(), bare);
        }
    }
}
