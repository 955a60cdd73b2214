//! The controllers of this binary, and the names of those that it does not contain.

use std::sync::LazyLock;

use controller::{
    ByDefault::{self, Gated, Off, On, Removed, WithKey},
    Registration,
};

/// The controllers of this binary. A new controller is one crate under `controllers/` and one line here.
pub const REGISTRATIONS: &[&Registration] = &[
    &namespace_controller::REGISTRATION,
    &garbage_collector_controller::REGISTRATION,
    &job_controller::REGISTRATION,
    &cronjob_controller::REGISTRATION,
    &ttl_after_finished_controller::REGISTRATION,
];

/// A name that `--controllers` accepts.
#[derive(Debug, Clone, Copy)]
pub struct KnownController {
    /// Canonical name. Its meaning never changes.
    pub name: &'static str,
    /// An older name that still works; empty without one.
    pub alias: &'static str,
    /// Its ServiceAccount in kube-system under `--use-service-account-credentials`, and always the name of its client.
    /// Empty where upstream has none.
    pub service_account: &'static str,
    /// Whether `*` includes it.
    pub default: ByDefault,
    /// What a cluster lacks without it. Completes the sentence "the cluster gets no …", for operators who do not know
    /// the controller's name. Empty for a controller of this binary.
    pub purpose: &'static str,
    /// Its registration; `None` when it is not in this binary.
    pub registration: Option<&'static Registration>,
}

impl KnownController {
    /// The ServiceAccount in kube-system that the controller may use.
    #[must_use]
    pub fn identity(&self) -> Option<&'static str> {
        (!self.service_account.is_empty()).then_some(self.service_account)
    }

    /// All feature gates that the controller needs. Gates that are locked on in every known release are left out.
    #[must_use]
    pub fn gates(&self) -> &'static [&'static str] {
        match self.default {
            Gated(gates) => gates,
            On | Off | WithKey | Removed => &[],
        }
    }
}

impl From<&'static Registration> for KnownController {
    fn from(registration: &'static Registration) -> Self {
        let Registration { name, alias, service_account, default, .. } = *registration;
        Self { name, alias, service_account, default, purpose: "", registration: Some(registration) }
    }
}

/// Every name that `--controllers` accepts: the controllers of this binary, and those that it does not contain. So an
/// operator's list is accepted unchanged, with a warning about the absent controllers.
pub static KNOWN: LazyLock<Vec<KnownController>> = LazyLock::new(|| known(REGISTRATIONS));

