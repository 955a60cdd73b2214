use api::{MetaRef, Resource};
use clock::{Instant, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Normal information.
    Normal,
    /// A problem.
    Warning,
}

impl EventType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The reference of an event about this object.
#[must_use]
pub fn reference(resource: &Resource, object: &MetaRef<'_>) -> ObjectReference {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: Some(resource.api_version()),
        kind: Some(resource.kind.to_string()),
        namespace: some(object.namespace),
        name: some(object.name),
        uid: Some(object.uid.to_string()),
        resource_version: Some(object.version.to_string()),
        field_path: None,
    }
}

/// One report with its times.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) object: ObjectReference,
    pub(crate) type_: EventType,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) wall: Timestamp,
    pub(crate) at: Instant,
}
