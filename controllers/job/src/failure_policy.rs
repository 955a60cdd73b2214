//! What a pod's failure means by `spec.podFailurePolicy`. Pure.

use api::{Atom, ContainerState, ExitCodeOperator, ExitCodes, Job, Pod, PodFailureAction, PodFailureRule};

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// No rule speaks of it: it is counted.
    Unmatched,
    /// It is not counted.
    Ignore,
    /// It is counted, as without a rule.
    Count,
    /// It is counted, and its index has failed.
    FailIndex,
    /// It is counted, and the Job has failed.
    FailJob(Cause<'a>),
}

/// Why a Job has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause<'a> {
    /// The place of the rule.
    rule: usize,
    what: What<'a>,
}

/// What a rule was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What<'a> {
    /// A container that ended with this code.
    Exit(&'a Atom, i32),
    /// A condition of the pod.
    Condition(&'a Atom),
}

impl Verdict<'_> {
    /// Whether the failure is counted.
    pub(crate) fn counts(self) -> bool {
        self != Self::Ignore
    }

    /// The action of the rule that spoke, for metrics.
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
    /// For people, as upstream says it.
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

/// What the failure of `pod` means to `job`.
pub(crate) fn verdict<'a>(job: &Job, pod: &'a Pod) -> Verdict<'a> {
    job.spec.pod_failure_policy.as_deref().map_or(Verdict::Unmatched, |rules| judge(rules, pod))
}

/// The first rule that matches and whose action we know has the word.
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

/// What of the pod the rule is about.
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

/// The first container, regular ones first, that ended badly with a code of the rule.
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
