//! The only differences between the two controllers.

use api::{ReplicaSet, ReplicationController, StatusOwner};

/// A kind whose pods are managed here. It is read as a ReplicaSet.
pub(crate) trait Kind: StatusOwner + AsRef<ReplicaSet> {
    /// The canonical name of its controller.
    const CONTROLLER: &'static str;
    /// The source of its events.
    const EVENT_SOURCE: &'static str;
    /// The name of its work queue.
    const QUEUE: &'static str;
    /// The prefix of the counter of skipped syncs. Upstream has none for ReplicationControllers.
    const SKIPS_SUBSYSTEM: &'static str;
    /// Whether its status has `terminatingReplicas`. The server drops the field from a ReplicationController, so it would
    /// be written again and again (k/k#131821).
    const COUNTS_TERMINATING: bool;
}

impl Kind for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const EVENT_SOURCE: &'static str = "replicaset-controller";
    const QUEUE: &'static str = "replicaset";
    const SKIPS_SUBSYSTEM: &'static str = "replicaset_controller";
    const COUNTS_TERMINATING: bool = true;
}

impl Kind for ReplicationController {
    const CONTROLLER: &'static str = "replicationcontroller-controller";
    const EVENT_SOURCE: &'static str = "replication-controller";
    const QUEUE: &'static str = "replicationmanager";
    const SKIPS_SUBSYSTEM: &'static str = "mini_kcm_replicationcontroller";
    const COUNTS_TERMINATING: bool = false;
}
