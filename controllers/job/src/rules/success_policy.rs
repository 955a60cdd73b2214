//! Whether `spec.successPolicy` declares a Job successful before all indexes have succeeded (KEP-3998). Pure.

use api::SuccessRule;

use crate::rules::indexes::Indexes;

/// The position of the first rule that these indexes fulfil. Without any succeeded index no rule is fulfilled.
pub(crate) fn fulfilled(rules: &[SuccessRule], succeeded: &Indexes, completions: u32) -> Option<usize> {
    if succeeded.is_empty() {
        return None;
    }
    rules.iter().position(|it| is_fulfilled(it, succeeded, completions))
}

fn is_fulfilled(rule: &SuccessRule, succeeded: &Indexes, completions: u32) -> bool {
    let enough = rule.count.map(|it| u32::try_from(it).unwrap_or_default());
    let Some(text) = &rule.indexes else { return enough.is_some_and(|it| succeeded.len() >= it) };
    let listed = Indexes::parse(text, completions);
    // A list without a valid index fulfils nothing.
    if listed.is_empty() {
        return false;
    }
    let done = listed.common_count(succeeded);
    done == listed.len() || enough.is_some_and(|it| done >= it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_needs_all_listed_indexes_or_the_given_count() {
        let rule = |indexes: Option<&str>, count| SuccessRule { indexes: indexes.map(Into::into), count };
        for (name, rules, succeeded, want) in [
            ("no rules", vec![], "0-9", None),
            ("nothing succeeded", vec![rule(None, Some(0))], "", None),
            ("acceptance 51: the one listed", vec![rule(Some("1"), None)], "1", Some(0)),
            ("another one", vec![rule(Some("1"), None)], "0,2-9", None),
            ("not all listed", vec![rule(Some("0-2"), None)], "0,1", None),
            ("all listed", vec![rule(Some("0-2"), None)], "0-2", Some(0)),
            ("enough of those listed", vec![rule(Some("0-4"), Some(2))], "1,3", Some(0)),
            ("enough, but not of those listed", vec![rule(Some("0-4"), Some(2))], "1,5-9", None),
            ("more wanted than listed", vec![rule(Some("0,1"), Some(9))], "0,1", Some(0)),
            ("enough of all", vec![rule(None, Some(3))], "1,5,9", Some(0)),
            ("not enough of all", vec![rule(None, Some(3))], "1,5", None),
            (
                "the first fulfilled rule",
                vec![rule(Some("0"), None), rule(None, Some(1)), rule(Some("1"), None)],
                "1",
                Some(1),
            ),
            ("a list out of range matches nothing", vec![rule(Some("10-12"), Some(0))], "1", None),
            ("a malformed list matches nothing", vec![rule(Some("x"), None)], "0-9", None),
            ("an empty rule matches nothing", vec![rule(None, None)], "0-9", None),
        ] {
            assert_eq!(fulfilled(&rules, &Indexes::parse(succeeded, 10), 10), want, "{name}");
        }
    }
}
