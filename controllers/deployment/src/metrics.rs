//! The metrics of this controller. The series of a Deployment are removed with it.

use api::{Deployment, Uid};
use metrics::Metrics;
use workload::OwnerGauge;

/// The gauges of rollouts.
pub(crate) struct Meters {
    blocked_since: OwnerGauge,
}

impl Meters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            blocked_since: OwnerGauge::new(metrics.gauges(
                "mini_kcm_deployment_blocked_since_timestamp_seconds",
                "Since when the rollout of a Deployment has been over its progress deadline, or could not create its ReplicaSet.",
                &["deployment_namespace", "deployment_name"],
            )),
        }
    }

    /// Sets since when the rollout of a Deployment is blocked, or that it is not.
    pub(crate) fn set_blocked_since(&self, deployment: &Deployment, since: Option<i64>) {
        let meta = &deployment.meta;
        match since {
            Some(since) => self.blocked_since.set(&meta.uid, &[&meta.namespace, &meta.name], since),
            None => self.blocked_since.remove(&meta.uid),
        }
    }

    /// Removes the series of a deleted Deployment.
    pub(crate) fn remove(&self, deployment: &Uid) {
        self.blocked_since.remove(deployment);
    }
}
