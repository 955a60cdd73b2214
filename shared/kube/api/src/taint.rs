use serde::{Deserialize, Deserializer};

use crate::{Atom, time::Seconds, words::words};

words! {
    /// The effect of a taint on pods that do not tolerate it.
    TaintEffect {
        /// New pods are not scheduled.
        NoSchedule = "NoSchedule",
        /// New pods are not scheduled if possible.
        PreferNoSchedule = "PreferNoSchedule",
        /// New pods are not scheduled, and running pods are evicted.
        NoExecute = "NoExecute",
    }
}

words! {
    /// The operator of a toleration. The default is `Equal`.
    TolerationOperator {
        /// Key and value are equal.
        Equal = "Equal" | "",
        /// The key exists, with any value.
        Exists = "Exists",
        /// The value of the taint is a smaller number.
        Lt = "Lt",
        /// The value of the taint is a greater number.
        Gt = "Gt",
    }
}

/// One entry of a node's `spec.taints`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// The key.
    pub key: Atom,
    /// The value, often empty.
    pub value: Atom,
    /// The effect.
    pub effect: TaintEffect,
    /// timeAdded in seconds since the epoch.
    pub added: Option<i64>,
}

/// One entry of a pod's `spec.tolerations`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// The key of the taint; empty means any key, with `Exists`.
    pub key: Atom,
    /// The operator.
    pub operator: TolerationOperator,
    /// The value to compare with.
    pub value: Atom,
    /// The tolerated effect; `None` means all effects.
    pub effect: Option<TaintEffect>,
    /// How long `NoExecute` is tolerated; `None` means without limit.
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
