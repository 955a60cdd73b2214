//! The table of built-in kinds: one row each.

use std::sync::Arc;

use super::{DATA, Generation, Kind, NameRule, Rules, StatusRule, fields, table_key};

struct Row {
    group: &'static str,
    /// Preferred first; the first one is stored.
    versions: &'static [&'static str],
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    /// The group of the kind whose objects this one shows; its own group if it stores them itself.
    stored_group: &'static str,
    rules: Rules,
}

/// Built-in groups in the order of discovery, highest priority first.
pub(crate) const GROUPS: &[&str] = &[
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
];

/// The kinds of the table, in the order of discovery within their group.
pub(super) fn rows() -> impl Iterator<Item = Kind> {
    let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
    ROWS.iter().map(move |row| Kind {
        group: row.group.into(),
        table: table_key(row.stored_group, row.plural),
        versions: texts(row.versions),
        stored: row.versions.first().copied().unwrap_or_default().into(),
        plural: row.plural.into(),
        singular: row.singular.into(),
        kind: row.kind.into(),
        list_kind: format!("{}List", row.kind),
        short: texts(row.short),
        categories: texts(row.categories),
        namespaced: row.namespaced,
        custom: false,
        declared: Arc::default(),
        rules: row.rules,
    })
}

/// A namespaced kind with the default rules.
const fn row(group: &'static str, plural: &'static str, singular: &'static str, kind: &'static str) -> Row {
    Row {
        group,
        versions: &["v1"],
        plural,
        singular,
        kind,
        short: &[],
        categories: &[],
        namespaced: true,
        stored_group: group,
        rules: DATA,
    }
}

const ALL: &[&str] = &["all"];
const EXTENSION: &[&str] = &["api-extensions"];

const STATUS: Rules = Rules { subresources: &["status"], ..DATA };
const WORKLOAD: Rules = Rules { subresources: &["status", "scale"], generation: Generation::Spec, ..DATA };
const CREATE_ONLY: Rules = Rules { create_only: true, ..DATA };
const RBAC: Rules = Rules { put_creates: true, name: NameRule::Segment, ..DATA };

