//! Flags of node controllers.

use super::{
    Group,
    Kind::{Int32, Text},
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

pub(super) const LIFECYCLE: Group = Group { name: "Node-lifecycle-controller flags", flags: &[] };
