//! The controllers of this binary, and the names of those that it does not contain.

use std::sync::LazyLock;

use controller::{
    ByDefault::{self, Gated, Off, On, Removed, WithKey},
    Registration,
};

/// The controllers of this binary. A new controller is a crate under `controllers/` and one line here;
/// `docs/ARCHITECTURE.md` lists the other places.
pub(crate) const REGISTRATIONS: &[&Registration] = &[
    &namespace_controller::REGISTRATION,
    &garbage_collector_controller::REGISTRATION,
    &job_controller::REGISTRATION,
    &cronjob_controller::REGISTRATION,
    &ttl_after_finished_controller::REGISTRATION,
    &statefulset_controller::REGISTRATION,
    &daemonset_controller::REGISTRATION,
    &replicaset_controller::REGISTRATION,
    &replicaset_controller::REPLICATION_CONTROLLER_REGISTRATION,
    &deployment_controller::REGISTRATION,
    &node_lifecycle_controller::REGISTRATION,
    &taint_eviction_controller::REGISTRATION,
    &pod_garbage_collector_controller::REGISTRATION,
    &node_ttl_controller::REGISTRATION,
];

/// A name that `--controllers` accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownController {
    /// Canonical name. Its meaning never changes.
    pub(crate) name: &'static str,
    /// An older name that still works; empty without one.
    pub(crate) alias: &'static str,
    /// Whether `*` includes it.
    pub(crate) default: ByDefault,
    /// What a cluster lacks without it. Completes the sentence "the cluster gets no …", for operators who do not know
    /// the controller's name. Empty for a controller of this binary.
    pub(crate) purpose: &'static str,
    /// Its registration; `None` when it is not in this binary.
    pub(crate) registration: Option<&'static Registration>,
}

impl KnownController {
    /// All feature gates that the controller needs. Gates that are locked on in every known release are left out.
    #[must_use]
    pub(crate) fn gates(&self) -> &'static [&'static str] {
        match self.default {
            Gated(gates) => gates,
            On | Off | WithKey | Removed => &[],
        }
    }
}

impl From<&'static Registration> for KnownController {
    fn from(registration: &'static Registration) -> Self {
        let Registration { name, alias, default, .. } = *registration;
        Self { name, alias, default, purpose: "", registration: Some(registration) }
    }
}

/// Every name that `--controllers` accepts: the controllers of this binary, and those that it does not contain. So an
/// operator's list is accepted unchanged, with a warning about the absent controllers.
pub(crate) static KNOWN: LazyLock<Vec<KnownController>> = LazyLock::new(|| known(REGISTRATIONS));

