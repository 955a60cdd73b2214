//! `/configz`: the flags in the form of kube-controller-manager's configuration object.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{
    controllers::Selection,
    flags::{self, FlagValues, Kind, show_duration},
};

/// A field and its flag.
type Field = (&'static str, &'static str);

/// The whole object. A field without a flag has upstream's value.
pub(super) fn configuration(flags: &FlagValues, controllers: &Selection) -> Value {
    let flags = FlagReader(flags);
    let mut object = json!({
        "kind": "KubeControllerManagerConfiguration",
        "apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1",
        "Generic": generic(&flags, controllers),
        "KubeCloudShared": cloud(&flags),
        "CSRSigningController": signing(&flags),
        "GarbageCollectorController": garbage_collector(&flags),
        "HPAController": autoscaler(&flags),
        "NodeIPAMController": node_ipam(&flags),
        "NodeLifecycleController": node_lifecycle(&flags),
        "PersistentVolumeBinderController": volumes(&flags),
        "DeprecatedController": {},
    });
    for (section, fields) in SECTIONS {
        object[*section] = flags.fields(fields);
    }
    object
}

/// Sections that contain only numbers, booleans, texts and durations.
const SECTIONS: &[(&str, &[Field])] = &[
    (
        "AttachDetachController",
        &[
            ("DisableAttachDetachReconcilerSync", "disable-attach-detach-reconcile-sync"),
            ("ReconcilerSyncLoopPeriod", "attach-detach-reconcile-sync-period"),
            ("disableForceDetachOnTimeout", "disable-force-detach-on-timeout"),
        ],
    ),
    ("DaemonSetController", &[("ConcurrentDaemonSetSyncs", "concurrent-daemonset-syncs")]),
    ("DeploymentController", &[("ConcurrentDeploymentSyncs", "concurrent-deployment-syncs")]),
    ("StatefulSetController", &[("ConcurrentStatefulSetSyncs", "concurrent-statefulset-syncs")]),
    (
        "EndpointController",
        &[
            ("ConcurrentEndpointSyncs", "concurrent-endpoint-syncs"),
            ("EndpointUpdatesBatchPeriod", "endpoint-updates-batch-period"),
        ],
    ),
    (
        "EndpointSliceController",
        &[
            ("ConcurrentServiceEndpointSyncs", "concurrent-service-endpoint-syncs"),
            ("MaxEndpointsPerSlice", "max-endpoints-per-slice"),
            ("EndpointUpdatesBatchPeriod", "endpointslice-updates-batch-period"),
        ],
    ),
    (
        "EndpointSliceMirroringController",
        &[
            ("MirroringConcurrentServiceEndpointSyncs", "mirroring-concurrent-service-endpoint-syncs"),
            ("MirroringMaxEndpointsPerSubset", "mirroring-max-endpoints-per-subset"),
            ("MirroringEndpointUpdatesBatchPeriod", "mirroring-endpointslice-updates-batch-period"),
        ],
    ),
    ("EphemeralVolumeController", &[("ConcurrentEphemeralVolumeSyncs", "concurrent-ephemeralvolume-syncs")]),
    ("JobController", &[("ConcurrentJobSyncs", "concurrent-job-syncs")]),
    ("CronJobController", &[("ConcurrentCronJobSyncs", "concurrent-cron-job-syncs")]),
    ("LegacySATokenCleaner", &[("CleanUpPeriod", "legacy-service-account-token-clean-up-period")]),
    (
        "NamespaceController",
        &[("NamespaceSyncPeriod", "namespace-sync-period"), ("ConcurrentNamespaceSyncs", "concurrent-namespace-syncs")],
    ),
    ("PodGCController", &[("TerminatedPodGCThreshold", "terminated-pod-gc-threshold")]),
    ("ReplicaSetController", &[("ConcurrentRSSyncs", "concurrent-replicaset-syncs")]),
    ("ReplicationController", &[("ConcurrentRCSyncs", "concurrent-rc-syncs")]),
    (
        "ResourceQuotaController",
        &[
            ("ResourceQuotaSyncPeriod", "resource-quota-sync-period"),
            ("ConcurrentResourceQuotaSyncs", "concurrent-resource-quota-syncs"),
        ],
    ),
    (
        "SAController",
        &[
            ("ServiceAccountKeyFile", "service-account-private-key-file"),
            ("ConcurrentSATokenSyncs", "concurrent-serviceaccount-token-syncs"),
            ("RootCAFile", "root-ca-file"),
        ],
    ),
    ("ServiceController", &[("ConcurrentServiceSyncs", "concurrent-service-syncs")]),
    ("TTLAfterFinishedController", &[("ConcurrentTTLSyncs", "concurrent-ttl-after-finished-syncs")]),
    (
        "ValidatingAdmissionPolicyStatusController",
        &[("ConcurrentPolicySyncs", "concurrent-validating-admission-policy-status-syncs")],
    ),
    ("DeviceTaintEvictionController", &[("ConcurrentSyncs", "concurrent-device-taint-eviction-syncs")]),
    ("ResourceClaimController", &[("ConcurrentSyncs", "concurrent-resourceclaim-syncs")]),
];

