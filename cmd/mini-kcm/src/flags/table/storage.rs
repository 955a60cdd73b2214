//! Flags of volume controllers.

use super::{
    Group,
    Kind::{Bool, Duration, Int32, Text},
    absent,
};

pub(super) const ATTACH_DETACH: Group = Group {
    name: "Persistentvolume-attach-detach-controller flags",
    flags: &[
        absent(
            "attach-detach-reconcile-sync-period",
            Duration,
            "1m0s",
            "How often attached volumes are compared with what is wanted; more than 1s.",
        ),
        absent(
            "disable-attach-detach-reconcile-sync",
            Bool,
            "false",
            "Never compare attached volumes with what is wanted.",
        ),
        absent(
            "disable-force-detach-on-timeout",
            Bool,
            "false",
            "Never detach a volume that its node did not unmount in time.",
        ),
    ],
};

pub(super) const EPHEMERAL: Group = Group {
    name: "Ephemeral-volume-controller flags",
    flags: &[absent("concurrent-ephemeralvolume-syncs", Int32, "5", "Concurrent syncs of ephemeral volumes.")],
};

pub(super) const BINDER: Group = Group {
    name: "Persistentvolume-binder-controller flags",
    flags: &[
        absent("enable-dynamic-provisioning", Bool, "true", "Make volumes for claims where the environment can."),
        absent("enable-hostpath-provisioner", Bool, "false", "Make HostPath volumes; for tests on one node only."),
        absent(
            "flex-volume-plugin-dir",
            Text,
            "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
            "Folder of flex volume plugins.",
        ),
        absent(
            "pv-recycler-increment-timeout-nfs",
            Int32,
            "30",
            "Seconds more for each GiB that an NFS recycler pod has.",
        ),
        absent("pv-recycler-minimum-timeout-hostpath", Int32, "60", "Least seconds that a HostPath recycler pod has."),
        absent("pv-recycler-minimum-timeout-nfs", Int32, "300", "Least seconds that an NFS recycler pod has."),
        absent("pv-recycler-pod-template-filepath-hostpath", Text, "", "Template of HostPath recycler pods."),
        absent("pv-recycler-pod-template-filepath-nfs", Text, "", "Template of NFS recycler pods."),
        absent(
            "pv-recycler-timeout-increment-hostpath",
            Int32,
            "30",
            "Seconds more for each GiB that a HostPath recycler pod has.",
        ),
        absent("pvclaimbinder-sync-period", Duration, "15s", "Resync period of volumes and claims."),
    ],
};
