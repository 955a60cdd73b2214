use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    Atom,
    time::{Seconds, rfc3339},
    words::words,
};

words! {
    /// The status of a condition.
    ConditionStatus {
        /// The condition holds.
        True = "True",
        /// The condition does not hold.
        False = "False",
        /// The status cannot be determined.
        Unknown = "Unknown",
    }
}

/// One entry of `status.conditions`, in the form that most kinds have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// The type of the condition.
    pub type_: Atom,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, in one word.
    pub reason: Atom,
    /// The reason, for people.
    pub message: Box<str>,
    /// When `status` last changed, in seconds since the epoch.
    pub last_transition: Option<i64>,
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            r#type: Option<Atom>,
            status: Option<ConditionStatus>,
            reason: Option<Atom>,
            message: Option<Box<str>>,
            last_transition_time: Option<Seconds>,
        }
        let Wire { r#type, status, reason, message, last_transition_time } = Wire::deserialize(deserializer)?;
        Ok(Self {
            type_: r#type.unwrap_or_default(),
            status: status.unwrap_or_default(),
            reason: reason.unwrap_or_default(),
            message: message.unwrap_or_default(),
            last_transition: last_transition_time.map(|it| it.0),
        })
    }
}

/// Writes all five fields with their names in the API.
impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            r#type: &'a Atom,
            status: &'a ConditionStatus,
            reason: &'a Atom,
            message: &'a str,
            last_transition_time: Option<String>,
        }
        let Self { type_, status, reason, message, last_transition } = self;
        let last_transition_time = last_transition.map(rfc3339).transpose().map_err(serde::ser::Error::custom)?;
        Wire { r#type: type_, status, reason, message, last_transition_time }.serialize(serializer)
    }
}