const NO_STATUS: StatusRule = StatusRule::Apart("{}");
const PENDING: StatusRule = StatusRule::Apart(r#"{"phase":"Pending"}"#);
const NO_REPLICAS: StatusRule = StatusRule::Apart(r#"{"replicas":0}"#);

const DAEMON_SET_STATUS: &str =
    r#"{"currentNumberScheduled":0,"desiredNumberScheduled":0,"numberMisscheduled":0,"numberReady":0}"#;
const BUDGET_STATUS: &str = r#"{"currentHealthy":0,"desiredHealthy":0,"disruptionsAllowed":0,"expectedPods":0}"#;

/// Every built-in kind that is served.
static ROWS: &[Row] = &[
    Row { rules: CREATE_ONLY, ..row("", "bindings", "binding", "Binding") },
    Row { short: &["cm"], ..row("", "configmaps", "configmap", "ConfigMap") },
    Row {
        short: &["ep"],
        rules: Rules { put_creates: true, ..DATA },
        ..row("", "endpoints", "endpoints", "Endpoints")
    },
    Row {
        short: &["ev"],
        rules: Rules { put_creates: true, fields: fields::EVENT, ..DATA },
        ..row("", "events", "event", "Event")
    },
    Row {
        short: &["limits"],
        rules: Rules { put_creates: true, ..DATA },
        ..row("", "limitranges", "limitrange", "LimitRange")
    },
    Row {
        short: &["ns"],
        namespaced: false,
        rules: Rules {
            status: StatusRule::Apart(r#"{"phase":"Active"}"#),
            subresources: &["status", "finalize"],
            delete_shows_object: true,
            name: NameRule::Label,
            fields: fields::NAMESPACE,
            ..DATA
        },
        ..row("", "namespaces", "namespace", "Namespace")
    },
    Row {
        short: &["no"],
        namespaced: false,
        rules: Rules { status: StatusRule::KeptAtCreation, unserved: &["proxy"], fields: fields::NODE, ..STATUS },
        ..row("", "nodes", "node", "Node")
    },
    Row {
        short: &["pvc"],
        rules: Rules { status: PENDING, delete_shows_object: true, ..STATUS },
        ..row("", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim")
    },
    Row {
        short: &["pv"],
        namespaced: false,
        rules: Rules { status: PENDING, delete_shows_object: true, ..STATUS },
        ..row("", "persistentvolumes", "persistentvolume", "PersistentVolume")
    },
    Row {
        short: &["po"],
        categories: ALL,
        rules: Rules {
            status: PENDING,
            subresources: &["binding", "eviction", "status"],
            unserved: &["attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy", "resize"],
            generation: Generation::Spec,
            delete_shows_object: true,
            fields: fields::POD,
            ..DATA
        },
        ..row("", "pods", "pod", "Pod")
    },
    Row {
        rules: Rules { generation: Generation::Template, delete_shows_object: true, ..DATA },
        ..row("", "podtemplates", "podtemplate", "PodTemplate")
    },
    Row {
        short: &["rc"],
        categories: ALL,
        rules: Rules {
            status: NO_REPLICAS,
            orphans_by_default: true,
            fields: fields::REPLICATION_CONTROLLER,
            ..WORKLOAD
        },
        ..row("", "replicationcontrollers", "replicationcontroller", "ReplicationController")
    },
    Row {
        short: &["quota"],
        rules: Rules { status: NO_STATUS, delete_shows_object: true, ..STATUS },
        ..row("", "resourcequotas", "resourcequota", "ResourceQuota")
    },
    Row { rules: Rules { fields: fields::SECRET, ..DATA }, ..row("", "secrets", "secret", "Secret") },
    Row {
        short: &["sa"],
        rules: Rules { subresources: &["token"], delete_shows_object: true, ..DATA },
        ..row("", "serviceaccounts", "serviceaccount", "ServiceAccount")
    },
    Row {
        short: &["svc"],
        categories: ALL,
        rules: Rules {
            status: StatusRule::Apart(r#"{"loadBalancer":{}}"#),
            unserved: &["proxy"],
            put_creates: true,
            delete_shows_object: true,
            name: NameRule::Label,
            fields: fields::SERVICE,
            ..STATUS
        },
        ..row("", "services", "service", "Service")
    },
    Row {
        categories: EXTENSION,
        namespaced: false,
        rules: Rules { status: NO_STATUS, needs_version: true, ..STATUS },
        ..row("apiregistration.k8s.io", "apiservices", "apiservice", "APIService")
    },
    Row { ..row("apps", "controllerrevisions", "controllerrevision", "ControllerRevision") },
    Row {
        short: &["ds"],
        categories: ALL,
        rules: Rules { status: StatusRule::Apart(DAEMON_SET_STATUS), generation: Generation::Spec, ..STATUS },
        ..row("apps", "daemonsets", "daemonset", "DaemonSet")
    },
    Row {
        short: &["deploy"],
        categories: ALL,
        rules: Rules { status: NO_STATUS, generation: Generation::SpecOrAnnotations, ..WORKLOAD },
        ..row("apps", "deployments", "deployment", "Deployment")
    },
    Row {
        short: &["rs"],
        categories: ALL,
        rules: Rules { status: NO_REPLICAS, ..WORKLOAD },
        ..row("apps", "replicasets", "replicaset", "ReplicaSet")
    },
    Row {
        short: &["sts"],
        categories: ALL,
        rules: Rules {
            status: StatusRule::Apart(r#"{"availableReplicas":0,"replicas":0}"#),
            name: NameRule::Label,
            ..WORKLOAD
        },
        ..row("apps", "statefulsets", "statefulset", "StatefulSet")
    },
    Row {
        short: &["ev"],
        stored_group: "",
        rules: Rules { put_creates: true, fields: fields::EVENT_VIEW, ..DATA },
        ..row("events.k8s.io", "events", "event", "Event")
    },
    Row {
        namespaced: false,
        rules: CREATE_ONLY,
        ..row("authentication.k8s.io", "tokenreviews", "tokenreview", "TokenReview")
    },
    Row {
        rules: CREATE_ONLY,
        ..row(
            "authorization.k8s.io",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
        )
    },
    Row {
        namespaced: false,
        rules: CREATE_ONLY,
        ..row("authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview")
    },
    Row {
        namespaced: false,
        rules: CREATE_ONLY,
        ..row("authorization.k8s.io", "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview")
    },
    Row {
        namespaced: false,
        rules: CREATE_ONLY,
        ..row("authorization.k8s.io", "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview")
    },
    Row {
        versions: &["v2", "v1"],
        short: &["hpa"],
        categories: ALL,
        rules: Rules { status: StatusRule::Apart(r#"{"currentMetrics":null,"desiredReplicas":0}"#), ..STATUS },
        ..row("autoscaling", "horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler")
    },
    Row {
        short: &["cj"],
        categories: ALL,
        rules: Rules { status: NO_STATUS, generation: Generation::Spec, name: NameRule::CronJob, ..STATUS },
        ..row("batch", "cronjobs", "cronjob", "CronJob")
    },
    Row {
        categories: ALL,
        rules: Rules {
            status: NO_STATUS,
            generation: Generation::Spec,
            orphans_by_default: true,
            fields: fields::JOB,
            ..STATUS
        },
        ..row("batch", "jobs", "job", "Job")
    },
    Row {
        short: &["pdb"],
        rules: Rules {
            status: StatusRule::Apart(BUDGET_STATUS),
            generation: Generation::Spec,
            needs_version: true,
            ..STATUS
        },
        ..row("policy", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget")
    },
    Row {
        namespaced: false,
        rules: RBAC,
        ..row("rbac.authorization.k8s.io", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding")
    },
    Row {
        namespaced: false,
        rules: RBAC,
        ..row("rbac.authorization.k8s.io", "clusterroles", "clusterrole", "ClusterRole")
    },
    Row { rules: RBAC, ..row("rbac.authorization.k8s.io", "rolebindings", "rolebinding", "RoleBinding") },
    Row { rules: RBAC, ..row("rbac.authorization.k8s.io", "roles", "role", "Role") },
    Row {
        short: &["sc"],
        namespaced: false,
        rules: Rules { delete_shows_object: true, ..DATA },
        ..row("storage.k8s.io", "storageclasses", "storageclass", "StorageClass")
    },
    Row {
        short: &["crd", "crds"],
        categories: EXTENSION,
        namespaced: false,
        rules: Rules { status: StatusRule::Apart(""), generation: Generation::Content, needs_version: true, ..STATUS },
        ..row(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "customresourcedefinition",
            "CustomResourceDefinition",
        )
    },
    Row {
        short: &["pc"],
        namespaced: false,
        rules: Rules { generation: Generation::Once, ..DATA },
        ..row("scheduling.k8s.io", "priorityclasses", "priorityclass", "PriorityClass")
    },
    Row {
        rules: Rules { needs_version: true, put_creates: true, ..DATA },
        ..row("coordination.k8s.io", "leases", "lease", "Lease")
    },
    Row {
        rules: Rules { generation: Generation::ContentOrLabels, ..DATA },
        ..row("discovery.k8s.io", "endpointslices", "endpointslice", "EndpointSlice")
    },
];
