use std::{collections::BTreeMap, time::Duration};

use api::{Uid, Version};
use clock::Timestamp;
use serde::{Deserialize, Serialize, Serializer, ser::Error as _};
use serde_json::{Map, Value, json};

use crate::{Config, config::leases};

/// The annotation in which a leader of ours records for how long after a renewal it still writes. JSON of [`Fence`].
const FENCE: &str = "mini-kcm.io/fence";

/// The annotation in which a leader of ours records its last writes when it releases the Lease. JSON of [`HandOver`].
const HAND_OVER: &str = "mini-kcm.io/hand-over";

/// The notes of a leader for its successor. For each type that it wrote they contain the resourceVersion of the last
/// event, if its own informer has shown all these writes. The successor must prove each missing type again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Notes {
    /// The resourceVersion by resource and group: `pods`, `jobs.batch`.
    pub versions: BTreeMap<String, Version>,
}

/// The Lease, including all fields that this crate does not use.
///
/// Its PUT is the only full PUT that mini-kcm sends. Labels, annotations, finalizers, owner references and unknown
/// fields of the spec are sent as they were read. Only the record and our two annotations are set.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    /// The object as it was read, without managedFields, which the server maintains itself.
    object: Map<String, Value>,
    pub(crate) uid: Uid,
    pub(crate) version: Version,
    pub(crate) record: Record,
    fence: Option<Fence>,
    hand_over: Option<HandOver>,
}

/// The leader election record of client-go (`LeaderElectionRecord`). It changes with every renewal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Record {
    /// Empty when there is no leader.
    #[serde(rename = "holderIdentity")]
    holder: Option<String>,
    lease_duration_seconds: Option<i64>,
    /// Times stay strings: they are kept and compared for equality, but never compared with the local clock.
    acquire_time: Option<String>,
    renew_time: Option<String>,
    #[serde(rename = "leaseTransitions")]
    transitions: Option<i64>,
}

/// Our annotations contain the `leaseTransitions` under which they were written. A Go manager keeps unknown metadata,
/// so an annotation with another count is stale and ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fence {
    transitions: i64,
    ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HandOver {
    transitions: i64,
    versions: Notes,
}

impl Record {
    /// The identity of the holder; empty when there is none.
    pub(crate) fn holder(&self) -> &str {
        self.holder.as_deref().unwrap_or_default()
    }

    /// How long other processes wait after a change: the duration in the Lease, not the configured one.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration_seconds.unwrap_or(0).try_into().unwrap_or(0))
    }

    /// How often the holder has changed.
    pub(crate) fn transitions(&self) -> i64 {
        self.transitions.unwrap_or(0)
    }

    /// True when the Lease was created but never had a holder.
    fn is_untouched(&self) -> bool {
        self.holder().is_empty() && self.transitions() == 0 && self.acquire_time.is_none() && self.renew_time.is_none()
    }
}

