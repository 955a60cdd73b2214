//! A real kubectl with the embedded API server: on loopback, in real time.
//!
//! There is no controller and no kubelet; a scenario writes what they would write directly to the cluster.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{path::PathBuf, process::Stdio, time::Duration};

use clock::Clock;
use e2e::{eventually, report};
use serde_json::{Value, json};
use test_cluster::{Served, TestCluster};
use tokio::process::{Child, Command};

/// Long enough for a slow machine.
const TIME_LIMIT: Duration = Duration::from_secs(20);

const SAMPLES: &str = include_str!("kubectl/samples.yaml");
const WEB: &str = include_str!("kubectl/web.yaml");
const CUSTOM: &str = include_str!("kubectl/custom.yaml");

/// One object of each kind, as `describe` and `get` name it.
const EACH: &[&str] = &[
    "configmap/cm",
    "secret/s",
    "serviceaccount/sa",
    "service/svc",
    "node/n1",
    "pod/p",
    "persistentvolumeclaim/pvc",
    "persistentvolume/pv",
    "replicationcontroller/rc",
    "limitrange/lr",
    "resourcequota/rq",
    "podtemplate/pt",
    "endpoints/ep",
    "deployment/web",
    "replicaset/rs",
    "statefulset/sts",
    "daemonset/ds",
    "controllerrevision/cr",
    "job/j",
    "cronjob/cj",
    "lease/l",
    "endpointslice/es",
    "poddisruptionbudget/pdb",
    "horizontalpodautoscaler/hpa",
    "priorityclass/pc",
    "storageclass/sc",
    "role/r",
    "rolebinding/rb",
    "clusterrole/r",
    "clusterrolebinding/rb",
    "event/e",
    "namespace/default",
    "customresourcedefinition/bars.z.io",
    "apiservice/v1.apps",
    "bar/b",
];

/// kubectl with a home folder of its own, and its cluster.
struct Kubectl {
    binary: PathBuf,
    folder: tempfile::TempDir,
    cluster: TestCluster,
    _served: Served,
}

impl Kubectl {
    /// `None`, after printing a message, if there is no kubectl.
    async fn find(scenario: &str) -> Option<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").unwrap_or_else(|| "/usr/local/kubebuilder/bin".into());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(PathBuf::from(assets)).chain(std::env::split_paths(&path));
        let Some(binary) = folders.map(|it| it.join("kubectl")).find(|it| it.is_file()) else {
            let required = std::env::var("MINI_KCM_E2E").is_ok_and(|it| it == "required");
            assert!(!required, "{scenario}: MINI_KCM_E2E=required, but there is no kubectl");
            report(&format!("NOT RUN: {scenario}: no kubectl in KUBEBUILDER_ASSETS or on PATH"));
            return None;
        };
        let cluster = TestCluster::new(Clock::system());
        let served = cluster.serve().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), served.kubeconfig()).unwrap();
        Some(Self { binary, folder, cluster, _served: served })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(words)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs to the end and returns the exit code and all output.
    async fn run(&self, words: &[&str]) -> (i32, String) {
        let output = self.command(words).output().await.unwrap();
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
        (output.status.code().unwrap_or(-1), text)
    }

    /// Runs a command line that must succeed; spaces separate words.
    async fn ok(&self, line: &str) -> String {
        self.ok_with(line, &[]).await
    }

    /// The same with more words, which may contain spaces.
    async fn ok_with(&self, line: &str, more: &[&str]) -> String {
        let words: Vec<&str> = line.split_whitespace().chain(more.iter().copied()).collect();
        let (code, text) = self.run(&words).await;
        assert_eq!(code, 0, "kubectl {}\n{text}", words.join(" "));
        text
    }

    async fn assert_fails(&self, line: &str, part: &str) {
        let (code, text) = self.run(&line.split_whitespace().collect::<Vec<_>>()).await;
        assert_eq!(code, 1, "kubectl {line}\n{text}");
        assert!(text.contains(part), "kubectl {line}\n{text}");
    }

    /// Starts a command that waits, and returns when its watch of the resource is open.
    async fn begin(&self, line: &str, resource: &str) -> Child {
        self.cluster.clear_requests();
        let child = self.command(&line.split_whitespace().collect::<Vec<_>>()).spawn().unwrap();
        let watches = || self.cluster.requests().iter().any(|it| it.verb == "watch" && it.resource == resource);
        eventually("a watch by kubectl", TIME_LIMIT, async || Ok(watches().then_some(()))).await.unwrap();
        child
    }

    /// Writes a file for command lines.
    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Completes the Deployment of the samples, as its controller would.
    fn roll_out(&self) {
        self.cluster.update("Deployment", "default", "web", |it| {
            let (generation, replicas) = (it["metadata"]["generation"].clone(), it["spec"]["replicas"].clone());
            it["status"] = json!({
                "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas,
                "conditions": [{ "type": "Available", "status": "True" }, { "type": "Progressing", "status": "True" }],
            });
        });
    }
}