fn generic(flags: &FlagReader<'_>, controllers: &Selection) -> Value {
    let mut generic = flags.fields(&[
        ("MinResyncPeriod", "min-resync-period"),
        ("ControllerStartInterval", "controller-start-interval"),
        ("LeaderMigrationEnabled", "enable-leader-migration"),
    ]);
    generic["Port"] = json!(0);
    generic["Address"] = json!("0.0.0.0");
    generic["Controllers"] = json!(controllers.entries());
    generic["ClientConnection"] = flags.fields(&[
        ("kubeconfig", "kubeconfig"),
        ("contentType", "kube-api-content-type"),
        ("qps", "kube-api-qps"),
        ("burst", "kube-api-burst"),
    ]);
    generic["ClientConnection"]["acceptContentTypes"] = json!("");
    generic["LeaderElection"] = flags.fields(&[
        ("leaderElect", "leader-elect"),
        ("leaseDuration", "leader-elect-lease-duration"),
        ("renewDeadline", "leader-elect-renew-deadline"),
        ("retryPeriod", "leader-elect-retry-period"),
        ("resourceLock", "leader-elect-resource-lock"),
        ("resourceName", "leader-elect-resource-name"),
        ("resourceNamespace", "leader-elect-resource-namespace"),
    ]);
    generic["Debugging"] =
        flags.fields(&[("enableProfiling", "profiling"), ("enableContentionProfiling", "contention-profiling")]);
    generic["LeaderMigration"] = json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null });
    generic
}

fn cloud(flags: &FlagReader<'_>) -> Value {
    let mut cloud = flags.fields(&[
        ("ExternalCloudVolumePlugin", "external-cloud-volume-plugin"),
        ("UseServiceAccountCredentials", "use-service-account-credentials"),
        ("AllowUntaggedCloud", "allow-untagged-cloud"),
        ("RouteReconciliationPeriod", "route-reconciliation-period"),
        ("NodeMonitorPeriod", "node-monitor-period"),
        ("ClusterName", "cluster-name"),
        ("ClusterCIDR", "cluster-cidr"),
        ("AllocateNodeCIDRs", "allocate-node-cidrs"),
        ("CIDRAllocatorType", "cidr-allocator-type"),
        ("ConfigureCloudRoutes", "configure-cloud-routes"),
        ("NodeSyncPeriod", "node-sync-period"),
    ]);
    cloud["CloudProvider"] = flags.fields(&[("Name", "cloud-provider"), ("CloudConfigFile", "cloud-config")]);
    cloud
}

