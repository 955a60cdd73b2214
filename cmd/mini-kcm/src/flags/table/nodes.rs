//! Flags of node controllers.

use super::{
    Group,
    Kind::{Duration, Float32, Int32, Text},
    absent,
};

pub(super) const DEVICE_TAINTS: Group = Group {
    name: "Device-taint-eviction-controller flags",
    flags: &[absent("concurrent-device-taint-eviction-syncs", Int32, "8", "Evictions and status updates at once.")],
};

pub(super) const IPAM: Group = Group {
    name: "Node-ipam-controller flags",
    flags: &[
        absent("node-cidr-mask-size", Int32, "0", "Size of a node's range: 24 for IPv4, 64 for IPv6 when 0."),
        absent(
            "node-cidr-mask-size-ipv4",
            Int32,
            "0",
            "Size of a node's IPv4 range in a dual-stack cluster; 24 when 0.",
        ),
        absent(
            "node-cidr-mask-size-ipv6",
            Int32,
            "0",
            "Size of a node's IPv6 range in a dual-stack cluster; 64 when 0.",
        ),
        absent("service-cluster-ip-range", Text, "", "Ranges of Services, which nodes do not get."),
    ],
};

pub(super) const LIFECYCLE: Group = Group {
    name: "Node-lifecycle-controller flags",
    flags: &[
        absent(
            "large-cluster-size-threshold",
            Int32,
            "50",
            "Zones with at most this many nodes stop evicting when unhealthy.",
        ),
        absent("node-eviction-rate", Float32, "0.1", "Nodes a second that are tainted in a healthy zone."),
        absent(
            "node-monitor-grace-period",
            Duration,
            "50s",
            "A node without a status update for this long is unhealthy.",
        ),
        absent("node-startup-grace-period", Duration, "1m0s", "A new node may have no status update for this long."),
        absent(
            "secondary-node-eviction-rate",
            Float32,
            "0.01",
            "Nodes a second that are tainted in an unhealthy zone.",
        ),
        absent(
            "unhealthy-zone-threshold",
            Float32,
            "0.55",
            "A zone with this share of nodes not ready, and at least 3, is unhealthy.",
        ),
    ],
};
