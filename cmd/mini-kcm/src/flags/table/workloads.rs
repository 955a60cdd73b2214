//! Flags of controllers of long-running workloads.

use super::{
    Group,
    History::Since137,
    Kind::{Bool, Duration, Float, Int32},
    flag, waits,
};

pub(super) const DEPLOYMENT: Group = Group {
    name: "Deployment-controller flags",
    flags: &[waits("concurrent-deployment-syncs", Int32, "5", "Deployments that are worked on at once.")],
};

pub(super) const CLAIMS: Group = Group {
    name: "Resourceclaim-controller flags",
    flags: &[waits("concurrent-resourceclaim-syncs", Int32, "50", "ResourceClaims that are made or deleted at once.")],
};

pub(super) const STATEFULSET: Group = Group {
    name: "Statefulset-controller flags",
    flags: &[waits("concurrent-statefulset-syncs", Int32, "5", "StatefulSets that are worked on at once.")],
};

pub(super) const DAEMONSET: Group = Group {
    name: "Daemonset-controller flags",
    flags: &[waits("concurrent-daemonset-syncs", Int32, "2", "DaemonSets that are worked on at once.")],
};

pub(super) const DISRUPTION: Group = Group {
    name: "Disruption-controller flags",
    flags: &[
        waits(
            "concurrent-disruption-stalepod-syncs",
            Int32,
            "1",
            "Pods with an outdated disruption condition that are worked on at once.",
        )
        .of(Since137),
        waits("concurrent-disruption-syncs", Int32, "1", "PodDisruptionBudgets that are worked on at once.")
            .of(Since137),
    ],
};

pub(super) const GARBAGE: Group = Group {
    name: "Garbage-collector-controller flags",
    flags: &[
        flag("concurrent-gc-syncs", Int32, "20", "Objects that are collected at once, and as many that are orphaned."),
        flag(
            "enable-garbage-collector",
            Bool,
            "true",
            "Runs the garbage collector; must be as the API server's flag of this name.",
        ),
    ],
};

pub(super) const AUTOSCALER: Group = Group {
    name: "Horizontal-pod-autoscaler-controller flags",
    flags: &[
        waits("concurrent-horizontal-pod-autoscaler-syncs", Int32, "5", "Autoscalers that are worked on at once."),
        waits(
            "horizontal-pod-autoscaler-cpu-initialization-period",
            Duration,
            "5m0s",
            "CPU samples of a pod this young may be left out.",
        ),
        waits(
            "horizontal-pod-autoscaler-downscale-stabilization",
            Duration,
            "5m0s",
            "Never fewer pods than were recommended within this time.",
        ),
        waits(
            "horizontal-pod-autoscaler-initial-readiness-delay",
            Duration,
            "30s",
            "Readiness changes of a pod this young are its first ones.",
        ),
        waits("horizontal-pod-autoscaler-sync-period", Duration, "15s", "How often each autoscaler is looked at."),
        waits(
            "horizontal-pod-autoscaler-tolerance",
            Float,
            "0.1",
            "A ratio of wanted to actual this near to 1 changes nothing.",
        ),
    ],
};

pub(super) const REPLICASET: Group = Group {
    name: "Replicaset-controller flags",
    flags: &[waits("concurrent-replicaset-syncs", Int32, "5", "ReplicaSets that are worked on at once.")],
};

pub(super) const REPLICATION: Group = Group {
    name: "Replicationcontroller-controller flags",
    flags: &[waits("concurrent-rc-syncs", Int32, "5", "ReplicationControllers that are worked on at once.")],
};
