//! What users do with kubectl, with our controllers at work.

use std::path::PathBuf;

use e2e::{
    Flavour, Identity, Kubectl, Manager, Options, eventually,
    fields::{condition, text},
    kubectl_or_skip,
};
use serde_json::{Value, json};

use crate::{
    cases::{Case, Kind},
    setup::{Nodes, REVISION, TIME_LIMIT, launch, path},
    support::{On, Server},
};

const NAMESPACE: &str = "default";
/// It ends `rollout status` of a rollout that does not end.
const WAIT: &str = "--timeout=60s";

/// kubectl, nodes and our controllers on one API server.
struct Session {
    kubectl: Kubectl,
    nodes: Nodes,
    _manager: Manager,
    server: Server,
}

impl Session {
    /// `None` after printing that something is missing.
    async fn start(on: On, scenario: &str) -> Option<Self> {
        let program = kubectl_or_skip(scenario)?;
        let server = on.server(scenario, Options::default()).await.unwrap()?;
        let kubectl = Kubectl::new(program, &server.kubeconfig(Identity::Admin).unwrap());
        let nodes = Nodes::start(&server).await.unwrap();
        let manager = launch(&server, Flavour::Ours).unwrap().started().await.unwrap();
        Some(Self { kubectl, nodes, _manager: manager, server })
    }

    /// Runs a command line and returns its output.
    async fn try_run(&self, line: &str) -> anyhow::Result<String> {
        let (kubectl, line) = (self.kubectl.clone(), line.to_owned());
        tokio::task::spawn_blocking(move || kubectl.run(&line)).await?
    }

    /// Runs a command line whose output contains these words.
    async fn run(&self, line: &str, words: &str) -> String {
        let output = self.try_run(line).await.unwrap();
        assert!(output.contains(words), "kubectl {line}: {output}");
        output
    }

    async fn assert_refused(&self, line: &str, words: &str) {
        let output = format!("{:#}", self.try_run(line).await.unwrap_err());
        assert!(output.contains(words), "kubectl {line}: {output}");
    }

    /// Waits with kubectl until the rollout is over.
    async fn rolled_out(&self) {
        self.run(&format!("rollout status deployment/web {WAIT}"), "successfully rolled out").await;
    }

    async fn get(&self, resource: &str, name: &str) -> Value {
        self.nodes.admin.get(&path(NAMESPACE, resource, name)).await.unwrap()
    }

    /// The images of all pods.
    async fn images(&self) -> Vec<String> {
        let pods = self.nodes.all(NAMESPACE, "pods").await.unwrap();
        pods.iter().map(|it| text(&it["spec"]["containers"][0]["image"]).to_owned()).collect()
    }

    /// Waits until all pods have this image.
    async fn until_images(&self, wanted: &[&str]) {
        eventually(&format!("pods {wanted:?}"), TIME_LIMIT, async || {
            let images = self.images().await;
            anyhow::ensure!(images == wanted, "{images:?}");
            Ok(Some(()))
        })
        .await
        .unwrap();
    }

    fn file(&self, name: &str, object: &Value) -> PathBuf {
        let file = self.server.folder().join(name);
        std::fs::write(&file, object.to_string()).unwrap();
        file
    }
}

/// The revisions that `rollout history` lists.
fn revisions(history: &str) -> Vec<&str> {
    let words = history.lines().filter_map(|line| line.split_whitespace().next());
    words.filter(|it| it.bytes().all(|it| it.is_ascii_digit())).collect()
}