fn signing(flags: &FlagReader<'_>) -> Value {
    let mut signing = flags.fields(&[
        ("ClusterSigningCertFile", "cluster-signing-cert-file"),
        ("ClusterSigningKeyFile", "cluster-signing-key-file"),
        ("ClusterSigningDuration", "cluster-signing-duration"),
    ]);
    for (field, signer) in [
        ("KubeletServingSignerConfiguration", "kubelet-serving"),
        ("KubeletClientSignerConfiguration", "kubelet-client"),
        ("KubeAPIServerClientSignerConfiguration", "kube-apiserver-client"),
        ("LegacyUnknownSignerConfiguration", "legacy-unknown"),
    ] {
        let file = |what: &str| flags.value(&format!("cluster-signing-{signer}-{what}-file"));
        signing[field] = json!({ "CertFile": file("cert"), "KeyFile": file("key") });
    }
    signing
}

fn garbage_collector(flags: &FlagReader<'_>) -> Value {
    let mut collector = flags.fields(&[
        ("EnableGarbageCollector", "enable-garbage-collector"),
        ("ConcurrentGCSyncs", "concurrent-gc-syncs"),
    ]);
    collector["GCIgnoredResources"] =
        json!([{ "Group": "events.k8s.io", "Resource": "events" }, { "Group": "", "Resource": "events" }]);
    collector
}

fn autoscaler(flags: &FlagReader<'_>) -> Value {
    flags.fields(&[
        ("ConcurrentHorizontalPodAutoscalerSyncs", "concurrent-horizontal-pod-autoscaler-syncs"),
        ("HorizontalPodAutoscalerSyncPeriod", "horizontal-pod-autoscaler-sync-period"),
        ("HorizontalPodAutoscalerDownscaleStabilizationWindow", "horizontal-pod-autoscaler-downscale-stabilization"),
        ("HorizontalPodAutoscalerTolerance", "horizontal-pod-autoscaler-tolerance"),
        ("HorizontalPodAutoscalerCPUInitializationPeriod", "horizontal-pod-autoscaler-cpu-initialization-period"),
        ("HorizontalPodAutoscalerInitialReadinessDelay", "horizontal-pod-autoscaler-initial-readiness-delay"),
    ])
}

fn node_ipam(flags: &FlagReader<'_>) -> Value {
    let mut ipam = flags.fields(&[
        ("NodeCIDRMaskSize", "node-cidr-mask-size"),
        ("NodeCIDRMaskSizeIPv4", "node-cidr-mask-size-ipv4"),
        ("NodeCIDRMaskSizeIPv6", "node-cidr-mask-size-ipv6"),
    ]);
    let ranges = flags.0.text("service-cluster-ip-range");
    let (first, second) = ranges.split_once(',').unwrap_or((ranges, ""));
    ipam["ServiceCIDR"] = json!(first);
    ipam["SecondaryServiceCIDR"] = json!(second);
    ipam
}

fn node_lifecycle(flags: &FlagReader<'_>) -> Value {
    let mut lifecycle = flags.fields(&[
        ("NodeEvictionRate", "node-eviction-rate"),
        ("SecondaryNodeEvictionRate", "secondary-node-eviction-rate"),
        ("NodeStartupGracePeriod", "node-startup-grace-period"),
        ("NodeMonitorGracePeriod", "node-monitor-grace-period"),
        ("LargeClusterSizeThreshold", "large-cluster-size-threshold"),
        ("UnhealthyZoneThreshold", "unhealthy-zone-threshold"),
    ]);
    lifecycle["PodEvictionTimeout"] = json!(show_duration(Duration::ZERO));
    lifecycle
}

