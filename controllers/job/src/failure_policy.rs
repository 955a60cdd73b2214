//! The result of `spec.podFailurePolicy` for a failed pod (KEP-3329). Pure.

use api::{Atom, ContainerState, ExitCodeOperator, ExitCodes, Job, Pod, PodFailureAction, PodFailureRule};

/// The result for a failed pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
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
    what: What<'a>,
}

/// What the rule matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What<'a> {
    /// A container with this exit code.
    Exit(&'a Atom, i32),
    /// A condition of the pod.
    Condition(&'a Atom),
}

impl Verdict<'_> {
    /// Whether the failure is counted.
    pub(crate) fn counts(self) -> bool {
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
        match self.what {
            What::Exit(container, code) => format!(
                "Container {container} for pod {namespace}/{name} failed with exit code {code} matching FailJob rule at index {rule}"
            ),
            What::Condition(type_) => {
                format!("Pod {namespace}/{name} has condition {type_} matching FailJob rule at index {rule}")
            }
        }
    }
}

/// The result of the failure policy of `job` for `pod`.
pub(crate) fn verdict<'a>(job: &Job, pod: &'a Pod) -> Verdict<'a> {
    job.spec.pod_failure_policy.as_deref().map_or(Verdict::Unmatched, |rules| judge(rules, pod))
}

/// The first matching rule with a known action decides.
fn judge<'a>(rules: &[PodFailureRule], pod: &'a Pod) -> Verdict<'a> {
    for (at, rule) in rules.iter().enumerate() {
        let Some(what) = matched(rule, pod) else { continue };
        return match rule.action {
            PodFailureAction::Ignore => Verdict::Ignore,
            PodFailureAction::Count => Verdict::Count,
            PodFailureAction::FailIndex => Verdict::FailIndex,
            PodFailureAction::FailJob => Verdict::FailJob(Cause { rule: at, what }),
            PodFailureAction::Other(_) => continue,
        };
    }
    Verdict::Unmatched
}

/// What in the pod matches the rule.
fn matched<'a>(rule: &PodFailureRule, pod: &'a Pod) -> Option<What<'a>> {
    match &rule.on_exit_codes {
        Some(codes) => exit(codes, pod),
        None => pod
            .conditions
            .iter()
            .find(|it| rule.on_pod_conditions.iter().any(|(type_, status)| *type_ == it.type_ && *status == it.status))
            .map(|it| What::Condition(&it.type_)),
    }
}

/// The first container, regular containers first, whose non-zero exit code matches the rule.
fn exit<'a>(codes: &ExitCodes, pod: &'a Pod) -> Option<What<'a>> {
    pod.containers.iter().find_map(|it| {
        let ContainerState::Terminated { exit_code, .. } = it.state else { return None };
        let is_meant = exit_code != 0 && codes.container.as_ref().is_none_or(|name| *name == it.name);
        (is_meant && speaks_of(codes, exit_code)).then_some(What::Exit(&it.name, exit_code))
    })
}

fn speaks_of(codes: &ExitCodes, exit_code: i32) -> bool {
    match codes.operator {
        ExitCodeOperator::In => codes.values.contains(&exit_code),
        ExitCodeOperator::NotIn => !codes.values.contains(&exit_code),
        ExitCodeOperator::Other(_) => false,
    }
}

#[cfg(test)]
mod tests;
