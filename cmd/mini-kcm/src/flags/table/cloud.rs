//! Flags of controllers that moved to cloud controller managers.

use super::{
    Group,
    History::Until136,
    Kind::{Bool, Int32, Text},
    absent, flag,
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
        .ignored("by default it moves only cloud controllers, which no manager has any more"),
        flag("leader-migration-config", Text, "", "File that says which controllers move.")
            .refused("a controller that moves would run in both managers at the same time"),
    ],
};

pub(super) const SERVICE_LB: Group = Group {
    name: "Service-lb-controller flags",
    flags: &[absent("concurrent-service-syncs", Int32, "1", "Concurrent syncs of Services of type LoadBalancer.")
        .of(Until136)],
};
