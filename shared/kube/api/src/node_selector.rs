use serde::{Deserialize, Deserializer};

use crate::{Atom, Labels, words::words};

words! {
    /// The operator of a requirement for nodes.
    NodeSelectorOperator {
        /// The label exists and has one of the values.
        In = "In",
        /// The label does not exist or has none of the values.
        NotIn = "NotIn",
        /// The label exists.
        Exists = "Exists",
        /// The label does not exist.
        DoesNotExist = "DoesNotExist",
        /// The label is a greater integer.
        Gt = "Gt",
        /// The label is a smaller integer.
        Lt = "Lt",
    }
}

/// A `v1.NodeSelector`. One of its terms must match; without terms nothing matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSelector(pub Box<[NodeSelectorTerm]>);

/// A term. All its requirements must match. A term without requirements matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeSelectorTerm {
    /// `matchExpressions`, which compare labels.
    pub labels: Box<[NodeRequirement]>,
    /// `matchFields`. The only field is `metadata.name`.
    pub fields: Box<[NodeRequirement]>,
}

/// A requirement for a label or a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRequirement {
    /// The key.
    pub key: Atom,
    /// The operator.
    pub operator: NodeSelectorOperator,
    /// The values to compare with.
    pub values: Box<[Atom]>,
}

impl NodeSelector {
    /// Whether a node with this name and these labels matches. A term with a requirement that is not valid never
    /// matches, and the others decide (`nodeaffinity.LazyErrorNodeSelector`).
    #[must_use]
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.0.iter().any(|it| it.matches(name, labels))
    }
}

impl NodeSelectorTerm {
    fn matches(&self, name: &str, labels: &Labels) -> bool {
        let is_empty = self.labels.is_empty() && self.fields.is_empty();
        let is_valid = self.labels.iter().all(NodeRequirement::is_valid);
        let has_fields = self.fields.iter().all(|it| it.matches_field(name));
        !is_empty && is_valid && has_fields && self.labels.iter().all(|it| it.matches_label(labels.get(&it.key)))
    }
}

impl NodeRequirement {
    fn is_valid(&self) -> bool {
        let are_labels = || self.values.iter().all(|it| is_label_value(it));
        match self.operator {
            NodeSelectorOperator::In | NodeSelectorOperator::NotIn => !self.values.is_empty() && are_labels(),
            NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist => self.values.is_empty(),
            NodeSelectorOperator::Gt | NodeSelectorOperator::Lt => self.limit().is_some() && are_labels(),
            NodeSelectorOperator::Other(_) => false,
        }
    }

    fn matches_label(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.iter().any(|it| **it == *value);
        let compared = || value.and_then(|it| it.parse::<i64>().ok()).zip(self.limit());
        match self.operator {
            NodeSelectorOperator::In => value.is_some_and(is_listed),
            NodeSelectorOperator::NotIn => !value.is_some_and(is_listed),
            NodeSelectorOperator::Exists => value.is_some(),
            NodeSelectorOperator::DoesNotExist => value.is_none(),
            NodeSelectorOperator::Gt => compared().is_some_and(|(value, limit)| value > limit),
            NodeSelectorOperator::Lt => compared().is_some_and(|(value, limit)| value < limit),
            NodeSelectorOperator::Other(_) => false,
        }
    }

    /// Only the name of a node, and only one value, can be compared.
    fn matches_field(&self, name: &str) -> bool {
        let [value] = &*self.values else { return false };
        match self.operator {
            NodeSelectorOperator::In => &*self.key == "metadata.name" && **value == *name,
            NodeSelectorOperator::NotIn => &*self.key == "metadata.name" && **value != *name,
            _ => false,
        }
    }

    /// The integer of `Gt` and `Lt`.
    fn limit(&self) -> Option<i64> {
        let [value] = &*self.values else { return None };
        value.parse().ok()
    }
}

/// Whether the server accepts the text as the value of a label.
fn is_label_value(text: &str) -> bool {
    let is_outer = |it: Option<char>| it.is_none_or(|it| it.is_ascii_alphanumeric());
    let is_inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    text.len() <= 63
        && is_outer(text.chars().next())
        && is_outer(text.chars().next_back())
        && text.chars().all(is_inner)
}

