use serde::{Deserialize, Deserializer};

use crate::{Atom, time::Seconds, words::words};

words! {
    /// What a taint does to pods that do not tolerate it.
    TaintEffect {
        /// No new pods.
        NoSchedule = "NoSchedule",
        /// Rather no new pods.
        PreferNoSchedule = "PreferNoSchedule",
        /// No pods at all.
        NoExecute = "NoExecute",
    }
}

words! {
    /// How a toleration compares; none given means `Equal`.
    TolerationOperator {
        /// Key and value are equal.
        Equal = "Equal" | "",
        /// The key is there, whatever its value.
        Exists = "Exists",
        /// The taint's value is a smaller number.
        Lt = "Lt",
        /// The taint's value is a greater number.
        Gt = "Gt",
    }
}

/// One entry of a node's `spec.taints`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Its name.
    pub key: Atom,
    /// Its value, often empty.
    pub value: Atom,
    /// What it does.
    pub effect: TaintEffect,
    /// timeAdded in seconds since the epoch.
    pub added: Option<i64>,
}

/// One entry of a pod's `spec.tolerations`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// The taint's key; empty means any, with `Exists`.
    pub key: Atom,
    /// How key and value compare.
    pub operator: TolerationOperator,
    /// The value to compare with.
    pub value: Atom,
    /// The effect tolerated; `None` means all.
    pub effect: Option<TaintEffect>,
    /// How long `NoExecute` is tolerated; `None` means for ever.
    pub seconds: Option<i64>,
}

impl<'de> Deserialize<'de> for Taint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            key: Option<Atom>,
            value: Option<Atom>,
            effect: Option<TaintEffect>,
            time_added: Option<Seconds>,
        }
        let Wire { key, value, effect, time_added } = Wire::deserialize(deserializer)?;
        Ok(Self {
            key: key.unwrap_or_default(),
            value: value.unwrap_or_default(),
            effect: effect.unwrap_or_default(),
            added: time_added.map(|it| it.0),
        })
    }
}

impl<'de> Deserialize<'de> for Toleration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            key: Option<Atom>,
            operator: Option<TolerationOperator>,
            value: Option<Atom>,
            effect: Option<TaintEffect>,
            toleration_seconds: Option<i64>,
        }
        let Wire { key, operator, value, effect, toleration_seconds } = Wire::deserialize(deserializer)?;
        Ok(Self {
            key: key.unwrap_or_default(),
            operator: operator.unwrap_or_default(),
            value: value.unwrap_or_default(),
            effect: effect.filter(|it| !it.as_str().is_empty()),
            seconds: toleration_seconds,
        })
    }
}
