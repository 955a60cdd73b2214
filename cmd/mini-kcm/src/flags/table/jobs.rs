//! Flags of Jobs, of controllers that clean up, and of quotas.

use super::{
    Group,
    Kind::{Duration, Int32, Text},
    absent,
};

pub(super) const JOB: Group = Group { name: "Job-controller flags", flags: &[] };

pub(super) const CRONJOB: Group = Group { name: "Cronjob-controller flags", flags: &[] };

pub(super) const LEGACY_TOKENS: Group = Group {
    name: "Legacy-serviceaccount-token-cleaner-controller flags",
    flags: &[absent(
        "legacy-service-account-token-clean-up-period",
        Duration,
        "8760h0m0s",
        "A token Secret that was not used for this long may be deleted.",
    )],
};

pub(super) const NAMESPACE: Group = Group { name: "Namespace-controller flags", flags: &[] };

pub(super) const POD_GARBAGE: Group = Group { name: "Pod-garbage-collector-controller flags", flags: &[] };

pub(super) const QUOTA: Group = Group {
    name: "Resourcequota-controller flags",
    flags: &[
        absent("concurrent-resource-quota-syncs", Int32, "5", "Concurrent syncs of ResourceQuotas."),
        absent("resource-quota-sync-period", Duration, "5m0s", "Resync period of the usage."),
    ],
};

pub(super) const ACCOUNTS: Group = Group {
    name: "Serviceaccount-controller flags",
    flags: &[
        absent("concurrent-serviceaccount-token-syncs", Int32, "5", "Concurrent syncs of token Secrets."),
        absent("root-ca-file", Text, "", "Authority that is put into token Secrets and kube-root-ca.crt."),
        absent(
            "service-account-private-key-file",
            Text,
            "",
            "Key that signs the tokens of token Secrets; empty: none are created.",
        ),
    ],
};

pub(super) const FINISHED: Group = Group { name: "Ttl-after-finished-controller flags", flags: &[] };

pub(super) const POLICIES: Group = Group {
    name: "Validatingadmissionpolicy-status-controller flags",
    flags: &[absent(
        "concurrent-validating-admission-policy-status-syncs",
        Int32,
        "5",
        "Concurrent syncs of policies.",
    )],
};