/// The same with these registrations.
fn known(registrations: &[&'static Registration]) -> Vec<KnownController> {
    let ours = registrations.iter().map(|it| KnownController::from(*it));
    let absent = ABSENT.iter().filter(|it| registrations.iter().all(|ours| ours.name != it.name));
    ours.chain(absent.copied()).collect()
}

const fn absent(name: &'static str, alias: &'static str, default: ByDefault, purpose: &'static str) -> KnownController {
    KnownController { name, alias, default, purpose, registration: None }
}

/// The controllers of kube-controller-manager that are not in this binary.
const ABSENT: &[KnownController] = &[
    absent("serviceaccount-token-controller", "serviceaccount-token", WithKey, "tokens in Secrets of service accounts"),
    absent("endpoints-controller", "endpoint", On, "Endpoints of Services"),
    absent("endpointslice-controller", "endpointslice", On, "EndpointSlices, so traffic to Services goes nowhere"),
    absent(
        "endpointslice-mirroring-controller",
        "endpointslicemirroring",
        On,
        "EndpointSlices of manually created Endpoints",
    ),
    absent("resourcequota-controller", "resourcequota", On, "counting of ResourceQuotas"),
    absent(
        "serviceaccount-controller",
        "serviceaccount",
        On,
        "default service account in new namespaces, so no pods there",
    ),
    absent("podgroup-protection-controller", "", Gated(&["GenericWorkload"]), "protection of PodGroups in use"),
    absent(
        "horizontal-pod-autoscaler-controller",
        "horizontalpodautoscaling",
        On,
        "scaling by HorizontalPodAutoscalers",
    ),
    absent("disruption-controller", "disruption", On, "counting of PodDisruptionBudgets, so no evictions under them"),
    absent(
        "certificatesigningrequest-signing-controller",
        "csrsigning",
        On,
        "signing of certificate requests, so no kubelet joins by token",
    ),
    absent(
        "certificatesigningrequest-approving-controller",
        "csrapproving",
        On,
        "approval of kubelets' certificate requests",
    ),
    absent("certificatesigningrequest-cleaner-controller", "csrcleaner", On, "deletion of old certificate requests"),
    absent(
        "podcertificaterequest-cleaner-controller",
        "",
        Gated(&["PodCertificateRequest"]),
        "deletion of old pod certificate requests",
    ),
    absent(
        "bootstrap-signer-controller",
        "bootstrapsigner",
        Off,
        "signature on cluster-info, so kubeadm join by token fails",
    ),
    absent("token-cleaner-controller", "tokencleaner", Off, "deletion of expired bootstrap tokens"),
    absent("node-ipam-controller", "nodeipam", On, "address ranges of nodes"),
    absent("service-lb-controller", "service", Removed, ""),
    absent("node-route-controller", "route", Removed, ""),
    absent("cloud-node-lifecycle-controller", "cloud-node-lifecycle", Removed, ""),
    absent("persistentvolume-binder-controller", "persistentvolume-binder", On, "binding of volumes to claims"),
    absent("persistentvolume-attach-detach-controller", "attachdetach", On, "attaching of volumes to nodes"),
    absent("persistentvolume-expander-controller", "persistentvolume-expander", On, "expansion of in-tree volumes"),
    absent(
        "persistentvolumeclaim-protection-controller",
        "pvc-protection",
        On,
        "finalizer removal from deleted volume claims",
    ),
    absent("persistentvolume-protection-controller", "pv-protection", On, "finalizer removal from deleted volumes"),
    absent(
        "volumeattributesclass-protection-controller",
        "",
        On,
        "finalizer removal from deleted VolumeAttributesClasses",
    ),
    absent(
        "clusterrole-aggregation-controller",
        "clusterrole-aggregation",
        On,
        "aggregated ClusterRoles (admin, edit, view)",
    ),
    absent(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        On,
        "kube-root-ca.crt in new namespaces, so no pods with tokens there",
    ),
    absent(
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "",
        Gated(&["ClusterTrustBundle"]),
        "trust bundle of the API server",
    ),
    absent("ephemeral-volume-controller", "ephemeral-volume", On, "claims of pods' ephemeral volumes"),
    absent(
        "storageversion-garbage-collector-controller",
        "storage-version-gc",
        Gated(&["APIServerIdentity", "StorageVersionAPI"]),
        "deletion of old StorageVersions",
    ),
    absent("resourceclaim-controller", "resource-claim-controller", On, "ResourceClaims from pods' templates"),
    absent(
        "resourcepoolstatusrequest-controller",
        "",
        Gated(&["DRAResourcePoolStatus"]),
        "answers to ResourcePoolStatusRequests",
    ),
    absent(
        "device-taint-eviction-controller",
        "",
        Gated(&["DRADeviceTaints"]),
        "eviction of pods from tainted devices",
    ),
    absent(
        "legacy-serviceaccount-token-cleaner-controller",
        "legacy-service-account-token-cleaner",
        On,
        "deletion of unused token Secrets",
    ),
    absent("validatingadmissionpolicy-status-controller", "", On, "type checks of ValidatingAdmissionPolicies"),
    absent("service-cidr-controller", "", On, "finalizer removal from deleted ServiceCIDRs"),
    absent(
        "storage-version-migrator-controller",
        "svm",
        Gated(&["StorageVersionMigrator"]),
        "storage version migrations",
    ),
    absent("selinux-warning-controller", "", Off, "warnings about SELinux labels of volumes"),
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use controller::Profile;

    use super::*;

    /// A controller that exists only here. One line in the list of registrations is enough for it.
    const NEW: Registration = Registration {
        name: "resourcequota-controller",
        alias: "resourcequota",
        service_account: "resourcequota-controller",
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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("manifests/base/rbac.yaml");
        let text = fs::read_to_string(path).unwrap();
        let prefix = "name: system:controller:";
        let mut bound: Vec<&str> = text.lines().filter_map(|it| it.trim().strip_prefix(prefix)).collect();
        let mut accounts: Vec<&str> = REGISTRATIONS.iter().map(|it| it.service_account).collect();
        bound.sort_unstable();
        accounts.sort_unstable();
        // Controllers of nodes share one.
        accounts.dedup();
        assert_eq!(bound, accounts);
    }
}
