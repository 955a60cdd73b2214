//! What is reported to users once, and again only after a change.

use std::time::Duration;

use clock::Timestamp;
use workload::{BLOCKED_AFTER, WaitCause};

use crate::rules::{rollout::AwaitedPod, snapshot::node_name};

/// With this annotation an update does not wait for nodes that are unreachable for longer.
pub(crate) const IGNORE_UNREACHABLE: &str = "mini-kcm.dev/ignore-unreachable-after";

/// The nodes that one event names.
const EXAMPLES: usize = 3;

/// A state that users must know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// A rollout waits for some nodes for a long time.
    Blocked {
        /// The number of these nodes.
        count: usize,
        /// Some of them, in the order of their names.
        examples: Vec<Example>,
        /// Since when the first of them has been waited for, in seconds since the epoch.
        since: i64,
    },
    /// The value of [`IGNORE_UNREACHABLE`] is no duration.
    InvalidAnnotation {
        /// The value.
        value: Box<str>,
    },
}

/// A node for which a rollout waits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Example {
    node: Box<str>,
    pod: Box<str>,
    cause: WaitCause,
    since: i64,
}

impl Notice {
    /// The reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Blocked { .. } => "Blocked",
            Self::InvalidAnnotation { .. } => "InvalidAnnotation",
        }
    }

    /// Since when a rollout is blocked.
    pub(crate) fn blocked_since(&self) -> Option<i64> {
        match self {
            Self::Blocked { since, .. } => Some(*since),
            Self::InvalidAnnotation { .. } => None,
        }
    }

    /// The message of the event.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Blocked { count, examples, .. } => {
                let examples: Vec<String> = examples.iter().map(Example::text).collect();
                let nodes = if *count == 1 { "node" } else { "nodes" };
                format!("the rollout waits for {count} {nodes}: {}", examples.join(", "))
            }
            Self::InvalidAnnotation { value } => {
                format!("the annotation {IGNORE_UNREACHABLE} is not a duration such as 10m: {value:?}")
            }
        }
    }
}

impl Example {
    fn text(&self) -> String {
        let Self { node, pod, cause, since } = self;
        let since = Timestamp::from_second(*since).unwrap_or(Timestamp::UNIX_EPOCH);
        format!("{node} (Pod {pod}, {} since {since})", cause.state())
    }
}

/// The notice about the pods for which a rollout waits, or the time until one is due. A pod that is ready becomes
/// available in time, so it blocks nothing.
pub(crate) fn blocked(waiting: &[AwaitedPod<'_>], now: i64) -> (Option<Notice>, Option<Duration>) {
    let (mut all, mut next): (Vec<Example>, Option<i64>) = (Vec::new(), None);
    for AwaitedPod { pod, cause } in waiting.iter().filter(|it| it.cause != WaitCause::NotAvailable) {
        let Some(since) = cause.since(pod) else { continue };
        let left = since.saturating_add(BLOCKED_AFTER).saturating_sub(now);
        if left > 0 {
            next = next.into_iter().chain([left]).min();
        } else {
            all.push(Example { node: (**node_name(pod)).into(), pod: pod.meta.name.clone(), cause: *cause, since });
        }
    }
    let next = next.and_then(|it| u64::try_from(it).ok()).map(Duration::from_secs);
    let Some(since) = all.iter().map(|it| it.since).min() else { return (None, next) };
    all.sort();
    all.dedup_by(|a, b| a.node == b.node);
    let count = all.len();
    all.truncate(EXAMPLES);
    (Some(Notice::Blocked { count, examples: all, since }), next)
}

/// The value of the annotation in seconds, or the notice that it is not valid.
pub(crate) fn ignore_unreachable_after(value: Option<&str>) -> Result<Option<i64>, Notice> {
    let Some(value) = value else { return Ok(None) };
    let nanoseconds = api::duration::parse(value).ok().filter(|it| *it >= 0);
    let seconds = nanoseconds.map(|it| it / 1_000_000_000);
    seconds.map(Some).ok_or_else(|| Notice::InvalidAnnotation { value: value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, pod};

    #[test]
    fn the_nodes_that_block_a_rollout_for_ten_minutes_are_named() {
        let pods: Vec<_> = ["n3", "n1", "n2", "n4"].map(|node| pod(node, 0, "new running")).into();
        let waiting: Vec<_> = pods.iter().map(|pod| AwaitedPod { pod, cause: WaitCause::NotReady }).collect();
        // The pods are not ready since 1,000 s before NOW.
        assert_eq!(blocked(&waiting, NOW - 1_000 + 599), (None, Some(Duration::from_secs(1))));
        let (Some(notice), None) = blocked(&waiting, NOW - 1_000 + 600) else { panic!("not blocked") };
        let message = notice.message();
        assert!(message.starts_with("the rollout waits for 4 nodes: n1 (Pod n1-0, not ready since 2026-"), "{message}");
        assert!(message.contains("n3 (") && !message.contains("n4 ("), "{message}");
        assert_eq!((notice.reason(), notice.blocked_since()), ("Blocked", Some(NOW - 1_000)));
        assert_eq!(blocked(&waiting, NOW), (Some(notice), None), "it does not change with time");
        let available: Vec<_> = pods.iter().map(|pod| AwaitedPod { pod, cause: WaitCause::NotAvailable }).collect();
        assert_eq!(blocked(&available, NOW), (None, None));
    }

    #[test]
    fn an_annotation_that_is_no_duration_is_reported() {
        assert_eq!(ignore_unreachable_after(None), Ok(None));
        assert_eq!(ignore_unreachable_after(Some("5m")), Ok(Some(300)));
        for value in ["", "5", "-5m", "soon"] {
            let notice = ignore_unreachable_after(Some(value)).unwrap_err();
            let message = notice.message();
            assert!(message.starts_with("the annotation mini-kcm.dev/ignore-unreachable-after is not a"), "{message}");
        }
    }
}
