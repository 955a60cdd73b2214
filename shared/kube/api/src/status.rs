use serde::Deserialize;

use crate::json::or_default;

/// What the API server says of a request that failed: `metav1.Status` as far as a caller decides by it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The HTTP code; 0 where the server did not say.
    #[serde(deserialize_with = "or_default")]
    pub code: u16,
    /// Machine-readable reason such as `NotFound`; empty where unclassified.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// For people.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// Name, kind, causes.
    #[serde(deserialize_with = "or_default")]
    pub details: Details,
}

/// `details` of a [`Status`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    /// The object's name; empty when the route, not the object, was missing.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The API group of what is meant; empty for core, and where the server did not say.
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    /// The plural of what is meant, as a rule; the field is not always filled with that, nor always at all.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// Why, in parts.
    #[serde(deserialize_with = "or_default")]
    pub causes: Vec<Cause>,
    /// Seconds to wait; 0 where the server did not say.
    #[serde(deserialize_with = "or_default")]
    pub retry_after_seconds: u32,
}

/// One cause of a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// Such as `NamespaceTerminating`, `ResourceVersionTooLarge`, `FieldValueInvalid`.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// For people.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// The field, for validation.
    #[serde(deserialize_with = "or_default")]
    pub field: String,
}

impl Status {
    /// True when a cause with this reason is given.
    #[must_use]
    pub fn has_cause(&self, reason: &str) -> bool {
        self.details.causes.iter().any(|it| it.reason == reason)
    }
}
