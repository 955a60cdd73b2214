use serde_json::{Value, json};

/// One resource: where it is served, and the rules that differ between kinds. Built-in kinds are rows of a table,
/// custom ones are made from their definition.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) group: String,
    /// Served versions, preferred first.
    pub(crate) versions: Vec<String>,
    /// The version in which objects are stored.
    pub(crate) stored: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) custom: bool,
    pub(crate) rules: Rules,
}

/// What differs between kinds, beside their names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) status: StatusRule,
    /// Subresources that are served.
    pub(crate) subresources: &'static [&'static str],
    /// Subresources that a real server has: 501 rather than 404.
    pub(crate) unserved: &'static [&'static str],
    pub(crate) generation: Generation,
    /// A PUT without resourceVersion is refused.
    pub(crate) needs_version: bool,
    /// A PUT of what is not there creates it.
    pub(crate) put_creates: bool,
    /// A DELETE that removes answers with the object, not with a Status.
    pub(crate) delete_shows_object: bool,
    /// A DELETE without propagation policy means Orphan.
    pub(crate) orphans_by_default: bool,
    /// The name is one DNS label.
    pub(crate) label_name: bool,
    /// Field selectors beyond name and namespace: label, path, value when missing.
    pub(crate) fields: &'static [(&'static str, &'static str, &'static str)],
    /// Top-level fields given at creation when missing: path and JSON.
    pub(crate) defaults: &'static [(&'static str, &'static str)],
}

/// Who owns the field `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusRule {
    /// It is data like any other.
    Data,
    /// Only the subresource changes it; a creation sets it to this JSON (empty: none).
    Apart(&'static str),
    /// Only the subresource changes it, but a creation keeps it.
    KeptAtCreation,
}

/// What a change must touch to count as a new generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Not used: stays as it was created.
    Unused,
    Spec,
    SpecOrAnnotations,
    /// Everything but metadata, and but status where that is apart.
    Content,
}

impl Kind {
    /// `plural.group`, as messages name the resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `group/version` as stored.
    pub(crate) fn api_version(&self) -> String {
        join(&self.group, &self.stored)
    }

    /// Key of the table that holds the objects.
    pub(crate) fn table(&self) -> String {
        table_key(&self.group, &self.plural)
    }

    pub(crate) fn details(&self, name: &str) -> Value {
        let mut details = json!({ "name": name, "kind": self.plural });
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        details
    }

    pub(crate) fn is(&self, table: &str) -> bool {
        table.split_once('/').is_some_and(|(group, plural)| self.group == group && self.plural == plural)
    }

    /// Status has its own door.
    pub(crate) fn status_apart(&self) -> bool {
        self.rules.status != StatusRule::Data
    }

    pub(crate) fn serves(&self, version: &str) -> bool {
        self.versions.iter().any(|it| it == version)
    }

    /// What error messages call the Go package.
    pub(crate) fn go_package(&self) -> &str {
        match self.group.split('.').next() {
            _ if self.custom => "unstructured",
            None | Some("") => "core",
            Some(first) => first,
        }
    }

    /// Verbs in the order of discovery.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        all.into_iter().filter(|it| *it != "deletecollection" || !self.is(NAMESPACES)).collect()
    }
}

