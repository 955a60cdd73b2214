//! Flags of the manager as a whole.

use super::{
    Group,
    History::{Deprecated, Ours},
    Kind::{Bool, Duration, Float32, Gates, Int32, List, Text, Version},
    absent, flag,
};

const CLOUD: &str = "cloud controllers are in no kube-controller-manager any more";
const IPAM: &str = "the controller that uses it, node-ipam-controller, is not in this binary";

pub(super) const GENERIC: Group = Group {
    name: "Generic flags",
    flags: &[
        absent("allocate-node-cidrs", Bool, "false", "Give each node its range of pod addresses.").ignored(IPAM),
        flag("allow-untagged-cloud", Bool, "false", "Run without cluster identifiers in the cloud.")
            .ignored(CLOUD)
            .of(Deprecated),
        flag("cidr-allocator-type", Text, "RangeAllocator", "How nodes get their ranges; only RangeAllocator.")
            .ignored(IPAM),
        flag("cloud-config", Text, "", "Configuration of the cloud provider.").ignored(CLOUD),
        flag("cloud-provider", Text, "", "Empty or 'external'.").ignored(CLOUD),
        flag("cluster-cidr", Text, "", "Ranges of pod addresses.").ignored(IPAM),
        flag("cluster-name", Text, "kubernetes", "Prefix of objects in the cloud.").ignored(CLOUD),
        flag("configure-cloud-routes", Bool, "true", "Create routes for the nodes' ranges in the cloud.")
            .ignored(CLOUD),
        flag(
            "controller-shutdown-timeout",
            Duration,
            "10s",
            "How long to wait for controllers to stop; 0 means without limit.",
        ),
        flag(
            "controller-start-interval",
            Duration,
            "0s",
            "Each controller starts between one and two times this long after the term began.",
        ),
        flag(
            "controllers",
            List,
            "*",
            "Controllers to enable: '*' enables all that are on by default, 'foo' enables foo, '-foo' disables foo. The first entry that names a controller wins.",
        ),
        flag(
            "emulated-version",
            List,
            "",
            "Release whose feature gates apply, as '1.36' or 'kube=1.36'; 1.36 or 1.37.",
        ),
        flag("external-cloud-volume-plugin", Text, "", "Volume plugin of an external cloud provider.").ignored(CLOUD),
        flag("feature-gates", Gates, "", "Feature gates to set, as 'Gate=true,Other=false'."),
        flag("kube-api-burst", Int32, "30", "Burst of each controller's own rate limit."),
        flag("kube-api-content-type", Text, "application/vnd.kubernetes.protobuf", "Encoding of requests.")
            .ignored("mini-kcm selects the encoding of each request"),
        flag(
            "kube-api-qps",
            Float32,
            "20",
            "Requests per second of each controller's own rate limit; 0 or less: no limit.",
        ),
        flag("leader-elect", Bool, "true", "Acquire a Lease before the controllers start."),
        flag(
            "leader-elect-lease-duration",
            Duration,
            "15s",
            "Standbys wait this long after the last renewal that they observed.",
        ),
        flag(
            "leader-elect-renew-deadline",
            Duration,
            "10s",
            "The leader stops its controllers this long after its last renewal. Less than the lease duration.",
        ),
        flag("leader-elect-resource-lock", Text, "leases", "Kind of the lock; only 'leases'."),
        flag("leader-elect-resource-name", Text, "kube-controller-manager", "Name of the Lease."),
        flag("leader-elect-resource-namespace", Text, "kube-system", "Namespace of the Lease."),
        flag("leader-elect-retry-period", Duration, "2s", "Time between two attempts to acquire or renew the Lease."),
        flag("min-compatibility-version", List, "", "Lowest release of other control plane components, as '1.35'."),
        flag(
            "min-resync-period",
            Duration,
            "12h0m0s",
            "Resync period of informers' handlers, times a random factor between 1 and 2.",
        ),
        flag("node-sync-period", Duration, "0s", "How often the addresses of nodes are read from a cloud.")
            .ignored(CLOUD)
            .of(Deprecated),
        flag("route-reconciliation-period", Duration, "10s", "Reconciliation period of routes in the cloud.")
            .ignored(CLOUD),
        flag("use-service-account-credentials", Bool, "false", "Each controller uses its own ServiceAccount."),
    ],
};

pub(super) const MISC: Group = Group {
    name: "Misc flags",
    flags: &[
        flag(
            "kubeconfig",
            Text,
            "",
            "Path to a kubeconfig file. Without it and --master the in-cluster configuration is used.",
        ),
        flag("master", Text, "", "Address of the API server; overrides the one in the kubeconfig."),
    ],
};

pub(super) const OURS: Group = Group {
    name: "Mini-kcm flags",
    flags: &[
        flag(
            "assume-exclusive",
            Bool,
            "false",
            "State that no other manager runs the controllers of this one, where this cannot be observed: when a manager leads with the Lease kube-system/kube-controller-manager and no pod shows its --controllers. Without this flag all controllers are held back then.",
        )
        .of(Ours),
        flag(
            "partial-takeover",
            Bool,
            "false",
            "Lead with a Lease that kube-controller-manager holds, held or waits for, although it runs controllers that this manager does not run.",
        )
        .of(Ours),
        flag(
            "preflight",
            Bool,
            "false",
            "Check whether a manager with these flags can do its work, print missing permissions and rules that grant them, and exit: 0 when it can, even with warnings about missing controllers, else 1.",
        )
        .of(Ours),
        flag(
        "standby",
        Text,
        "warm",
        "Whether a standby runs informers: 'warm' runs them, so that a new leader can act at once; 'cold' starts them with the term, as kube-controller-manager does.",
    )
    .of(Ours),
    ],
};

pub(super) const GLOBAL: Group = Group {
    name: "Global flags",
    flags: &[
        flag("help", Bool, "false", "Print this help and exit."),
        flag(
            "version",
            Version,
            "false",
            "Print the version and exit: =raw with all details; =v1.37.0-x prints that one.",
        ),
    ],
};
