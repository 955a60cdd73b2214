//! Flags of Service controllers.

use super::{
    Group,
    Kind::{Duration, Int32},
    waits,
};

pub(super) const ENDPOINTS: Group = Group {
    name: "Endpoints-controller flags",
    flags: &[
        waits("concurrent-endpoint-syncs", Int32, "5", "Services whose Endpoints are worked on at once."),
        waits(
            "endpoint-updates-batch-period",
            Duration,
            "0s",
            "How long changes of pods are collected before Endpoints are written.",
        ),
    ],
};

pub(super) const SLICES: Group = Group {
    name: "Endpointslice-controller flags",
    flags: &[
        waits(
            "concurrent-service-endpoint-syncs",
            Int32,
            "5",
            "Services whose EndpointSlices are worked on at once; 1 to 50.",
        ),
        waits(
            "endpointslice-updates-batch-period",
            Duration,
            "0s",
            "How long changes of pods are collected before EndpointSlices are written.",
        ),
        waits("max-endpoints-per-slice", Int32, "100", "Endpoints of one EndpointSlice; 1 to 1000."),
    ],
};

pub(super) const MIRRORING: Group = Group {
    name: "Endpointslice-mirroring-controller flags",
    flags: &[
        waits(
            "mirroring-concurrent-service-endpoint-syncs",
            Int32,
            "5",
            "Services whose Endpoints are mirrored at once; 1 to 50.",
        ),
        waits(
            "mirroring-endpointslice-updates-batch-period",
            Duration,
            "0s",
            "How long changes of Endpoints are collected before they are mirrored.",
        ),
        waits(
            "mirroring-max-endpoints-per-subset",
            Int32,
            "1000",
            "Endpoints of one mirrored EndpointSlice; 1 to 1000.",
        ),
    ],
};
