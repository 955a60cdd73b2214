use serde::Deserialize;

use crate::json::or_default;

/// The API server's description of a failed request: the fields of `metav1.Status` that callers use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// The HTTP status code; 0 if the server did not set it.
    #[serde(deserialize_with = "or_default")]
    pub code: u16,
    /// Machine-readable reason, for example `NotFound`; empty if there is none.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// The message for people.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// Name, kind and causes.
    #[serde(deserialize_with = "or_default")]
    pub details: Details,
}

/// `details` of a [`Status`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    /// The name of the object; empty if the route was missing and not the object.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The API group; empty for core, or if the server did not set it.
    #[serde(deserialize_with = "or_default")]
    pub group: String,
    /// Normally the plural of the resource, but servers do not always set it, or set another text.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// The causes.
    #[serde(deserialize_with = "or_default")]
    pub causes: Vec<Cause>,
    /// Seconds to wait; 0 if the server did not set it.
    #[serde(deserialize_with = "or_default")]
    pub retry_after_seconds: u32,
}

/// One cause of a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// For example `NamespaceTerminating`, `ResourceVersionTooLarge`, `FieldValueInvalid`.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    /// The message for people.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// The invalid field.
    #[serde(deserialize_with = "or_default")]
    pub field: String,
}

impl Status {
    /// True if there is a cause with this reason.
    #[must_use]
    pub fn has_cause(&self, reason: &str) -> bool {
        self.details.causes.iter().any(|it| it.reason == reason)
    }

    /// Whether a webhook refused the request, whatever the code, or could not be called.
    #[must_use]
    pub fn is_of_webhook(&self) -> bool {
        self.message.contains("failed calling webhook")
            || (self.message.starts_with("admission webhook ") && self.message.contains(" denied the request"))
    }
}