fn volumes(flags: &FlagReader<'_>) -> Value {
    let mut volumes = flags.fields(&[("PVClaimBinderSyncPeriod", "pvclaimbinder-sync-period")]);
    let mut configuration = flags.fields(&[
        ("EnableHostPathProvisioning", "enable-hostpath-provisioner"),
        ("EnableDynamicProvisioning", "enable-dynamic-provisioning"),
        ("FlexVolumePluginDir", "flex-volume-plugin-dir"),
    ]);
    let mut recycler = flags.fields(&[
        ("MinimumTimeoutNFS", "pv-recycler-minimum-timeout-nfs"),
        ("PodTemplateFilePathNFS", "pv-recycler-pod-template-filepath-nfs"),
        ("IncrementTimeoutNFS", "pv-recycler-increment-timeout-nfs"),
        ("PodTemplateFilePathHostPath", "pv-recycler-pod-template-filepath-hostpath"),
        ("MinimumTimeoutHostPath", "pv-recycler-minimum-timeout-hostpath"),
        ("IncrementTimeoutHostPath", "pv-recycler-timeout-increment-hostpath"),
    ]);
    recycler["MaximumRetry"] = json!(3);
    configuration["PersistentVolumeRecyclerConfiguration"] = recycler;
    volumes["VolumeConfiguration"] = configuration;
    volumes
}

struct FlagReader<'a>(&'a FlagValues);

impl FlagReader<'_> {
    fn fields(&self, fields: &[Field]) -> Value {
        let fields = fields.iter().map(|(field, flag)| ((*field).to_owned(), self.value(flag)));
        Value::Object(fields.collect::<Map<_, _>>())
    }

    /// The value in the JSON form of Go.
    fn value(&self, name: &str) -> Value {
        match flags::find(name).map(|it| it.kind) {
            Some(Kind::Bool) => json!(self.0.bool(name)),
            Some(Kind::Duration) => json!(show_duration(self.0.duration(name))),
            Some(Kind::Int | Kind::Int32) => json!(self.0.int(name)),
            Some(Kind::Float | Kind::Float32) => number(self.0.float(name)),
            Some(_) => json!(self.0.text(name)),
            None => Value::Null,
        }
    }
}

/// A whole number is written without a fraction.
fn number(value: f64) -> Value {
    let whole = value.fract() == 0.0 && value.abs() < 1e15;
    if whole { json!(value as i64) } else { json!(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::typed;

    fn shown(args: &[&str]) -> Value {
        let typed = typed(args);
        configuration(&typed, &Selection::new(&typed.list("controllers")).unwrap())
    }

    #[test]
    fn acceptance_shell_009_028_configz_shows_canonical_names_and_effective_values() {
        let shown = shown(&[
            "--controllers=*,-job",
            "--kube-api-qps=30.5",
            "--leader-elect-lease-duration=90s",
            "--service-cluster-ip-range=10.0.0.0/16,fd00::/108",
            "--concurrent-namespace-syncs=3",
        ]);
        assert_eq!(shown["kind"], "KubeControllerManagerConfiguration");
        assert_eq!(shown["apiVersion"], "kubecontrollermanager.config.k8s.io/v1alpha1");
        let generic = &shown["Generic"];
        assert_eq!(generic["Controllers"], json!(["*", "-job-controller"]));
        assert_eq!(
            (&generic["ClientConnection"]["qps"], &generic["ClientConnection"]["burst"]),
            (&json!(30.5), &json!(30))
        );
        assert_eq!(generic["LeaderElection"]["leaseDuration"], "1m30s");
        assert_eq!(shown["NamespaceController"]["ConcurrentNamespaceSyncs"], 3);
        assert_eq!(shown["NodeIPAMController"]["SecondaryServiceCIDR"], "fd00::/108");
        assert_eq!(shown["NodeLifecycleController"]["NodeEvictionRate"], 0.1);
    }

    #[test]
    fn every_field_has_its_flag() {
        fn nulls(path: &str, value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Null => found.push(path.to_owned()),
                Value::Object(fields) => {
                    fields.iter().for_each(|(name, it)| nulls(&format!("{path}/{name}"), it, found));
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        nulls("", &shown(&[]), &mut found);
        assert_eq!(found, ["/Generic/LeaderMigration/controllerLeaders"]);
    }
}