impl Lease {
    /// Decodes a Lease from the response to a GET. Unknown, missing and null fields are accepted.
    ///
    /// # Errors
    /// If it is not a JSON object, or if a field of the record has another type.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        Self::from_object(serde_json::from_slice(bytes)?)
    }

    /// Decodes a Lease from a watch event.
    ///
    /// # Errors
    /// See [`Lease::decode`].
    pub(crate) fn from_object(mut object: Map<String, Value>) -> Result<Self, serde_json::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Metadata {
            uid: Option<Uid>,
            resource_version: Option<Version>,
            annotations: Option<BTreeMap<String, String>>,
        }
        let metadata = object.get("metadata").map_or_else(|| Ok(None), Option::<Metadata>::deserialize)?;
        let Metadata { uid, resource_version, annotations } = metadata.unwrap_or_default();
        let record = object.get("spec").map_or_else(|| Ok(None), Option::<Record>::deserialize)?;
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        let annotations = annotations.unwrap_or_default();
        // An annotation that does not decode is ignored; the successor then proves everything.
        let annotation = |name: &str| annotations.get(name);
        Ok(Self {
            uid: uid.unwrap_or_default(),
            version: resource_version.unwrap_or_default(),
            record: record.unwrap_or_default(),
            fence: annotation(FENCE).and_then(|it| serde_json::from_str(it).ok()),
            hand_over: annotation(HAND_OVER).and_then(|it| serde_json::from_str(it).ok()),
            object,
        })
    }

    /// A new Lease with this process as the first holder.
    pub(crate) fn new(config: &Config, wall: Timestamp) -> Self {
        let metadata = json!({ "namespace": config.namespace, "name": config.name });
        let empty = Self {
            object: Map::from_iter([("metadata".to_owned(), metadata)]),
            uid: Uid::default(),
            version: Version::default(),
            record: Record::default(),
            fence: None,
            hand_over: None,
        };
        empty.with_holder(config, 0, format_micro_time(wall), wall)
    }

    /// The Lease with this process as a new holder.
    pub(crate) fn taken(&self, config: &Config, wall: Timestamp) -> Self {
        self.with_holder(config, self.record.transitions().saturating_add(1), format_micro_time(wall), wall)
    }

    /// The Lease with this process still as the holder, and a new renewal.
    pub(crate) fn renewed(&self, config: &Config, wall: Timestamp) -> Self {
        let acquired = self.record.acquire_time.clone().unwrap_or_else(|| format_micro_time(wall));
        self.with_holder(config, self.record.transitions(), acquired, wall)
    }

    /// The Lease without a holder, with the notes for the next one.
    pub(crate) fn released(&self, notes: Option<Notes>, wall: Timestamp) -> Self {
        let transitions = self.record.transitions();
        Self {
            record: Record {
                holder: Some(String::new()),
                // As upstream (`leaderelection.release`): zero is not valid.
                lease_duration_seconds: Some(1),
                acquire_time: Some(format_micro_time(wall)),
                renew_time: Some(format_micro_time(wall)),
                transitions: Some(transitions),
            },
            fence: None,
            hand_over: notes.map(|versions| HandOver { transitions, versions }),
            ..self.clone()
        }
    }

    /// The same Lease with the uid and the version that the server has stored.
    pub(crate) fn with_stored_version(self, uid: Uid, version: Version) -> Self {
        Self { uid, version, ..self }
    }

    /// For how long after a renewal the current holder still writes, if it is one of ours.
    pub(crate) fn fence(&self) -> Option<Duration> {
        let fence = self.fence.as_ref()?;
        let of_this_holder = !self.record.holder().is_empty() && fence.transitions == self.record.transitions();
        of_this_holder.then(|| Duration::from_millis(fence.ms))
    }

    /// The notes of the last holder, if it was one of ours and has released the Lease.
    pub(crate) fn notes(&self) -> Option<&Notes> {
        let note = self.hand_over.as_ref()?;
        let of_last_holder = self.record.holder().is_empty() && note.transitions == self.record.transitions();
        of_last_holder.then_some(&note.versions)
    }

    /// True when the Lease never had a holder.
    pub(crate) fn is_untouched(&self) -> bool {
        self.record.is_untouched()
    }

    fn with_holder(&self, config: &Config, transitions: i64, acquired: String, wall: Timestamp) -> Self {
        let ms = u64::try_from(config.renew_deadline.as_millis()).unwrap_or(u64::MAX);
        Self {
            record: Record {
                holder: Some(config.identity.clone()),
                lease_duration_seconds: Some(config.lease_seconds()),
                acquire_time: Some(acquired),
                renew_time: Some(format_micro_time(wall)),
                transitions: Some(transitions),
            },
            fence: Some(Fence { transitions, ms }),
            hand_over: None,
            ..self.clone()
        }
    }
}

/// The body of a POST or PUT.
impl Serialize for Lease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { object, uid: _, version, record, fence, hand_over } = self;
        let mut body = object.clone();
        let resource = leases();
        body.insert("apiVersion".to_owned(), json!(resource.api_version()));
        body.insert("kind".to_owned(), json!(&*resource.kind));

        let mut metadata = take(&mut body, "metadata");
        if !version.is_empty() {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        let mut annotations = take(&mut metadata, "annotations");
        let text = |note: Result<String, serde_json::Error>| note.map_err(S::Error::custom);
        annotate(&mut annotations, FENCE, fence.as_ref().map(serde_json::to_string).map(text).transpose()?);
        annotate(&mut annotations, HAND_OVER, hand_over.as_ref().map(serde_json::to_string).map(text).transpose()?);
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), Value::Object(annotations));
        }
        body.insert("metadata".to_owned(), Value::Object(metadata));

        let Record { holder, lease_duration_seconds, acquire_time, renew_time, transitions } = record;
        let mut spec = take(&mut body, "spec");
        spec.insert("holderIdentity".to_owned(), json!(holder));
        spec.insert("leaseDurationSeconds".to_owned(), json!(lease_duration_seconds));
        spec.insert("acquireTime".to_owned(), json!(acquire_time));
        spec.insert("renewTime".to_owned(), json!(renew_time));
        spec.insert("leaseTransitions".to_owned(), json!(transitions));
        body.insert("spec".to_owned(), Value::Object(spec));
        body.serialize(serializer)
    }
}

/// Removes and returns the object under `name`; empty if it is missing or null.
fn take(object: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match object.remove(name) {
        Some(Value::Object(section)) => section,
        _ => Map::new(),
    }
}

fn annotate(annotations: &mut Map<String, Value>, name: &str, text: Option<String>) {
    match text {
        Some(text) => annotations.insert(name.to_owned(), Value::String(text)),
        None => annotations.remove(name),
    };
}

/// Formats a time as Go's `MicroTime`: always with six decimals.
fn format_micro_time(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests;