pub(crate) async fn acceptance_api_121_rollouts_are_controlled_by_kubectl(on: On) {
    let Some(session) = Session::start(on, "kubectl controls a rollout").await else { return };
    session.run("create deployment web --image=example.com/main:1 --replicas=2", "created").await;
    session.rolled_out().await;
    session.until_images(&["example.com/main:1"; 2]).await;

    session.run("set image deployment/web main=example.com/main:2", "image updated").await;
    session.rolled_out().await;
    session.until_images(&["example.com/main:2"; 2]).await;
    let history = session.run("rollout history deployment/web", "REVISION").await;
    assert_eq!(revisions(&history), ["1", "2"], "{history}");
    session.run("rollout history deployment/web --revision=1", "example.com/main:1").await;

    session.run("rollout undo deployment/web", "rolled back").await;
    session.rolled_out().await;
    session.until_images(&["example.com/main:1"; 2]).await;
    let history = session.run("rollout history deployment/web", "REVISION").await;
    assert_eq!(revisions(&history), ["2", "3"], "{history}");
    session.run("rollout undo deployment/web --to-revision=2", "rolled back").await;
    session.rolled_out().await;
    session.until_images(&["example.com/main:2"; 2]).await;
    assert_eq!(session.get("deployments", "web").await["metadata"]["annotations"][REVISION], "4");

    session.run("rollout pause deployment/web", "paused").await;
    session.run("set image deployment/web main=example.com/main:3", "image updated").await;
    session.assert_refused("rollout undo deployment/web", "paused").await;
    session.assert_refused("rollout restart deployment/web", "paused").await;
    eventually("the pause to be observed", TIME_LIMIT, async || {
        let web = session.nodes.admin.get(&path(NAMESPACE, "deployments", "web")).await?;
        let is_observed = web["status"]["observedGeneration"] == web["metadata"]["generation"];
        anyhow::ensure!(condition(&web, "Progressing")["reason"] == "DeploymentPaused", "{}", web["status"]);
        Ok(is_observed.then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(session.nodes.all(NAMESPACE, "replicasets").await.unwrap().len(), 2, "no rollout begins");
    session.run("rollout resume deployment/web", "resumed").await;
    session.rolled_out().await;
    session.until_images(&["example.com/main:3"; 2]).await;

    let before = session.nodes.uids(NAMESPACE).await.unwrap();
    session.run("rollout restart deployment/web", "restarted").await;
    session.rolled_out().await;
    session.until_images(&["example.com/main:3"; 2]).await;
    assert!(session.nodes.uids(NAMESPACE).await.unwrap().is_disjoint(&before), "all pods are new");

    session.run("scale deployment/web --replicas=3", "scaled").await;
    session.rolled_out().await;
    session.until_images(&["example.com/main:3"; 3]).await;
    session.assert_refused("scale deployment/web --current-replicas=2 --replicas=1", "to be 2, was 3").await;
    check_autoscaling(&session, "deployments", "web", 3, 2).await;
    session.rolled_out().await;
    session.run("get deployment web --no-headers", "2/2").await;
    let selected = session.run("get pods -l app=web -o name", "pod/web-").await;
    assert_eq!(selected.lines().count(), 2, "{selected}");
}

pub(crate) async fn acceptance_rs_053_sets_are_scaled_by_kubectl(on: On) {
    let Some(session) = Session::start(on, "kubectl scales sets").await else { return };
    for kind in [Kind::ReplicaSet, Kind::ReplicationController] {
        let (resource, name) = (kind.resource(), format!("a-{}", kind.resource()));
        let case = Case::new(kind, "web", json!({ "replicas": 1 }));
        let mut object = case.object();
        object["metadata"]["name"] = json!(name);
        object["kind"] = json!(if kind == Kind::ReplicaSet { "ReplicaSet" } else { "ReplicationController" });
        object["apiVersion"] = json!(if kind == Kind::ReplicaSet { "apps/v1" } else { "v1" });
        let file = session.file(&format!("{name}.json"), &object);
        session.run(&format!("create -f {}", file.display()), "created").await;
        until_ready(&session, resource, &name, 1).await;
        session.run(&format!("scale {resource}/{name} --replicas=3"), "scaled").await;
        until_ready(&session, resource, &name, 3).await;
        check_autoscaling(&session, resource, &name, 3, 2).await;
        until_ready(&session, resource, &name, 2).await;
        session.run(&format!("delete {resource}/{name}"), "deleted").await;
        session.until_images(&[]).await;
    }
}

/// Waits until a set has exactly so many pods, and all are ready.
async fn until_ready(session: &Session, resource: &str, name: &str, count: i64) {
    eventually(&format!("{count} ready pods of {name}"), TIME_LIMIT, async || {
        let set = session.nodes.admin.get(&path(NAMESPACE, resource, name)).await?;
        let counts = ["replicas", "readyReplicas"].map(|it| set["status"][it].as_i64());
        anyhow::ensure!(counts == [Some(count); 2], "{}", set["status"]);
        Ok(Some(()))
    })
    .await
    .unwrap();
}

/// Creates an autoscaler with kubectl, and does with the scale subresource what the controller of autoscalers does: it
/// reads the replicas and the selector of the pods, and writes the replicas.
async fn check_autoscaling(session: &Session, resource: &str, name: &str, before: i64, after: i64) {
    session.run(&format!("autoscale {resource}/{name} --min=1 --max=5 --cpu=50%"), "autoscaled").await;
    let autoscaler = format!("/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/{name}");
    let target = session.nodes.admin.get(&autoscaler).await.unwrap()["spec"]["scaleTargetRef"].clone();
    let object = session.get(resource, name).await;
    assert_eq!((&target["kind"], &target["name"]), (&object["kind"], &object["metadata"]["name"]));
    let scale = format!("{}/scale", path(NAMESPACE, resource, name));
    let mut read = session.nodes.admin.get(&scale).await.unwrap();
    assert_eq!(read["spec"]["replicas"], before);
    assert_eq!((&read["status"]["replicas"], &read["status"]["selector"]), (&json!(before), &json!("app=web")));
    read["spec"]["replicas"] = json!(after);
    let written = session.nodes.admin.put(&scale, &read).await.unwrap();
    assert_eq!(written["spec"]["replicas"], after);
}
