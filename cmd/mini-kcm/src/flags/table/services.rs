//! Flags of Service controllers.

use super::{
    Group,
    Kind::{Duration, Int32},
    absent,
};

pub(super) const ENDPOINTS: Group = Group {
    name: "Endpoints-controller flags",
    flags: &[
        absent("concurrent-endpoint-syncs", Int32, "5", "Concurrent syncs of Endpoints."),
        absent(
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
        absent("concurrent-service-endpoint-syncs", Int32, "5", "Concurrent syncs of EndpointSlices; 1 to 50."),
        absent(
            "endpointslice-updates-batch-period",
            Duration,
            "0s",
            "How long changes of pods are collected before EndpointSlices are written.",
        ),
        absent("max-endpoints-per-slice", Int32, "100", "Endpoints of one EndpointSlice; 1 to 1000."),
    ],
};

pub(super) const MIRRORING: Group = Group {
    name: "Endpointslice-mirroring-controller flags",
    flags: &[
        absent(
            "mirroring-concurrent-service-endpoint-syncs",
            Int32,
            "5",
            "Services whose Endpoints are mirrored at once; 1 to 50.",
        ),
        absent(
            "mirroring-endpointslice-updates-batch-period",
            Duration,
            "0s",
            "How long changes of Endpoints are collected before they are mirrored.",
        ),
        absent(
            "mirroring-max-endpoints-per-subset",
            Int32,
            "1000",
            "Endpoints of one mirrored EndpointSlice; 1 to 1000.",
        ),
    ],
};
