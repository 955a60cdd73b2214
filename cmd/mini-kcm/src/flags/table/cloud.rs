//! Flags of controllers that moved to cloud controller managers.

use super::{
    Group,
    History::Until136,
    Kind::{Bool, Int32, Text},
    flag, waits,
};

pub(super) const MIGRATION: Group = Group {
    name: "Leader-migration flags",
    flags: &[
        flag(
            "enable-leader-migration",
            Bool,
            "false",
            "Share a second Lease with a cloud controller manager while controllers move there.",
        )
        .ignored("by default it moves only cloud controllers, which neither manager has any more"),
        flag("leader-migration-config", Text, "", "File that says which controllers move.")
            .refused("a controller that moves would run here and in the other manager at once"),
    ],
};

pub(super) const SERVICE_LB: Group = Group {
    name: "Service-lb-controller flags",
    flags: &[waits(
        "concurrent-service-syncs",
        Int32,
        "1",
        "Services of type LoadBalancer that are worked on at once.",
    )
    .of(Until136)],
};
