//! Flags of controllers of long-running workloads.

use super::{
    Group,
    History::Since137,
    Kind::{Bool, Duration, Float, Int32},
    absent, flag,
};

pub(super) const DEPLOYMENT: Group = Group { name: "Deployment-controller flags", flags: &[] };

pub(super) const CLAIMS: Group = Group {
    name: "Resourceclaim-controller flags",
    flags: &[absent("concurrent-resourceclaim-syncs", Int32, "50", "ResourceClaims that are made or deleted at once.")],
};

pub(super) const STATEFULSET: Group = Group { name: "Statefulset-controller flags", flags: &[] };

pub(super) const DAEMONSET: Group = Group { name: "Daemonset-controller flags", flags: &[] };

pub(super) const DISRUPTION: Group = Group {
    name: "Disruption-controller flags",
    flags: &[
        absent(
            "concurrent-disruption-stalepod-syncs",
            Int32,
            "1",
            "Concurrent syncs of pods with an outdated disruption condition.",
        )
        .of(Since137),
        absent("concurrent-disruption-syncs", Int32, "1", "Concurrent syncs of PodDisruptionBudgets.").of(Since137),
    ],
};

pub(super) const GARBAGE: Group = Group {
    name: "Garbage-collector-controller flags",
    flags: &[flag(
        "enable-garbage-collector",
        Bool,
        "true",
        "Runs the garbage collector; must be equal to the API server's flag of this name.",
    )],
};

pub(super) const AUTOSCALER: Group = Group {
    name: "Horizontal-pod-autoscaler-controller flags",
    flags: &[
        absent("concurrent-horizontal-pod-autoscaler-syncs", Int32, "5", "Concurrent syncs of autoscalers."),
        absent(
            "horizontal-pod-autoscaler-cpu-initialization-period",
            Duration,
            "5m0s",
            "CPU samples of a pod this young may be left out.",
        ),
        absent(
            "horizontal-pod-autoscaler-downscale-stabilization",
            Duration,
            "5m0s",
            "Never fewer pods than were recommended within this time.",
        ),
        absent(
            "horizontal-pod-autoscaler-initial-readiness-delay",
            Duration,
            "30s",
            "Readiness changes of a pod this young are its first ones.",
        ),
        absent("horizontal-pod-autoscaler-sync-period", Duration, "15s", "Sync period of each autoscaler."),
        absent(
            "horizontal-pod-autoscaler-tolerance",
            Float,
            "0.1",
            "A ratio of wanted to actual this near to 1 changes nothing.",
        ),
    ],
};

pub(super) const REPLICASET: Group = Group { name: "Replicaset-controller flags", flags: &[] };

pub(super) const REPLICATION: Group = Group { name: "Replicationcontroller-controller flags", flags: &[] };