/// `group/version`, or the version alone for the core group.
pub(crate) fn join(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(crate) fn table_key(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

pub(crate) const NAMESPACES: &str = "/namespaces";
pub(crate) const PODS: &str = "/pods";
pub(crate) const SECRETS: &str = "/secrets";
pub(crate) const EVENTS: &str = "/events";
pub(crate) const LEASES: &str = "coordination.k8s.io/leases";
pub(crate) const CRDS: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub(crate) const DEPLOYMENTS: &str = "apps/deployments";

struct Row {
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    rules: Rules,
}

/// Plain data without status or generation: what a kind is unless its row says more.
pub(crate) const DATA: Rules = Rules {
    status: StatusRule::Data,
    subresources: &[],
    unserved: &[],
    generation: Generation::Unused,
    needs_version: false,
    put_creates: false,
    delete_shows_object: false,
    orphans_by_default: false,
    label_name: false,
    fields: &[],
    defaults: &[],
};

const CORE: Row =
    Row { group: "", plural: "", singular: "", kind: "", short: &[], categories: &[], namespaced: true, rules: DATA };

const WORKLOAD: Rules = Rules {
    subresources: &["status"],
    unserved: &["scale"],
    generation: Generation::Spec,
    defaults: &[("spec.replicas", "1")],
    ..DATA
};

/// Every built-in kind that is served.
static ROWS: &[Row] = &[
    Row { plural: "configmaps", singular: "configmap", kind: "ConfigMap", short: &["cm"], ..CORE },
    Row {
        plural: "events",
        singular: "event",
        kind: "Event",
        short: &["ev"],
        rules: Rules {
            put_creates: true,
            fields: &[
                ("involvedObject.kind", "involvedObject.kind", ""),
                ("involvedObject.namespace", "involvedObject.namespace", ""),
                ("involvedObject.name", "involvedObject.name", ""),
                ("involvedObject.uid", "involvedObject.uid", ""),
                ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
                ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
                ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
                ("reason", "reason", ""),
                ("reportingComponent", "reportingComponent", ""),
                ("source", "source.component", ""),
                ("type", "type", ""),
            ],
            ..DATA
        },
        ..CORE
    },
    Row {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short: &["ns"],
        namespaced: false,
        rules: Rules {
            status: StatusRule::Apart(r#"{"phase":"Active"}"#),
            subresources: &["status", "finalize"],
            delete_shows_object: true,
            label_name: true,
            fields: &[("status.phase", "status.phase", "")],
            ..DATA
        },
        ..CORE
    },
    Row {
        plural: "nodes",
        singular: "node",
        kind: "Node",
        short: &["no"],
        namespaced: false,
        rules: Rules {
            status: StatusRule::KeptAtCreation,
            subresources: &["status"],
            unserved: &["proxy"],
            fields: &[("spec.unschedulable", "spec.unschedulable", "false")],
            ..DATA
        },
        ..CORE
    },
    Row {
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        kind: "PersistentVolumeClaim",
        short: &["pvc"],
        rules: Rules {
            status: StatusRule::Apart(r#"{"phase":"Pending"}"#),
            subresources: &["status"],
            delete_shows_object: true,
            defaults: &[("spec.volumeMode", r#""Filesystem""#)],
            ..DATA
        },
        ..CORE
    },
    Row {
        plural: "pods",
        singular: "pod",
        kind: "Pod",
        short: &["po"],
        categories: &["all"],
        rules: Rules {
            status: StatusRule::Apart(r#"{"phase":"Pending"}"#),
            subresources: &["status"],
            unserved: &[
                "attach",
                "binding",
                "ephemeralcontainers",
                "eviction",
                "exec",
                "log",
                "portforward",
                "proxy",
                "resize",
            ],
            generation: Generation::Spec,
            delete_shows_object: true,
            fields: &[
                ("spec.nodeName", "spec.nodeName", ""),
                ("spec.restartPolicy", "spec.restartPolicy", ""),
                ("spec.schedulerName", "spec.schedulerName", ""),
                ("spec.serviceAccountName", "spec.serviceAccountName", ""),
                ("spec.hostNetwork", "spec.hostNetwork", "false"),
                ("status.phase", "status.phase", ""),
                ("status.podIP", "status.podIP", ""),
                ("status.nominatedNodeName", "status.nominatedNodeName", ""),
            ],
            defaults: &[
                ("spec.dnsPolicy", r#""ClusterFirst""#),
                ("spec.restartPolicy", r#""Always""#),
                ("spec.schedulerName", r#""default-scheduler""#),
                ("spec.terminationGracePeriodSeconds", "30"),
            ],
            ..DATA
        },
        ..CORE
    },
    Row {
        plural: "secrets",
        singular: "secret",
        kind: "Secret",
        rules: Rules { fields: &[("type", "type", "")], defaults: &[("type", r#""Opaque""#)], ..DATA },
        ..CORE
    },
    Row {
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        short: &["sa"],
        rules: Rules { unserved: &["token"], delete_shows_object: true, ..DATA },
        ..CORE
    },
    Row {
        plural: "services",
        singular: "service",
        kind: "Service",
        short: &["svc"],
        categories: &["all"],
        rules: Rules {
            status: StatusRule::Apart(r#"{"loadBalancer":{}}"#),
            unserved: &["proxy", "status"],
            put_creates: true,
            delete_shows_object: true,
            label_name: true,
            fields: &[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")],
            defaults: &[("spec.type", r#""ClusterIP""#), ("spec.sessionAffinity", r#""None""#)],
            ..DATA
        },
        ..CORE
    },
    Row {
        group: "apps",
        plural: "deployments",
        singular: "deployment",
        kind: "Deployment",
        short: &["deploy"],
        categories: &["all"],
        rules: Rules {
            status: StatusRule::Apart("{}"),
            generation: Generation::SpecOrAnnotations,
            defaults: &[
                ("spec.replicas", "1"),
                ("spec.revisionHistoryLimit", "10"),
                ("spec.progressDeadlineSeconds", "600"),
            ],
            ..WORKLOAD
        },
        ..CORE
    },
    Row {
        group: "apps",
        plural: "replicasets",
        singular: "replicaset",
        kind: "ReplicaSet",
        short: &["rs"],
        categories: &["all"],
        rules: Rules { status: StatusRule::Apart(r#"{"replicas":0}"#), ..WORKLOAD },
        ..CORE
    },
    Row {
        group: "batch",
        plural: "jobs",
        singular: "job",
        kind: "Job",
        categories: &["all"],
        rules: Rules {
            status: StatusRule::Apart("{}"),
            subresources: &["status"],
            generation: Generation::Spec,
            orphans_by_default: true,
            fields: &[("status.successful", "status.succeeded", "0")],
            ..DATA
        },
        ..CORE
    },
    Row {
        group: "apiextensions.k8s.io",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        kind: "CustomResourceDefinition",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        rules: Rules {
            status: StatusRule::Apart(""),
            subresources: &["status"],
            generation: Generation::Content,
            needs_version: true,
            ..DATA
        },
    },
    Row {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        rules: Rules { needs_version: true, put_creates: true, ..DATA },
        ..CORE
    },
];

/// All built-in kinds, in the order of discovery within their group.
pub(crate) fn builtin() -> impl Iterator<Item = Kind> {
    let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
    ROWS.iter().map(move |row| Kind {
        group: row.group.into(),
        versions: vec!["v1".into()],
        stored: "v1".into(),
        plural: row.plural.into(),
        singular: row.singular.into(),
        kind: row.kind.into(),
        list_kind: format!("{}List", row.kind),
        short: texts(row.short),
        categories: texts(row.categories),
        namespaced: row.namespaced,
        custom: false,
        rules: row.rules,
    })
}

/// Built-in groups in the order of discovery, highest priority first.
pub(crate) const GROUPS: &[&str] = &["", "apps", "batch", "apiextensions.k8s.io", "coordination.k8s.io"];
