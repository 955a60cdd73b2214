use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The group of the graphs' own custom resources.
const GROUP: &str = "graphs.mini-kcm.dev";

/// A kind of objects in graphs.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group and version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    plural: &'static str,
    /// Namespaced.
    pub namespaced: bool,
}

const fn namespaced(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: true }
}

const fn cluster_scoped(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural, namespaced: false }
}

impl Kind {
    /// The kind of events about objects.
    pub const EVENT: &str = "Event";

    /// All kinds. Events are among them, because they may also be objects of a graph.
    pub const ALL: &[Self] = &[
        namespaced("v1", "ConfigMap", "configmaps"),
        namespaced("v1", "Secret", "secrets"),
        namespaced("v1", "Service", "services"),
        namespaced("v1", "ServiceAccount", "serviceaccounts"),
        namespaced("v1", "Pod", "pods"),
        namespaced("v1", "ReplicationController", "replicationcontrollers"),
        namespaced("v1", Self::EVENT, "events"),
        namespaced("apps/v1", "Deployment", "deployments"),
        namespaced("apps/v1", "ReplicaSet", "replicasets"),
        namespaced("batch/v1", "Job", "jobs"),
        namespaced("batch/v1", "CronJob", "cronjobs"),
        namespaced("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        cluster_scoped("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles"),
        cluster_scoped("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
        namespaced("graphs.mini-kcm.dev/v1", "Tree", "trees"),
        cluster_scoped("graphs.mini-kcm.dev/v1", "Forest", "forests"),
    ];

    /// The kind of an object.
    #[must_use]
    pub fn of(object: &Value) -> Option<&'static Self> {
        Self::ALL.iter().find(|it| object["apiVersion"] == it.api_version && object["kind"] == it.kind)
    }

    /// The path of the objects of a namespace. For a cluster-scoped kind the namespace is ignored.
    #[must_use]
    pub fn collection(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let within = if self.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        format!("{root}/{}{within}/{}", self.api_version, self.plural)
    }

    pub(super) fn resource(&self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        let kind = GroupVersionKind::gvk(group, version, self.kind);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }
}

/// The custom resources that must be defined before: Trees, with two versions of which `v1` is preferred, and
/// cluster-scoped Forests.
#[must_use]
pub fn definitions() -> [Value; 2] {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = |name: &str| json!({ "name": name, "served": true, "storage": name == "v1", "schema": schema });
    let define = |kind: &str, scope: &str, versions: Value| {
        let singular = kind.to_lowercase();
        json!({
            "metadata": { "name": format!("{singular}s.{GROUP}") },
            "spec": {
                "group": GROUP,
                "scope": scope,
                "names": { "plural": format!("{singular}s"), "singular": singular, "kind": kind },
                "versions": versions,
            },
        })
    };
    [
        define("Tree", "Namespaced", json!([version("v1"), version("v1beta1")])),
        define("Forest", "Cluster", json!([version("v1")])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_has_its_path() {
        let paths = ["ConfigMap", "Tree", "ClusterRole"].map(|kind| {
            let kind = Kind::ALL.iter().find(|it| it.kind == kind).unwrap();
            kind.collection("n")
        });
        let want = [
            "/api/v1/namespaces/n/configmaps",
            "/apis/graphs.mini-kcm.dev/v1/namespaces/n/trees",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ];
        assert_eq!(paths, want);
        assert_eq!(Kind::of(&json!({ "apiVersion": "v2", "kind": "ConfigMap" })), None);
    }
}
