//! Flags of Jobs, of controllers that clean up, and of quotas.

use super::{
    Group,
    Kind::{Duration, Int32, Text},
    flag, waits,
};

pub(super) const JOB: Group = Group {
    name: "Job-controller flags",
    flags: &[flag("concurrent-job-syncs", Int32, "5", "Jobs that are worked on at once.")],
};

pub(super) const CRONJOB: Group = Group {
    name: "Cronjob-controller flags",
    flags: &[flag("concurrent-cron-job-syncs", Int32, "5", "CronJobs that are worked on at once.")],
};

pub(super) const LEGACY_TOKENS: Group = Group {
    name: "Legacy-serviceaccount-token-cleaner-controller flags",
    flags: &[waits(
        "legacy-service-account-token-clean-up-period",
        Duration,
        "8760h0m0s",
        "A token Secret that nobody used for this long may be deleted.",
    )],
};

pub(super) const NAMESPACE: Group = Group {
    name: "Namespace-controller flags",
    flags: &[
        flag("concurrent-namespace-syncs", Int32, "10", "Namespaces that are worked on at once."),
        flag("namespace-sync-period", Duration, "5m0s", "Every terminating namespace is looked at again this often."),
    ],
};

pub(super) const POD_GARBAGE: Group = Group {
    name: "Pod-garbage-collector-controller flags",
    flags: &[waits(
        "terminated-pod-gc-threshold",
        Int32,
        "12500",
        "More ended pods than this are deleted, oldest first; 0 or less: none.",
    )],
};

pub(super) const QUOTA: Group = Group {
    name: "Resourcequota-controller flags",
    flags: &[
        waits("concurrent-resource-quota-syncs", Int32, "5", "ResourceQuotas that are worked on at once."),
        waits("resource-quota-sync-period", Duration, "5m0s", "How often usage is counted anew."),
    ],
};

pub(super) const ACCOUNTS: Group = Group {
    name: "Serviceaccount-controller flags",
    flags: &[
        waits("concurrent-serviceaccount-token-syncs", Int32, "5", "Token Secrets that are worked on at once."),
        waits("root-ca-file", Text, "", "Authority that is put into token Secrets and kube-root-ca.crt."),
        waits(
            "service-account-private-key-file",
            Text,
            "",
            "Key that signs the tokens of token Secrets; empty: none are made.",
        ),
    ],
};

pub(super) const FINISHED: Group = Group {
    name: "Ttl-after-finished-controller flags",
    flags: &[flag("concurrent-ttl-after-finished-syncs", Int32, "5", "Finished Jobs that are worked on at once.")],
};

pub(super) const POLICIES: Group = Group {
    name: "Validatingadmissionpolicy-status-controller flags",
    flags: &[waits(
        "concurrent-validating-admission-policy-status-syncs",
        Int32,
        "5",
        "Policies that are worked on at once.",
    )],
};
