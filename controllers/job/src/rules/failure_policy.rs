//! The result of `spec.podFailurePolicy` for a failed pod (KEP-3329). Pure.

use api::{Atom, ContainerState, ExitCodeOperator, ExitCodes, Job, Pod, PodFailureAction, PodFailureRule};

/// The result for a failed pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyResult<'a> {
    /// No rule matches: the failure is counted.
    Unmatched,
    /// The failure is not counted.
    Ignore,
    /// The failure is counted, as without a rule.
    Count,
    /// The failure is counted, and the index of the pod fails.
    FailIndex,
    /// The failure is counted, and the Job fails.
    FailJob(Cause<'a>),
}

/// Why a Job fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause<'a> {
    /// The position of the rule.
    rule: usize,
    matched: Matched<'a>,
}

/// What the rule matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Matched<'a> {
    /// A container with this exit code.
    Exit(&'a Atom, i32),
    /// A condition of the pod.
    Condition(&'a Atom),
}

impl PolicyResult<'_> {
    /// Whether the failure is counted.
    pub(crate) fn is_counted(self) -> bool {
        self != Self::Ignore
    }

    /// The action of the rule that matched, for metrics.
    pub(crate) fn action(self) -> Option<&'static str> {
        match self {
            Self::Unmatched => None,
            Self::Ignore => Some("Ignore"),
            Self::Count => Some("Count"),
            Self::FailIndex => Some("FailIndex"),
            Self::FailJob(_) => Some("FailJob"),
        }
    }
}

impl Cause<'_> {
    /// The message of the condition, with the same text as upstream.
    pub(crate) fn message(&self, pod: &Pod) -> String {
        let (namespace, name, rule) = (&pod.meta.namespace, &pod.meta.name, self.rule);
        match self.matched {
            Matched::Exit(container, code) => format!(
                "Container {container} for pod {namespace}/{name} failed with exit code {code} matching FailJob rule at index {rule}"
            ),
            Matched::Condition(type_) => {
                format!("Pod {namespace}/{name} has condition {type_} matching FailJob rule at index {rule}")
            }
        }
    }
}

/// The result of the failure policy of `job` for `pod`.
pub(crate) fn policy_result<'a>(job: &Job, pod: &'a Pod) -> PolicyResult<'a> {
    job.spec.pod_failure_policy.as_deref().map_or(PolicyResult::Unmatched, |rules| first_match(rules, pod))
}

/// The first matching rule with a known action decides.
fn first_match<'a>(rules: &[PodFailureRule], pod: &'a Pod) -> PolicyResult<'a> {
    for (at, rule) in rules.iter().enumerate() {
        let Some(matched) = matched(rule, pod) else { continue };
        return match rule.action {
            PodFailureAction::Ignore => PolicyResult::Ignore,
            PodFailureAction::Count => PolicyResult::Count,
            PodFailureAction::FailIndex => PolicyResult::FailIndex,
            PodFailureAction::FailJob => PolicyResult::FailJob(Cause { rule: at, matched }),
            PodFailureAction::Other(_) => continue,
        };
    }
    PolicyResult::Unmatched
}

/// What in the pod matches the rule.
fn matched<'a>(rule: &PodFailureRule, pod: &'a Pod) -> Option<Matched<'a>> {
    match &rule.on_exit_codes {
        Some(codes) => matching_exit(codes, pod),
        None => pod
            .conditions
            .iter()
            .find(|it| rule.on_pod_conditions.iter().any(|(type_, status)| *type_ == it.type_ && *status == it.status))
            .map(|it| Matched::Condition(&it.type_)),
    }
}

/// The first container, regular containers first, whose non-zero exit code matches the rule.
fn matching_exit<'a>(codes: &ExitCodes, pod: &'a Pod) -> Option<Matched<'a>> {
    pod.containers.iter().find_map(|it| {
        let ContainerState::Terminated { exit_code, .. } = it.state else { return None };
        let is_named = exit_code != 0 && codes.container.as_ref().is_none_or(|name| *name == it.name);
        (is_named && matches_exit_code(codes, exit_code)).then_some(Matched::Exit(&it.name, exit_code))
    })
}

fn matches_exit_code(codes: &ExitCodes, exit_code: i32) -> bool {
    match codes.operator {
        ExitCodeOperator::In => codes.values.contains(&exit_code),
        ExitCodeOperator::NotIn => !codes.values.contains(&exit_code),
        ExitCodeOperator::Other(_) => false,
    }
}

#[cfg(test)]
mod tests;
