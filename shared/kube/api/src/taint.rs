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

impl Toleration {
    /// Whether a pod with this toleration tolerates the taint; `seconds` plays no part
    /// (`corev1.Toleration.ToleratesTaint`). `compares_numbers` is the feature gate TaintTolerationComparisonOperators
    /// (KEP-5471).
    #[must_use]
    pub fn tolerates(&self, taint: &Taint, compares_numbers: bool) -> bool {
        let is_other_effect = self.effect.as_ref().is_some_and(|it| *it != taint.effect);
        let is_other_key = !self.key.is_empty() && self.key != taint.key;
        if is_other_effect || is_other_key {
            return false;
        }
        let numbers = || decimal(&taint.value).zip(decimal(&self.value)).filter(|_| compares_numbers);
        match self.operator {
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Exists => true,
            TolerationOperator::Lt => numbers().is_some_and(|(taint, limit)| taint < limit),
            TolerationOperator::Gt => numbers().is_some_and(|(taint, limit)| taint > limit),
            TolerationOperator::Other(_) => false,
        }
    }
}

/// An integer without a sign of plus, and without leading zeros (`content.IsDecimalInteger`).
fn decimal(text: &str) -> Option<i64> {
    text.parse().ok().filter(|it: &i64| it.to_string() == text)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Whether the taint `k=5:NoSchedule` is tolerated.
    fn tolerates(toleration: Value, compares_numbers: bool) -> bool {
        let taint: Taint = serde_json::from_value(json!({ "key": "k", "value": "5", "effect": "NoSchedule" })).unwrap();
        serde_json::from_value::<Toleration>(toleration).unwrap().tolerates(&taint, compares_numbers)
    }

    #[test]
    fn a_toleration_tolerates_by_key_value_and_effect() {
        for (toleration, want) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "k", "operator": "Exists" }), true),
            (json!({ "key": "k", "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "k", "operator": "Exists", "effect": "NoSchedule" }), true),
            (json!({ "key": "other", "operator": "Exists" }), false),
            (json!({ "key": "k", "value": "5" }), true),
            (json!({ "key": "k", "operator": "Equal", "value": "6" }), false),
            (json!({ "key": "k", "operator": "Newer", "value": "5" }), false),
        ] {
            assert_eq!(tolerates(toleration.clone(), true), want, "{toleration}");
        }
    }

    #[test]
    fn acceptance_common_054_numbers_are_compared_only_with_the_gate() {
        let compared = |operator: &str, value: &str| json!({ "key": "k", "operator": operator, "value": value });
        for (toleration, want) in [
            (compared("Lt", "6"), true),
            (compared("Lt", "5"), false),
            (compared("Gt", "4"), true),
            (compared("Gt", "5"), false),
            (compared("Gt", "x"), false),
            (compared("Gt", "04"), false),
            (compared("Gt", "+4"), false),
            (compared("Gt", "-4"), true),
        ] {
            assert_eq!(tolerates(toleration.clone(), true), want, "{toleration}");
            assert!(!tolerates(toleration, false));
        }
    }
}