impl<'de> Deserialize<'de> for NodeSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            node_selector_terms: Option<Box<[NodeSelectorTerm]>>,
        }
        Ok(Self(Wire::deserialize(deserializer)?.node_selector_terms.unwrap_or_default()))
    }
}

impl<'de> Deserialize<'de> for NodeSelectorTerm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            match_expressions: Option<Box<[NodeRequirement]>>,
            match_fields: Option<Box<[NodeRequirement]>>,
        }
        let Wire { match_expressions, match_fields } = Wire::deserialize(deserializer)?;
        Ok(Self { labels: match_expressions.unwrap_or_default(), fields: match_fields.unwrap_or_default() })
    }
}

impl<'de> Deserialize<'de> for NodeRequirement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            key: Option<Atom>,
            operator: Option<NodeSelectorOperator>,
            values: Option<Box<[Atom]>>,
        }
        let Wire { key, operator, values } = Wire::deserialize(deserializer)?;
        Ok(Self {
            key: key.unwrap_or_default(),
            operator: operator.unwrap_or_default(),
            values: values.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Whether the node `n1` with the labels `zone=a` and `size=7` matches.
    fn matches(terms: Value) -> bool {
        let selector: NodeSelector = serde_json::from_value(json!({ "nodeSelectorTerms": terms })).unwrap();
        let labels: Labels = [("zone".into(), "a".into()), ("size".into(), "7".into())].into_iter().collect();
        selector.matches("n1", &labels)
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    fn field(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "matchFields": [{ "key": key, "operator": operator, "values": values }] })
    }

    #[test]
    fn requirements_compare_labels_and_the_name() {
        for (term, want) in [
            (term("zone", "In", &["b", "a"]), true),
            (term("zone", "In", &["b"]), false),
            (term("rack", "In", &["a"]), false),
            (term("zone", "NotIn", &["a"]), false),
            (term("rack", "NotIn", &["a"]), true),
            (term("zone", "Exists", &[]), true),
            (term("rack", "DoesNotExist", &[]), true),
            (term("size", "Gt", &["6"]), true),
            (term("size", "Gt", &["7"]), false),
            (term("size", "Lt", &["8"]), true),
            (term("zone", "Lt", &["8"]), false),
            (field("metadata.name", "In", &["n1"]), true),
            (field("metadata.name", "In", &["n2"]), false),
            (field("metadata.name", "NotIn", &["n2"]), true),
            (
                json!({ "matchExpressions": [{ "key": "zone", "operator": "Exists" }, { "key": "rack", "operator": "Exists" }] }),
                false,
            ),
            (
                json!({ "matchExpressions": [{ "key": "zone", "operator": "Exists" }],
                "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n2"] }] }),
                false,
            ),
        ] {
            assert_eq!(matches(json!([term])), want, "{term}");
        }
    }

    #[test]
    fn acceptance_common_051_one_of_the_terms_must_match_and_an_empty_one_never_does() {
        assert!(matches(json!([term("zone", "In", &["b"]), term("zone", "In", &["a"])])));
        assert!(!matches(json!([{}])) && !matches(json!([])));
        assert!(!matches(json!([{ "matchExpressions": [], "matchFields": null }])));
    }

    #[test]
    fn acceptance_common_052_a_term_that_is_not_valid_does_not_prevent_a_match() {
        for term_ in [
            term("zone", "In", &[]),
            term("zone", "NotIn", &["not a label!"]),
            term("zone", "Exists", &["a"]),
            term("size", "Gt", &["x"]),
            term("size", "Gt", &["1", "2"]),
            term("size", "Gt", &["-5"]),
            term("zone", "Newer", &["a"]),
            field("metadata.name", "In", &["n1", "n2"]),
            field("metadata.name", "Exists", &[]),
            field("metadata.namespace", "NotIn", &["x"]),
        ] {
            assert!(!matches(json!([term_])), "{term_}");
            assert!(matches(json!([term_, term("zone", "Exists", &[])])), "{term_}");
        }
    }
}
