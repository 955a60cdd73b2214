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
