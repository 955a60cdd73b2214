//! What is reported to users once, and again only after it was over.

use std::{collections::BTreeSet, sync::Arc};

use api::{Pod, PodPhase};

use crate::rules::plan::{CreationWaitCause, Plan, Snapshot};

/// A state that users must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// Pods fail at once, so they are replaced after a delay.
    PodsFailAtOnce,
    /// Pods that were created do not count as pods of the set.
    CreationLimit,
}

impl Notice {
    /// The reason of the event.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::PodsFailAtOnce => "BackOff",
            Self::CreationLimit => "CreationLimited",
        }
    }

    /// The message of the event. `own` are the pods of the set, including those that have ended.
    pub(crate) fn message(self, own: &[Arc<Pod>]) -> String {
        match self {
            Self::PodsFailAtOnce => {
                let failed = own.iter().filter(|it| it.phase == PodPhase::Failed);
                let example = failed.max_by(|a, b| (a.creation, &a.meta.name).cmp(&(b.creation, &b.meta.name)));
                let example = example.map(|it| format!(", the last being {}{}", it.meta.name, reason_of(it)));
                format!(
                    "pods fail at once{}; each replacement waits twice as long as the one before, at most 5 minutes",
                    example.unwrap_or_default()
                )
            }
            Self::CreationLimit => "created pods have got other labels or another owner; at most twice the number of \
                 replicas of them may exist"
                .to_owned(),
        }
    }
}

fn reason_of(pod: &Pod) -> String {
    if pod.reason.is_empty() { String::new() } else { format!(" ({})", pod.reason) }
}

/// The states that hold now.
pub(crate) fn notices(snapshot: &Snapshot<'_>, plan: &Plan) -> BTreeSet<Notice> {
    // It holds until a replacement succeeds, also while none waits.
    let fail_at_once = (snapshot.streak.rounds > 1).then_some(Notice::PodsFailAtOnce);
    let limited = (plan.waiting == Some(CreationWaitCause::CreationLimit)).then_some(Notice::CreationLimit);
    fail_at_once.into_iter().chain(limited).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rules::{backoff::Streak, plan::PodChange},
        testing::{BASE, pods, set},
    };

    #[test]
    fn a_streak_is_reported_from_its_second_round_and_names_the_last_pod() {
        let set = set(serde_json::json!({}));
        let plan = Plan { pods: PodChange::Keep, waiting: None };
        let notices = |rounds| {
            let streak = Streak { rounds, ..Streak::default() };
            notices(&Snapshot { set: &set, streak, ..BASE.snapshot() }, &plan)
        };
        assert_eq!((notices(1).len(), notices(2)), (0, BTreeSet::from([Notice::PodsFailAtOnce])));
        let message = Notice::PodsFailAtOnce.message(&pods(&["failed:9", "failed:3 reason:OutOfcpu", "ready"]));
        assert!(message.starts_with("pods fail at once, the last being p1 (OutOfcpu); each"), "{message}");
    }
}
