use serde::{Deserialize, Deserializer};

use crate::{Atom, Labels, labels::AllLabels, words::words};

words! {
    /// The operator of a selector requirement.
    SelectorOperator {
        /// The label exists and has one of the values.
        In = "In",
        /// The label does not exist or has none of the values.
        NotIn = "NotIn",
        /// The label exists.
        Exists = "Exists",
        /// The label does not exist.
        DoesNotExist = "DoesNotExist",
    }
}

/// A `metav1.LabelSelector`. All parts must match. An empty selector matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Selector {
    /// Labels that must be equal.
    pub labels: Labels,
    /// Further requirements.
    pub requirements: Box<[Requirement]>,
}

/// One entry of `matchExpressions`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The key of the label.
    pub key: Atom,
    /// The operator.
    pub operator: SelectorOperator,
    /// The values to compare with.
    pub values: Box<[Atom]>,
}

impl Selector {
    /// Whether the labels match all parts. A requirement with an unknown operator never matches.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.requirements.iter().all(|it| it.matches(labels))
    }

    /// False if a requirement has an operator that this version does not know, or values that do not fit its operator
    /// (`metav1.LabelSelectorAsSelector`).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.requirements.iter().all(|it| match it.operator {
            SelectorOperator::In | SelectorOperator::NotIn => !it.values.is_empty(),
            SelectorOperator::Exists | SelectorOperator::DoesNotExist => it.values.is_empty(),
            SelectorOperator::Other(_) => false,
        })
    }

    /// True if it matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.requirements.is_empty()
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = |value: &str| self.values.iter().any(|it| **it == *value);
        match self.operator {
            SelectorOperator::In => value.is_some_and(is_listed),
            SelectorOperator::NotIn => !value.is_some_and(is_listed),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
            SelectorOperator::Other(_) => false,
        }
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            match_labels: Option<AllLabels>,
            match_expressions: Option<Vec<WireRequirement>>,
        }
        #[derive(Deserialize)]
        struct WireRequirement {
            key: Option<Atom>,
            operator: Option<SelectorOperator>,
            values: Option<Box<[Atom]>>,
        }
        let Wire { match_labels, match_expressions } = Wire::deserialize(deserializer)?;
        let requirement = |WireRequirement { key, operator, values }| Requirement {
            key: key.unwrap_or_default(),
            operator: operator.unwrap_or_default(),
            values: values.unwrap_or_default(),
        };
        Ok(Self {
            labels: match_labels.map(|it| it.0).unwrap_or_default(),
            requirements: match_expressions.into_iter().flatten().map(requirement).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_matches_only_if_all_requirements_match() {
        let labels: Labels = [("app".into(), "x".into()), ("tier".into(), "".into())].into_iter().collect();
        for (selector, want) in [
            ("{}", true),
            (r#"{"matchLabels":null,"matchExpressions":null}"#, true),
            (r#"{"matchLabels":{"app":"x"}}"#, true),
            (r#"{"matchLabels":{"app":"x","tier":""}}"#, true),
            (r#"{"matchLabels":{"app":"y"}}"#, false),
            (r#"{"matchLabels":{"app":"x","zone":""}}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"In","values":["w","x"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"In","values":["x"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"NotIn","values":["x"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["x"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"Newer","values":["x"]}]}"#, false),
            (r#"{"matchLabels":{"app":"x"},"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}"#, false),
        ] {
            let decoded: Selector = serde_json::from_str(selector).unwrap();
            assert_eq!(decoded.matches(&labels), want, "{selector}");
        }
        assert!(Selector::default().is_empty());
    }

    #[test]
    fn a_requirement_needs_a_known_operator_and_the_values_of_it() {
        for (requirement, want) in [
            (r#"{"key":"a","operator":"In","values":["x"]}"#, true),
            (r#"{"key":"a","operator":"NotIn","values":[]}"#, false),
            (r#"{"key":"a","operator":"Exists"}"#, true),
            (r#"{"key":"a","operator":"DoesNotExist","values":["x"]}"#, false),
            (r#"{"key":"a","operator":"Newer","values":["x"]}"#, false),
        ] {
            let text = format!(r#"{{"matchExpressions":[{requirement}]}}"#);
            assert_eq!(serde_json::from_str::<Selector>(&text).unwrap().is_valid(), want, "{requirement}");
        }
    }
}
