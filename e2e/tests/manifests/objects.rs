//! Every object of every kustomization passes a strict dry run.

use std::path::PathBuf;

use e2e::{Kubectl, Rest, eventually, report};
use serde_json::{Value, json};

use super::{TIME_LIMIT, cluster, document, find, kustomize, manifest};

const KUSTOMIZATIONS: [&str; 5] = ["base", "k3s", "job-managed-by", "components/prometheus-operator", "dashboards"];

/// The definitions of the Prometheus operator: those in the folder `PROMETHEUS_OPERATOR_CRDS`, which is
/// `example/prometheus-operator-crd` of its repository, or definitions of the fields that our manifests use.
async fn create_definitions(kubectl: &Kubectl, admin: &Rest) {
    let files: Vec<PathBuf> = match std::env::var_os("PROMETHEUS_OPERATOR_CRDS") {
        Some(folder) => ["servicemonitors", "prometheusrules"]
            .map(|it| PathBuf::from(&folder).join(format!("monitoring.coreos.com_{it}.yaml")))
            .to_vec(),
        None => {
            report("with definitions of our own: PROMETHEUS_OPERATOR_CRDS does not name those of the operator");
            vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/manifests/operator.crds.yaml"))]
        }
    };
    for file in files {
        kubectl.run(&format!("apply --server-side -f {}", file.display())).unwrap();
    }
    for plural in ["servicemonitors", "prometheusrules"] {
        let path = format!("/apis/monitoring.coreos.com/v1/{plural}");
        eventually(plural, TIME_LIMIT, async || admin.items(&path).await.map(Some)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_object_passes_a_strict_dry_run() {
    let Some((plane, kubectl)) = cluster("dry run of all manifests").await else { return };
    let admin = plane.admin().await.unwrap();
    create_definitions(&kubectl, &admin).await;
    for folder in KUSTOMIZATIONS {
        let path = manifest(folder).display().to_string();
        let said = kubectl.run(&format!("apply -k {path} --dry-run=server --validate=strict")).unwrap();
        let accepted = said.lines().filter(|it| it.ends_with("(server dry run)")).count();
        assert_eq!(accepted, kustomize(&kubectl, folder).len(), "{folder}: {said}");
        // An object that names no namespace would go to the default one.
        for object in kustomize(&kubectl, folder) {
            let kind = object["kind"].as_str().unwrap();
            let is_cluster_wide = kind.starts_with("ClusterRole");
            assert!(is_cluster_wide || object["metadata"]["namespace"] == "kube-system", "{folder}: {object}");
        }
    }
    for file in ["static-pod/mini-kcm.yaml", "job-managed-by/example-job.yaml"] {
        let path = manifest(file).display().to_string();
        kubectl.run(&format!("create -f {path} --dry-run=server --validate=strict")).unwrap();
    }
    // The schema is strict: a wrong field is refused.
    let wrong = plane.folder().join("wrong.yaml");
    let text = std::fs::read_to_string(manifest("components/prometheus-operator/servicemonitor.yaml")).unwrap();
    std::fs::write(&wrong, text.replace("jobLabel", "labelOfJob")).unwrap();
    let refused = kubectl.run(&format!("apply -f {} --dry-run=server --validate=strict", wrong.display()));
    assert!(format!("{:#}", refused.unwrap_err()).contains("labelOfJob"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_the_deployment_pass_the_restricted_level() {
    let Some((plane, kubectl)) = cluster("pod security").await else { return };
    let admin = plane.admin().await.unwrap();
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    admin.create("/api/v1/namespaces", &json!({ "metadata": { "name": "strict", "labels": labels } })).await.unwrap();
    let template = find(&kustomize(&kubectl, "base"), "Deployment")["spec"]["template"].clone();
    let pod = |mut spec: Value| {
        // These priorities are for kube-system only.
        for field in ["priorityClassName", "priority"] {
            spec.as_object_mut().unwrap().remove(field);
        }
        json!({ "metadata": { "name": "a" }, "spec": spec })
    };
    let path = "/api/v1/namespaces/strict/pods?dryRun=All";
    admin.create(path, &pod(template["spec"].clone())).await.unwrap();
    let refused = admin.create(path, &pod(document("static-pod/mini-kcm.yaml")["spec"].clone())).await;
    // The level is enforced.
    assert!(format!("{:#}", refused.unwrap_err()).contains("violates PodSecurity"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_and_names_fit_together() {
    let Some((_plane, kubectl)) = cluster("selectors").await else { return };
    for (folder, name) in [("base", "mini-kcm"), ("k3s", "mini-kcm"), ("job-managed-by", "mini-kcm-jobs")] {
        let objects = kustomize(&kubectl, folder);
        let deployment = &find(&objects, "Deployment")["spec"];
        let labels = &deployment["template"]["metadata"]["labels"];
        let selects = |selector: &Value| selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value);
        assert!(selects(&deployment["selector"]["matchLabels"]), "{folder}");
        assert!(selects(&find(&objects, "Service")["spec"]["selector"]), "{folder}");
        for kind in ["PodDisruptionBudget", "NetworkPolicy"] {
            let spec = &find(&objects, kind)["spec"];
            let selector = if kind == "NetworkPolicy" { &spec["podSelector"] } else { &spec["selector"] };
            assert!(selects(&selector["matchLabels"]), "{folder} {kind}");
        }
        // What kube-prometheus selects.
        let service = find(&objects, "Service");
        assert_eq!(service["metadata"]["labels"]["app.kubernetes.io/name"], "kube-controller-manager");
        assert_eq!(service["spec"]["ports"][0]["name"], "https-metrics");
        let pod = &deployment["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], find(&objects, "ServiceAccount")["metadata"]["name"]);
        // Two of these kustomizations in one cluster select other pods.
        assert_eq!(labels["app.kubernetes.io/instance"], name);
        // The rights to the Lease are for one name.
        let role = find(&objects, "Role");
        let names: Vec<&Value> = role["rules"].as_array().unwrap().iter().map(|it| &it["resourceNames"]).collect();
        assert!(names.contains(&&json!([name])), "{role}");
        let lease = json!(format!("--leader-elect-resource-name={name}"));
        let arguments = pod["containers"][0]["args"].as_array().unwrap();
        assert!(arguments.contains(&lease), "{folder} {arguments:?}");
    }
    // Applied in one cluster, neither changes an object of the other.
    let id = |it: &Value| (it["kind"].clone().to_string(), it["metadata"]["name"].to_string());
    let of_base: Vec<_> = kustomize(&kubectl, "base").iter().map(id).collect();
    // One chosen Job needs the role of Jobs and no other.
    let objects = kustomize(&kubectl, "job-managed-by");
    assert!(!objects.iter().any(|it| of_base.contains(&id(it))), "{of_base:?}");
    let bound: Vec<&str> = objects.iter().filter_map(|it| it["roleRef"]["name"].as_str()).collect();
    let of_controllers: Vec<&&str> = bound.iter().filter(|it| it.starts_with("system:controller:")).collect();
    assert_eq!(of_controllers, [&"system:controller:job-controller"]);
    assert!(!bound.iter().any(|it| it.contains("own-accounts") || it.contains("node-leases")), "{bound:?}");
    let job = document("job-managed-by/example-job.yaml");
    let value = job["spec"]["managedBy"].as_str().unwrap();
    let arguments = super::arguments(&kubectl, "job-managed-by");
    assert!(arguments.contains(&format!("--job-managed-by={value}")), "{arguments:?}");
}
