//! Turns the findings of one pass into the five conditions that show why a namespace is not deleted yet.

use std::collections::BTreeMap;

use api::{Atom, Condition, ConditionStatus, Resource};
use client::discovery::Discovery;

use crate::rules::remains::Remains;

/// The findings of one pass over the content of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Why discovery is incomplete.
    pub(crate) discovery: Option<String>,
    /// Group versions that cannot be parsed.
    pub(crate) unparsable: Option<String>,
    /// Errors of single kinds.
    pub(crate) errors: Vec<String>,
    /// The number of remaining objects of each kind, by `plural.group`. The key of a core kind ends in a dot.
    remaining: BTreeMap<String, u64>,
    /// The number of objects that carry each finalizer.
    finalizers: BTreeMap<String, u64>,
    /// Seconds until the next pass can find a change; 0 if the pass waits for nothing.
    pub(crate) estimate: u64,
    /// Some content could not be counted.
    pub(crate) uncounted: bool,
    /// A response came too late.
    pub(crate) any_late: bool,
    /// The pass ended before it had requested a kind that responds in time.
    pub(crate) any_skipped: bool,
}

impl Findings {
    /// Starts with the errors of discovery.
    pub(crate) fn from_discovery(discovery: &Discovery) -> Self {
        Self { discovery: discovery.failure(), unparsable: discovery.parse_failure(), ..Self::default() }
    }

    /// The findings of a pass that failed in discovery.
    pub(crate) fn failed_discovery(why: &str) -> Self {
        Self { discovery: Some(why.to_owned()), ..Self::default() }
    }

    /// Adds the remaining objects of one kind.
    pub(crate) fn add_remaining(&mut self, kind: &Resource, remains: &Remains) {
        if remains.count == 0 {
            return;
        }
        *self.remaining.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += remains.count;
        for (finalizer, count) in &remains.finalizers {
            *self.finalizers.entry(finalizer.to_string()).or_default() += count;
        }
    }

    /// True if some content is known to remain.
    pub(crate) fn has_remaining(&self) -> bool {
        !self.remaining.is_empty()
    }

    /// All errors in one line; `None` if there were none.
    pub(crate) fn failure(&self) -> Option<String> {
        let Self { discovery, unparsable, errors, .. } = self;
        let all: Vec<&str> = discovery.iter().chain(unparsable).map(String::as_str).chain(sorted(errors)).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The five conditions in their fixed order.
    fn condition_states(&self) -> [ConditionState; 5] {
        let errors = sorted(&self.errors);
        let content = (!errors.is_empty())
            .then(|| format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", ")));
        let remaining: Vec<String> =
            self.remaining.iter().map(|(kind, count)| format!("{kind} has {count} resource instances")).collect();
        let remaining =
            (!remaining.is_empty()).then(|| format!("Some resources are remaining: {}", remaining.join(", ")));
        let finalizers: Vec<String> =
            self.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
        let finalizers = (!finalizers.is_empty())
            .then(|| format!("Some content in the namespace has finalizers remaining: {}", finalizers.join(", ")));
        let counted = !self.uncounted && self.discovery.is_none() && self.unparsable.is_none();
        [
            ConditionState {
                type_: "NamespaceDeletionDiscoveryFailure",
                reason: "DiscoveryFailed",
                otherwise: ("ResourcesDiscovered", "All resources successfully discovered"),
                message: self.discovery.clone(),
                is_known: true,
            },
            ConditionState {
                type_: "NamespaceDeletionGroupVersionParsingFailure",
                reason: "GroupVersionParsingFailed",
                otherwise: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
                message: self.unparsable.clone(),
                is_known: true,
            },
            ConditionState {
                type_: "NamespaceDeletionContentFailure",
                reason: "ContentDeletionFailed",
                otherwise: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
                message: content,
                is_known: true,
            },
            ConditionState {
                type_: "NamespaceContentRemaining",
                reason: "SomeResourcesRemain",
                otherwise: ("ContentRemoved", "All content successfully removed"),
                message: remaining,
                is_known: counted,
            },
            ConditionState {
                type_: "NamespaceFinalizersRemaining",
                reason: "SomeFinalizersRemain",
                otherwise: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
                message: finalizers,
                is_known: counted,
            },
        ]
    }
}

/// One condition. With a message it is true, for `reason`. Without one it is false, with the reason and message of
/// `otherwise` if that is known.
struct ConditionState {
    type_: &'static str,
    reason: &'static str,
    otherwise: (&'static str, &'static str),
    message: Option<String>,
    is_known: bool,
}

impl ConditionState {
    fn into_condition(self, now: i64) -> Condition {
        let Self { type_, reason, otherwise, message, is_known } = self;
        let (status, reason, message) = match message {
            Some(message) => (ConditionStatus::True, reason, message),
            None if is_known => (ConditionStatus::False, otherwise.0, otherwise.1.to_owned()),
            None => (ConditionStatus::Unknown, "ContentNotCounted", "Some content could not be counted".to_owned()),
        };
        let (type_, reason) = (Atom::from(type_), Atom::from(reason));
        Condition { type_, status, reason, message: message.into(), last_transition: Some(now) }
    }
}

/// Returns `present` with the five conditions of `findings`; `None` if that changes nothing.
///
/// Conditions of other types stay. lastTransitionTime changes only with the status.
pub(crate) fn update(present: &[Condition], findings: &Findings, now: i64) -> Option<Vec<Condition>> {
    let mut conditions = present.to_vec();
    for state in findings.condition_states() {
        let mut wanted = state.into_condition(now);
        match conditions.iter_mut().find(|it| it.type_ == wanted.type_) {
            Some(known) => {
                if known.status == wanted.status {
                    wanted.last_transition = known.last_transition;
                }
                *known = wanted;
            }
            None => conditions.push(wanted),
        }
    }
    (conditions != present).then_some(conditions)
}

/// Sorted, so that repeated passes write the same message.
fn sorted(errors: &[String]) -> Vec<&str> {
    let mut sorted: Vec<&str> = errors.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests;
