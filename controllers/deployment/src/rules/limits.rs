//! How many pods a rollout may have in addition, and how many may be unavailable.

use api::{DeploymentSpec, DeploymentStrategy, IntOrPercent};

/// The limits of a rollout, resolved for the present number of replicas. All arithmetic of sizes is in 64 bits, because
/// products of two sizes do not fit into 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The wanted number of pods.
    pub(crate) replicas: i64,
    /// How many pods there may be in addition.
    pub(crate) surge: i64,
    /// How many pods may be unavailable.
    pub(crate) unavailable: i64,
}

impl Limits {
    /// The limits of a Deployment (`MaxSurge`, `MaxUnavailable`).
    pub(crate) fn of(spec: &DeploymentSpec) -> Self {
        let replicas = i64::from(spec.replicas.max(0));
        if spec.strategy != DeploymentStrategy::RollingUpdate {
            return Self { replicas, surge: 0, unavailable: 0 };
        }
        let (surge, unavailable) = resolve(spec.max_surge.as_ref(), spec.max_unavailable.as_ref(), replicas);
        Self { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    /// How many pods must stay available.
    pub(crate) fn min_available(self) -> i64 {
        self.replicas - self.unavailable
    }

    /// The highest sum of the sizes of all ReplicaSets.
    pub(crate) fn max_total(self) -> i64 {
        self.replicas + self.surge
    }

    /// The next size of the new ReplicaSet of a rolling update (`NewRSNewReplicas`). `total` is the sum of all sizes,
    /// its own included.
    pub(crate) fn next_size_of_new(self, size: i64, total: i64) -> i64 {
        let free = self.max_total() - total;
        if free <= 0 { size } else { size + free.min(self.replicas - size) }
    }
}

/// Surge is rounded up and unavailable down. If both are zero, one pod may be unavailable, because a rollout could not
/// begin otherwise (`ResolveFenceposts`). The server refuses a text that is no percentage; it counts as zero.
fn resolve(surge: Option<&IntOrPercent>, unavailable: Option<&IntOrPercent>, replicas: i64) -> (i64, i64) {
    let total = usize::try_from(replicas).unwrap_or_default();
    let number = |it: Option<usize>| it.and_then(|it| i64::try_from(it).ok()).unwrap_or_default();
    let surge = number(surge.and_then(|it| it.scaled_up(total)));
    let unavailable = number(unavailable.and_then(|it| it.scaled_down(total)));
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::deployment;

    fn limits(replicas: i64, surge: Value, unavailable: Value) -> (i64, i64) {
        let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        let spec = json!({ "replicas": replicas, "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } });
        let limits = Limits::of(&deployment(spec).spec);
        (limits.surge, limits.unavailable)
    }

    #[test]
    fn acceptance_deploy_020_surge_and_unavailable_are_resolved() {
        for (replicas, surge, unavailable, want) in [
            (1, "25%", "25%", (1, 0)),
            (2, "25%", "25%", (1, 0)),
            (3, "25%", "25%", (1, 0)),
            (4, "25%", "25%", (1, 1)),
            (10, "25%", "25%", (3, 2)),
            (10, "39%", "39%", (4, 3)),
            (2, "0%", "1%", (0, 1)),
            (1, "1%", "0%", (1, 0)),
            (3, "100%", "100%", (3, 3)),
            (0, "0%", "25%", (0, 0)),
        ] {
            assert_eq!(limits(replicas, json!(surge), json!(unavailable)), want, "{replicas} {surge} {unavailable}");
        }
        assert_eq!(limits(3, json!(0), json!(5)), (0, 3));
        assert_eq!(limits(3, json!(null), json!("many")), (0, 1), "what is no percentage is zero");
    }

    #[test]
    fn recreate_has_no_surge_and_nothing_may_be_unavailable() {
        let limits = Limits::of(&deployment(json!({ "replicas": 4, "strategy": { "type": "Recreate" } })).spec);
        assert_eq!(limits, Limits { replicas: 4, surge: 0, unavailable: 0 });
    }

    #[test]
    fn acceptance_deploy_021_the_new_set_is_scaled_up_into_the_free_room() {
        let limits = Limits { replicas: 10, surge: 2, unavailable: 0 };
        let next = |old: i64, new: i64| limits.next_size_of_new(new, old + new);
        assert_eq!((next(10, 0), next(5, 0), next(0, 0)), (2, 7, 10));
        let limits = Limits { replicas: 10, surge: 3, unavailable: 2 };
        assert_eq!(limits.next_size_of_new(5, 13), 5, "no room");
    }
}
