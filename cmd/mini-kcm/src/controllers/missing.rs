//! What a cluster lacks without a controller, in words for operators who do not know the controller's name.

/// Completes the sentence "the cluster gets no …".
pub(super) fn missing_without(name: &str) -> Option<&'static str> {
    MISSING.iter().find(|it| it.0 == name).map(|it| it.1)
}

const MISSING: &[(&str, &str)] = &[
    ("serviceaccount-token-controller", "tokens in Secrets of service accounts"),
    ("endpoints-controller", "Endpoints of Services"),
    ("endpointslice-controller", "EndpointSlices, so traffic to Services goes nowhere"),
    ("endpointslice-mirroring-controller", "EndpointSlices of manually created Endpoints"),
    ("replicationcontroller-controller", "pods of ReplicationControllers"),
    ("pod-garbage-collector-controller", "deletion of pods whose node is gone or that ended long ago"),
    ("resourcequota-controller", "counting of ResourceQuotas"),
    ("serviceaccount-controller", "default service account in new namespaces, so no pods there"),
    ("daemonset-controller", "pods of DaemonSets"),
    ("podgroup-protection-controller", "protection of PodGroups in use"),
    ("deployment-controller", "rollouts of Deployments"),
    ("replicaset-controller", "pods of ReplicaSets"),
    ("horizontal-pod-autoscaler-controller", "scaling by HorizontalPodAutoscalers"),
    ("disruption-controller", "counting of PodDisruptionBudgets, so no evictions under them"),
    ("statefulset-controller", "pods of StatefulSets"),
    ("certificatesigningrequest-signing-controller", "signing of certificate requests, so no kubelet joins by token"),
    ("certificatesigningrequest-approving-controller", "approval of kubelets' certificate requests"),
    ("certificatesigningrequest-cleaner-controller", "deletion of old certificate requests"),
    ("podcertificaterequest-cleaner-controller", "deletion of old pod certificate requests"),
    ("ttl-controller", "TTL annotations on nodes"),
    ("bootstrap-signer-controller", "signature on cluster-info, so kubeadm join by token fails"),
    ("token-cleaner-controller", "deletion of expired bootstrap tokens"),
    ("node-ipam-controller", "address ranges of nodes"),
    ("node-lifecycle-controller", "detection of unhealthy nodes"),
    ("taint-eviction-controller", "eviction of pods from nodes that are down"),
    ("persistentvolume-binder-controller", "binding of volumes to claims"),
    ("persistentvolume-attach-detach-controller", "attaching of volumes to nodes"),
    ("persistentvolume-expander-controller", "expansion of in-tree volumes"),
    ("persistentvolumeclaim-protection-controller", "finalizer removal from deleted volume claims"),
    ("persistentvolume-protection-controller", "finalizer removal from deleted volumes"),
    ("volumeattributesclass-protection-controller", "finalizer removal from deleted VolumeAttributesClasses"),
    ("clusterrole-aggregation-controller", "aggregated ClusterRoles (admin, edit, view)"),
    ("root-ca-certificate-publisher-controller", "kube-root-ca.crt in new namespaces, so no pods with tokens there"),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", "trust bundle of the API server"),
    ("ephemeral-volume-controller", "claims of pods' ephemeral volumes"),
    ("storageversion-garbage-collector-controller", "deletion of old StorageVersions"),
    ("resourceclaim-controller", "ResourceClaims from pods' templates"),
    ("resourcepoolstatusrequest-controller", "answers to ResourcePoolStatusRequests"),
    ("device-taint-eviction-controller", "eviction of pods from tainted devices"),
    ("legacy-serviceaccount-token-cleaner-controller", "deletion of unused token Secrets"),
    ("validatingadmissionpolicy-status-controller", "type checks of ValidatingAdmissionPolicies"),
    ("service-cidr-controller", "finalizer removal from deleted ServiceCIDRs"),
    ("storage-version-migrator-controller", "storage version migrations"),
    ("selinux-warning-controller", "warnings about SELinux labels of volumes"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::{ByDefault, KNOWN};

    #[test]
    fn every_absent_controller_has_a_text() {
        let absent = KNOWN.iter().filter(|it| it.start.is_none() && it.default != ByDefault::Removed);
        let names: Vec<&str> = absent.map(|it| it.name).collect();
        let mut shown: Vec<&str> = MISSING.iter().map(|it| it.0).collect();
        shown.sort_unstable();
        let mut want = names.clone();
        want.sort_unstable();
        assert_eq!(shown, want);
    }
}