/// The same with these registrations.
fn known(registrations: &[&'static Registration]) -> Vec<KnownController> {
    let ours = registrations.iter().map(|it| KnownController::from(*it));
    let absent = ABSENT.iter().filter(|it| registrations.iter().all(|ours| ours.name != it.name));
    ours.chain(absent.copied()).collect()
}

const fn absent(
    name: &'static str,
    alias: &'static str,
    service_account: &'static str,
    default: ByDefault,
    purpose: &'static str,
) -> KnownController {
    KnownController { name, alias, service_account, default, purpose, registration: None }
}

/// The controllers of kube-controller-manager that are not in this binary.
const ABSENT: &[KnownController] = &[
    absent(
        "serviceaccount-token-controller",
        "serviceaccount-token",
        "",
        WithKey,
        "tokens in Secrets of service accounts",
    ),
    absent("endpoints-controller", "endpoint", "endpoint-controller", On, "Endpoints of Services"),
    absent(
        "endpointslice-controller",
        "endpointslice",
        "endpointslice-controller",
        On,
        "EndpointSlices, so traffic to Services goes nowhere",
    ),
    absent(
        "endpointslice-mirroring-controller",
        "endpointslicemirroring",
        "endpointslicemirroring-controller",
        On,
        "EndpointSlices of manually created Endpoints",
    ),
    absent(
        "replicationcontroller-controller",
        "replicationcontroller",
        "replication-controller",
        On,
        "pods of ReplicationControllers",
    ),
    absent(
        "pod-garbage-collector-controller",
        "podgc",
        "pod-garbage-collector",
        On,
        "deletion of pods whose node is gone or that ended long ago",
    ),
    absent("resourcequota-controller", "resourcequota", "resourcequota-controller", On, "counting of ResourceQuotas"),
    absent(
        "serviceaccount-controller",
        "serviceaccount",
        "service-account-controller",
        On,
        "default service account in new namespaces, so no pods there",
    ),
    absent("daemonset-controller", "daemonset", "daemon-set-controller", On, "pods of DaemonSets"),
    absent(
        "podgroup-protection-controller",
        "",
        "podgroup-protection-controller",
        Gated(&["GenericWorkload"]),
        "protection of PodGroups in use",
    ),
    absent("deployment-controller", "deployment", "deployment-controller", On, "rollouts of Deployments"),
    absent("replicaset-controller", "replicaset", "replicaset-controller", On, "pods of ReplicaSets"),
    absent(
        "horizontal-pod-autoscaler-controller",
        "horizontalpodautoscaling",
        "horizontal-pod-autoscaler",
        On,
        "scaling by HorizontalPodAutoscalers",
    ),
    absent(
        "disruption-controller",
        "disruption",
        "disruption-controller",
        On,
        "counting of PodDisruptionBudgets, so no evictions under them",
    ),
    absent("statefulset-controller", "statefulset", "statefulset-controller", On, "pods of StatefulSets"),
    absent(
        "certificatesigningrequest-signing-controller",
        "csrsigning",
        "certificate-controller",
        On,
        "signing of certificate requests, so no kubelet joins by token",
    ),
    absent(
        "certificatesigningrequest-approving-controller",
        "csrapproving",
        "certificate-controller",
        On,
        "approval of kubelets' certificate requests",
    ),
    absent(
        "certificatesigningrequest-cleaner-controller",
        "csrcleaner",
        "certificate-controller",
        On,
        "deletion of old certificate requests",
    ),
    absent(
        "podcertificaterequest-cleaner-controller",
        "",
        "podcertificaterequestcleaner",
        Gated(&["PodCertificateRequest"]),
        "deletion of old pod certificate requests",
    ),
    absent("ttl-controller", "ttl", "ttl-controller", On, "TTL annotations on nodes"),
    absent(
        "bootstrap-signer-controller",
        "bootstrapsigner",
        "bootstrap-signer",
        Off,
        "signature on cluster-info, so kubeadm join by token fails",
    ),
    absent("token-cleaner-controller", "tokencleaner", "token-cleaner", Off, "deletion of expired bootstrap tokens"),
    absent("node-ipam-controller", "nodeipam", "node-controller", On, "address ranges of nodes"),
    absent("node-lifecycle-controller", "nodelifecycle", "node-controller", On, "detection of unhealthy nodes"),
    absent("taint-eviction-controller", "", "node-controller", On, "eviction of pods from nodes that are down"),
    absent("service-lb-controller", "service", "", Removed, ""),
    absent("node-route-controller", "route", "", Removed, ""),
    absent("cloud-node-lifecycle-controller", "cloud-node-lifecycle", "", Removed, ""),
    absent(
        "persistentvolume-binder-controller",
        "persistentvolume-binder",
        "persistent-volume-binder",
        On,
        "binding of volumes to claims",
    ),
    absent(
        "persistentvolume-attach-detach-controller",
        "attachdetach",
        "attachdetach-controller",
        On,
        "attaching of volumes to nodes",
    ),
    absent(
        "persistentvolume-expander-controller",
        "persistentvolume-expander",
        "expand-controller",
        On,
        "expansion of in-tree volumes",
    ),
    absent(
        "persistentvolumeclaim-protection-controller",
        "pvc-protection",
        "pvc-protection-controller",
        On,
        "finalizer removal from deleted volume claims",
    ),
    absent(
        "persistentvolume-protection-controller",
        "pv-protection",
        "pv-protection-controller",
        On,
        "finalizer removal from deleted volumes",
    ),
    absent(
        "volumeattributesclass-protection-controller",
        "",
        "volumeattributesclass-protection-controller",
        On,
        "finalizer removal from deleted VolumeAttributesClasses",
    ),
    absent(
        "clusterrole-aggregation-controller",
        "clusterrole-aggregation",
        "clusterrole-aggregation-controller",
        On,
        "aggregated ClusterRoles (admin, edit, view)",
    ),
    absent(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        "root-ca-cert-publisher",
        On,
        "kube-root-ca.crt in new namespaces, so no pods with tokens there",
    ),
    absent(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "",
        "kube-apiserver-serving-clustertrustbundle-publisher",
        Gated(&["ClusterTrustBundle"]),
        "trust bundle of the API server",
    ),
    absent(
        "ephemeral-volume-controller",
        "ephemeral-volume",
        "ephemeral-volume-controller",
        On,
        "claims of pods' ephemeral volumes",
    ),
    absent(
        "storageversion-garbage-collector-controller",
        "storage-version-gc",
        "storage-version-garbage-collector",
        Gated(&["APIServerIdentity", "StorageVersionAPI"]),
        "deletion of old StorageVersions",
    ),
    absent(
        "resourceclaim-controller",
        "resource-claim-controller",
        "resource-claim-controller",
        On,
        "ResourceClaims from pods' templates",
    ),
    absent(
        "resourcepoolstatusrequest-controller",
        "",
        "resourcepoolstatusrequest-controller",
        Gated(&["DRAResourcePoolStatus"]),
        "answers to ResourcePoolStatusRequests",
    ),
    absent(
        "device-taint-eviction-controller",
        "",
        "device-taint-eviction-controller",
        Gated(&["DRADeviceTaints"]),
        "eviction of pods from tainted devices",
    ),
    absent(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        "legacy-service-account-token-cleaner",
        On,
        "deletion of unused token Secrets",
    ),
    absent(
        "validatingadmissionpolicy-status-controller",
        "",
        "validatingadmissionpolicy-status-controller",
        On,
        "type checks of ValidatingAdmissionPolicies",
    ),
    absent(
        "service-cidr-controller",
        "",
        "service-cidrs-controller",
        On,
        "finalizer removal from deleted ServiceCIDRs",
    ),
    absent(
        "storage-version-migrator-controller",
        "svm",
        "storage-version-migrator-controller",
        Gated(&["StorageVersionMigrator"]),
        "storage version migrations",
    ),
    absent(
        "selinux-warning-controller",
        "",
        "selinux-warning-controller",
        Off,
        "warnings about SELinux labels of volumes",
    ),
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use controller::Profile;

    use super::*;

    /// A controller that exists only here. One line in the list of registrations is enough for it.
    const NEW: Registration = Registration {
        name: "statefulset-controller",
        alias: "statefulset",
        service_account: "statefulset-controller",
        profile: Profile::NONE,
        default: On,
        flags: &[],
        gates: &[],
        start: |_, _| {},
    };

    #[test]
    fn one_registration_adds_a_controller() {
        let with_it: Vec<&Registration> = REGISTRATIONS.iter().copied().chain([&NEW]).collect();
        let all = known(&with_it);
        assert_eq!(all.len(), KNOWN.len(), "it replaces the line of the absent one");
        let found: Vec<_> = all.iter().filter(|it| it.name == NEW.name).collect();
        assert_eq!((found.len(), found[0].registration.map(|it| it.name)), (1, Some(NEW.name)));
    }

    #[test]
    fn a_controller_of_this_binary_is_not_listed_as_absent() {
        for registration in REGISTRATIONS {
            assert!(ABSENT.iter().all(|it| it.name != registration.name), "{}", registration.name);
        }
        let without_purpose = ABSENT.iter().filter(|it| it.purpose.is_empty() && it.default != Removed);
        assert_eq!(without_purpose.count(), 0);
    }

    #[test]
    fn rbac_manifest_binds_the_role_of_each_controller() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("manifests/rbac.yaml");
        let text = fs::read_to_string(path).unwrap();
        let prefix = "name: system:controller:";
        let mut bound: Vec<&str> = text.lines().filter_map(|it| it.trim().strip_prefix(prefix)).collect();
        let mut accounts: Vec<&str> = REGISTRATIONS.iter().map(|it| it.service_account).collect();
        bound.sort_unstable();
        accounts.sort_unstable();
        assert_eq!(bound, accounts);
    }
}