/// Asserts that it exits with 0 soon.
async fn wait_for_success(child: Child) -> String {
    let output = tokio::time::timeout(TIME_LIMIT, child.wait_with_output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    assert!(output.status.success(), "{text}");
    text
}

macro_rules! kubectl_or_skip {
    ($scenario:literal) => {
        match Kubectl::find($scenario).await {
            Some(found) => found,
            None => return,
        }
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_api_119_apply_twice() {
    let kubectl = kubectl_or_skip!("kubectl: apply twice");
    kubectl.file("web.yaml", WEB);
    assert_eq!(kubectl.ok("apply -f web.yaml").await, "deployment.apps/web created\n");
    assert_eq!(kubectl.ok("apply -f web.yaml").await, "deployment.apps/web unchanged\n");
    kubectl.file("web.yaml", &WEB.replace("replicas: 2", "replicas: 3").replace("image: nginx", "image: other"));
    assert_eq!(kubectl.ok("apply -f web.yaml").await, "deployment.apps/web configured\n");
    let web = kubectl.cluster.get("Deployment", "default", "web").unwrap();
    assert_eq!(web["spec"]["replicas"], 3);
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "other");
    kubectl.file("bad.yaml", &WEB.replace("replicas: 2", "replicaz: 2"));
    let (code, text) = kubectl.run(&["apply", "-f", "bad.yaml", "--validate=false"]).await;
    assert_eq!(code, 0, "{text}");
    // A list and custom resources are applied in the same way.
    kubectl.file("samples.yaml", SAMPLES);
    kubectl.ok("apply -f samples.yaml").await;
    let again = kubectl.ok("apply -f samples.yaml").await;
    assert!(again.contains("pod/p unchanged") && again.contains("job.batch/j unchanged"), "{again}");
    kubectl.file("custom.yaml", CUSTOM);
    kubectl.ok("create -f custom.yaml").await;
    kubectl.file("bar.yaml", r#"{"apiVersion":"z.io/v1","kind":"Bar","metadata":{"name":"b"},"spec":{"size":1}}"#);
    assert_eq!(kubectl.ok("apply -f bar.yaml").await, "bar.z.io/b created\n");
    assert_eq!(kubectl.ok("apply -f bar.yaml").await, "bar.z.io/b unchanged\n");
    kubectl.file("bar.yaml", r#"{"apiVersion":"z.io/v1","kind":"Bar","metadata":{"name":"b"},"spec":{"size":2}}"#);
    assert_eq!(kubectl.ok("apply -f bar.yaml").await, "bar.z.io/b configured\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_api_120_waiting_ends() {
    let kubectl = kubectl_or_skip!("kubectl: wait");
    let pod = |name: &str| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
                "spec": { "containers": [{ "name": "c", "image": "i" }] } })
    };
    kubectl.cluster.create(pod("p"));
    let waits = kubectl.begin("wait --for=condition=Ready pod/p --timeout=30s", "pods").await;
    kubectl.cluster.update("pods", "default", "p", |it| {
        it["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    });
    assert_eq!(wait_for_success(waits).await, "pod/p condition met\n");
    let waits = kubectl.begin("wait --for=jsonpath={.status.phase}=Running pod/p --timeout=30s", "pods").await;
    kubectl.cluster.update("pods", "default", "p", |it| it["status"]["phase"] = json!("Running"));
    wait_for_success(waits).await;
    let waits = kubectl.begin("wait --for=delete pod/p --timeout=30s", "pods").await;
    kubectl.cluster.remove("pods", "default", "p");
    wait_for_success(waits).await;
    kubectl.ok("wait --for=delete pod/p --timeout=5s").await;
    kubectl.cluster.create(pod("q"));
    kubectl.assert_fails("wait --for=condition=Ready pod/q --timeout=1s", "timed out waiting for the condition").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_api_121_deleting_in_the_foreground() {
    let kubectl = kubectl_or_skip!("kubectl: delete --cascade=foreground");
    kubectl.file("web.yaml", WEB);
    kubectl.ok("apply -f web.yaml").await;
    let deletes = kubectl.begin("delete deployment web --cascade=foreground", "deployments").await;
    let web = kubectl.cluster.get("Deployment", "default", "web").unwrap();
    assert_eq!(web["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    kubectl.cluster.update("Deployment", "default", "web", |it| it["metadata"]["finalizers"] = json!([]));
    assert!(wait_for_success(deletes).await.contains("deleted"));

    kubectl.ok("apply -f web.yaml").await;
    kubectl.ok("delete deployment web --cascade=orphan --wait=false").await;
    let web = kubectl.cluster.get("Deployment", "default", "web").unwrap();
    assert_eq!(web["metadata"]["finalizers"], json!(["orphan"]));
    kubectl.cluster.remove("Deployment", "default", "web");
    kubectl.ok("apply -f web.yaml").await;
    kubectl.ok("delete -f web.yaml").await;
    assert!(kubectl.cluster.get("Deployment", "default", "web").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_api_121_each_kind_is_described_and_shown() {
    let kubectl = kubectl_or_skip!("kubectl: describe and get each kind");
    for (name, text) in [("samples.yaml", SAMPLES), ("web.yaml", WEB), ("custom.yaml", CUSTOM)] {
        kubectl.file(name, text);
        kubectl.ok(&format!("create -f {name}")).await;
    }
    kubectl.file("bar.yaml", r#"{"apiVersion":"z.io/v1","kind":"Bar","metadata":{"name":"b"},"spec":{"size":7}}"#);
    kubectl.ok("create -f bar.yaml").await;
    for object in EACH {
        let name = object.rsplit('/').next().unwrap();
        let described = kubectl.ok(&format!("describe {object}")).await;
        assert!(described.contains(name), "{described}");
        for form in ["wide", "name", "yaml", "json"] {
            let shown = kubectl.ok(&format!("get {object} -o {form}")).await;
            assert!(shown.contains(name), "{shown}");
        }
    }
    let shown = kubectl.ok("get bars").await;
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["NAME", "SIZE", "b", "7"]);
    let all = kubectl.ok("get all").await;
    for kind in ["pod/p", "service/svc", "deployment.apps/web", "job.batch/j", "bar.z.io/b"] {
        assert!(all.contains(kind), "{all}");
    }
    let unknown = kubectl.run(&["get", "nothings"]).await.1;
    assert!(unknown.contains("the server doesn't have a resource type \"nothings\""), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_api_121_rollouts_are_followed() {
    let kubectl = kubectl_or_skip!("kubectl: rollout");
    kubectl.file("web.yaml", WEB);
    kubectl.ok("apply -f web.yaml").await;
    let follows = kubectl.begin("rollout status deployment/web --timeout=30s", "deployments").await;
    kubectl.roll_out();
    assert!(wait_for_success(follows).await.contains("successfully rolled out"));

    // Two revisions, as the Deployment controller would create them.
    let web = kubectl.cluster.get("Deployment", "default", "web").unwrap();
    for (name, image, revision) in [("web-1", "old", "1"), ("web-2", "nginx", "2")] {
        let mut template = web["spec"]["template"].clone();
        template["metadata"]["labels"]["pod-template-hash"] = json!(revision);
        template["spec"]["containers"][0]["image"] = json!(image);
        kubectl.cluster.create(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": "default", "labels": { "app": "web" },
                "annotations": { "deployment.kubernetes.io/revision": revision },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true,
                                      "uid": web["metadata"]["uid"] }],
            },
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": template },
        }));
    }
    kubectl.cluster.update("Deployment", "default", "web", |it| {
        it["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("2");
    });
    let history = kubectl.ok("rollout history deployment/web").await;
    assert!(history.contains("1 ") && history.contains("2 "), "{history}");
    assert!(kubectl.ok("rollout undo deployment/web").await.contains("rolled back"));
    let image = |kubectl: &Kubectl| {
        let web = kubectl.cluster.get("Deployment", "default", "web").unwrap();
        web["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(image(&kubectl), "old");
    kubectl.ok("rollout restart deployment/web").await;
    let web = kubectl.cluster.get("Deployment", "default", "web").unwrap();
    assert!(web["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string());
    kubectl.ok("rollout pause deployment/web").await;
    kubectl.ok("rollout resume deployment/web").await;
    kubectl.ok("set image deployment/web c=third").await;
    assert_eq!(image(&kubectl), "third");
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_api_122_applying_on_the_server_is_refused() {
    let kubectl = kubectl_or_skip!("kubectl: apply --server-side");
    kubectl.file("web.yaml", WEB);
    kubectl.assert_fails("apply --server-side -f web.yaml", "Server-side apply not available on the server").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_changed_with_many_kubectl_commands() {
    let kubectl = kubectl_or_skip!("kubectl: changes");
    for (name, text) in [("samples.yaml", SAMPLES), ("web.yaml", WEB)] {
        kubectl.file(name, text);
        kubectl.ok(&format!("create -f {name}")).await;
    }
    kubectl.ok("replace -f web.yaml").await;
    let replicas =
        |kubectl: &Kubectl| kubectl.cluster.get("Deployment", "default", "web").unwrap()["spec"]["replicas"].clone();
    for (form, patch, wanted) in [
        ("strategic", r#"{"spec":{"replicas":4}}"#, 4),
        ("merge", r#"{"spec":{"replicas":5}}"#, 5),
        ("json", r#"[{"op":"replace","path":"/spec/replicas","value":6}]"#, 6),
    ] {
        kubectl.ok_with(&format!("patch deployment web --type {form} -p"), &[patch]).await;
        assert_eq!(replicas(&kubectl), wanted);
    }
    let patch = r#"{"status":{"replicas":1}}"#;
    kubectl.ok_with("patch deployment web --subresource=status --type merge -p", &[patch]).await;
    let pod = |kubectl: &Kubectl| kubectl.cluster.get("pods", "default", "p").unwrap()["metadata"].clone();
    kubectl.ok("label pod p tier=front").await;
    assert_eq!(pod(&kubectl)["labels"]["tier"], "front");
    kubectl.assert_fails("label pod p tier=back", "already has a value").await;
    kubectl.ok("label pod p tier-").await;
    assert_eq!(pod(&kubectl)["labels"]["tier"], Value::Null);
    kubectl.ok("annotate pod p note=here").await;
    assert_eq!(pod(&kubectl)["annotations"]["note"], "here");
    let node = |kubectl: &Kubectl| kubectl.cluster.get("nodes", "", "n1").unwrap()["spec"].clone();
    kubectl.ok("taint node n1 a=b:NoExecute").await;
    assert!(node(&kubectl)["taints"].as_array().unwrap().iter().any(|it| it["key"] == "a"));
    kubectl.ok("taint node n1 a-").await;
    kubectl.ok("cordon n1").await;
    assert_eq!(node(&kubectl)["unschedulable"], true);
    let shown = kubectl.ok("get node n1").await;
    assert!(shown.contains("SchedulingDisabled"), "{shown}");
    kubectl.ok("uncordon n1").await;
    assert_eq!(node(&kubectl)["unschedulable"], Value::Null);
    kubectl.ok("delete pod p --force --grace-period=0").await;
    assert!(kubectl.cluster.get("pods", "default", "p").is_none());
    kubectl.ok("delete configmap --all").await;
    assert!(kubectl.cluster.get("configmaps", "default", "cm").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_read_with_many_kubectl_commands() {
    let kubectl = kubectl_or_skip!("kubectl: reading");
    kubectl.file("samples.yaml", SAMPLES);
    kubectl.ok("create -f samples.yaml").await;
    let events = kubectl.ok("events").await;
    assert!(events.contains("Pod/p"), "{events}");
    let events = kubectl.ok("get events --field-selector involvedObject.name=p").await;
    assert!(events.contains("pod/p"), "{events}");
    let sorted = kubectl.ok("get namespaces --sort-by=.metadata.name -o name").await;
    assert!(sorted.starts_with("namespace/default\n"), "{sorted}");
    let selected = kubectl.ok("get pods -l a=b --field-selector spec.nodeName=n1 --no-headers").await;
    assert_eq!(selected.split_whitespace().take(3).collect::<Vec<_>>(), ["p", "0/1", "Pending"]);
    let path = kubectl.ok("get pod p -o jsonpath={.spec.nodeName}").await;
    assert_eq!(path, "n1");
    let columns = kubectl.ok("get pods -o custom-columns=A:.metadata.name,B:.status.phase").await;
    assert_eq!(columns.split_whitespace().collect::<Vec<_>>(), ["A", "B", "p", "Pending"]);
    let page = kubectl.ok("get namespaces --chunk-size=1 -o name").await;
    assert_eq!(page.lines().count(), 4);
    let resources = kubectl.ok("api-resources -o name").await;
    assert!(resources.lines().any(|it| it == "deployments.apps"), "{resources}");
    assert!(kubectl.ok("api-versions").await.lines().any(|it| it == "batch/v1"));
    assert!(kubectl.ok("version").await.contains("Server Version: v1.36"));
    kubectl.ok("cluster-info").await;
    let nowhere = "kubectl explain is not served by this test cluster: no field is described here";
    for line in ["explain pods.spec", "explain job", "explain job --output=plaintext-openapiv2"] {
        kubectl.assert_fails(line, nowhere).await;
    }
    kubectl.assert_fails("logs p -c c", "pods/log is not served by this test cluster: no container runs here").await;
    kubectl.assert_fails("describe pod none", "pods \"none\" not found").await;

    // A watch prints one row for each change, under one header.
    let child = kubectl.begin("get pods --watch --request-timeout=3s", "pods").await;
    kubectl.cluster.update("pods", "default", "p", |it| it["status"]["phase"] = json!("Running"));
    let output = tokio::time::timeout(TIME_LIMIT, child.wait_with_output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.matches("NAME").count(), 1, "{text}");
    assert!(text.contains("Pending") && text.contains("Running"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn creating_by_command() {
    let kubectl = kubectl_or_skip!("kubectl: create by command");
    for (line, resource, namespace, name) in [
        ("create namespace new", "namespaces", "", "new"),
        ("create configmap cm --from-literal=k=v", "configmaps", "default", "cm"),
        ("create secret generic s --from-literal=k=v", "secrets", "default", "s"),
        ("create serviceaccount sa", "serviceaccounts", "default", "sa"),
        ("create service clusterip svc --tcp=80:8080", "services", "default", "svc"),
        ("create deployment web --image=nginx --replicas=3 --port=80", "Deployment", "default", "web"),
        ("create job j --image=busybox -- date", "jobs", "default", "j"),
        ("create cronjob cj --image=busybox --schedule=@daily -- date", "cronjobs", "default", "cj"),
        ("create quota q --hard=pods=5,cpu=1500m", "resourcequotas", "default", "q"),
        (
            "create poddisruptionbudget pdb --selector=app=web --min-available=50%",
            "PodDisruptionBudget",
            "default",
            "pdb",
        ),
        ("create priorityclass pc --value=7", "priorityclasses", "", "pc"),
        ("create role r --verb=get,list --resource=pods", "Role", "default", "r"),
        ("create rolebinding rb --role=r --serviceaccount=default:sa", "RoleBinding", "default", "rb"),
        ("create clusterrole r --verb=get --resource=deployments.apps", "ClusterRole", "", "r"),
        ("create clusterrolebinding rb --clusterrole=r --user=u", "ClusterRoleBinding", "", "rb"),
        ("run p --image=i", "pods", "default", "p"),
        ("expose pod p --port=80 --name=exposed", "services", "default", "exposed"),
    ] {
        if line.starts_with("expose") {
            kubectl.ok("label pod p tier=front").await;
        }
        kubectl.ok(line).await;
        assert!(kubectl.cluster.get(resource, namespace, name).is_some(), "{line}");
    }
    let get = |resource: &str, name: &str| kubectl.cluster.get(resource, "default", name).unwrap();
    assert_eq!(get("configmaps", "cm")["data"], json!({ "k": "v" }));
    assert_eq!(get("secrets", "s")["data"], json!({ "k": "dg==" }));
    assert_eq!(get("services", "svc")["spec"]["ports"][0]["targetPort"], 8080);
    let web = get("Deployment", "web");
    assert_eq!((&web["spec"]["replicas"], &web["spec"]["selector"]["matchLabels"]["app"]), (&json!(3), &json!("web")));
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"], 80);
    assert_eq!(get("jobs", "j")["spec"]["template"]["spec"]["containers"][0]["command"], json!(["date"]));
    assert_eq!(get("cronjobs", "cj")["spec"]["schedule"], "@daily");
    assert_eq!(get("resourcequotas", "q")["spec"]["hard"], json!({ "pods": "5", "cpu": "1500m" }));
    assert_eq!(get("PodDisruptionBudget", "pdb")["spec"]["minAvailable"], "50%");
    assert_eq!(get("Role", "r")["rules"][0]["verbs"], json!(["get", "list"]));
    assert_eq!(kubectl.ok("auth can-i get pods").await.trim(), "yes");
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptance_api_121_scaling() {
    let kubectl = kubectl_or_skip!("kubectl: scale");
    for (name, text) in [("samples.yaml", SAMPLES), ("web.yaml", WEB)] {
        kubectl.file(name, text);
        kubectl.ok(&format!("create -f {name}")).await;
    }
    for (object, kind) in [
        ("deployment/web", "Deployment"),
        ("statefulset/sts", "StatefulSet"),
        ("rs/rs", "ReplicaSet"),
        ("rc/rc", "replicationcontrollers"),
    ] {
        kubectl.ok(&format!("scale {object} --replicas=5")).await;
        let name = object.rsplit('/').next().unwrap();
        assert_eq!(kubectl.cluster.get(kind, "default", name).unwrap()["spec"]["replicas"], 5);
    }
    kubectl.ok("scale deployment/web --current-replicas=5 --replicas=1").await;
    kubectl
        .assert_fails("scale deployment/web --current-replicas=5 --replicas=2", "Expected replicas to be 5, was 1")
        .await;
    kubectl.assert_fails("scale job/j --replicas=2", "could not find the requested resource").await;
    // What the controller of autoscalers reads.
    let scale = "-o jsonpath={.spec.replicas}/{.status.selector} --subresource=scale";
    assert_eq!(kubectl.ok(&format!("get deployment web {scale}")).await, "1/app=web");
    assert_eq!(kubectl.ok(&format!("get rc rc {scale}")).await, "5/a=rc");
    for (object, name) in [("deployment/web", "web"), ("rc/rc", "rc")] {
        kubectl.ok(&format!("autoscale {object} --min=2 --max=4 --cpu=50%")).await;
        let autoscaler = kubectl.cluster.get("HorizontalPodAutoscaler", "default", name).unwrap();
        assert_eq!(autoscaler["spec"]["scaleTargetRef"]["name"], name);
        assert_eq!((&autoscaler["spec"]["minReplicas"], &autoscaler["spec"]["maxReplicas"]), (&json!(2), &json!(4)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_a_node() {
    let kubectl = kubectl_or_skip!("kubectl: drain");
    for name in ["n1", "n2"] {
        kubectl.cluster.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }));
    }
    for (name, node) in [("a", "n1"), ("b", "n1"), ("c", "n2")] {
        kubectl.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running" },
        }));
    }
    let drains = kubectl.command(&["drain", "n1", "--force", "--timeout=30s"]).spawn().unwrap();
    let evicted = |name: &str| {
        let pod = kubectl.cluster.get("pods", "default", name);
        pod.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
    };
    let both = async || Ok((evicted("a") && evicted("b")).then_some(()));
    eventually("the eviction of both pods", TIME_LIMIT, both).await.unwrap();
    // What the kubelet would do.
    for name in ["a", "b"] {
        kubectl.cluster.delete("pods", "default", name);
    }
    assert!(wait_for_success(drains).await.contains("node/n1 drained"));
    assert_eq!(kubectl.cluster.get("nodes", "", "n1").unwrap()["spec"]["unschedulable"], true);
    assert!(!evicted("c"), "another node's pod stays");
}
