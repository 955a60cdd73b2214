use api::Pod;

use crate::deletion_requested;

/// A workload that has waited this long for a pod is blocked, in seconds. It is the default `progressDeadlineSeconds` of
/// a Deployment.
pub const BLOCKED_AFTER: i64 = 600;

/// Why a workload waits for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitCause {
    /// It is being deleted.
    Terminating,
    /// It does not run, or is not ready.
    NotReady,
    /// It has not been ready for `minReadySeconds`.
    NotAvailable,
}

impl WaitCause {
    /// Since when the pod has been in this state, in seconds since the epoch; `None` if that is unknown.
    #[must_use]
    pub fn since(self, pod: &Pod) -> Option<i64> {
        match self {
            Self::Terminating => deletion_requested(pod).or(pod.meta.deletion),
            Self::NotReady | Self::NotAvailable => {
                pod.condition("Ready").and_then(|it| it.last_transition).or(pod.creation)
            }
        }
    }

    /// The state of the pod in messages.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Terminating => "being deleted",
            Self::NotReady => "not ready",
            Self::NotAvailable => "not available",
        }
    }
}
