//! One API server with nodes that run every pod.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use e2e::{
    Flavour, Launch, NodeFleet, Rest, Site, eventually,
    fields::{condition, is_deleting, owner, text, uid},
    namespaces,
    workloads::{self, ObservedObjects},
};
use http::Method;
use serde_json::{Value, json};

use crate::cases::{Case, Kind, Step, Want};

pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(120);
/// The number of the rollout to which a ReplicaSet belongs.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";

/// The new ReplicaSet of a Deployment was refused. The upstream manager writes nothing else into the status then.
pub(crate) const CREATE_ERROR: &str = "ReplicaSetCreateError";

/// All controllers that Deployments need. The garbage collector deletes or orphans what belongs to a deleted object.
const CONTROLLERS: &str =
    "deployment-controller,replicaset-controller,replicationcontroller-controller,garbage-collector-controller";

/// A manager with upstream's own roles.
pub(crate) fn launch(site: &Site, flavour: Flavour) -> anyhow::Result<Launch> {
    let launch = Launch::as_kubeadm(site, flavour, CONTROLLERS, "deployments")?;
    Ok(["deployment", "replicaset", "rc"]
        .iter()
        .fold(launch, |it, name| it.flag(&format!("concurrent-{name}-syncs"), "8")))
}

/// The path of an object, of a collection if `name` is empty, or of a collection in all namespaces.
pub(crate) fn path(namespace: &str, resource: &str, name: &str) -> String {
    let group = if matches!(resource, "deployments" | "replicasets") { "/apis/apps/v1" } else { "/api/v1" };
    let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let name = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("{group}{within}/{resource}{name}")
}

/// Nodes that run every pod.
pub(crate) struct Nodes {
    pub(crate) admin: Rest,
    pub(crate) observed: Arc<ObservedObjects>,
    _fleet: NodeFleet,
}

impl Nodes {
    pub(crate) async fn start(site: &Site) -> anyhow::Result<Self> {
        let fleet = NodeFleet::start_equal(site, 4, TIME_LIMIT).await?;
        let kinds = [Kind::Deployment, Kind::ReplicaSet, Kind::ReplicationController].map(Kind::observed);
        let kinds = [&kinds[..], &[workloads::Kind::Pod]].concat();
        let observed = ObservedObjects::start_of(&kinds, fleet.admin(), &fleet.spawner());
        Ok(Self { admin: fleet.admin().clone(), observed, _fleet: fleet })
    }

    pub(crate) async fn all(&self, namespace: &str, resource: &str) -> anyhow::Result<Vec<Value>> {
        self.admin.items(&path(namespace, resource, "")).await
    }

    pub(crate) async fn uids(&self, namespace: &str) -> anyhow::Result<BTreeSet<String>> {
        Ok(self.all(namespace, "pods").await?.iter().map(uid).collect())
    }

    /// Waits until the object of the case has this state. What was observed may be outdated, so that it is read when it
    /// seems to be right.
    pub(crate) async fn wait_for_state(&self, case: &Case, want: Want) -> anyhow::Result<()> {
        let observed = self.observed.in_namespace(case.name);
        let mut changes = observed.subscribe();
        let has_state = async {
            loop {
                changes.borrow_and_update();
                let found = observed.find(case.kind.observed(), case.name).unwrap_or_default();
                let pods = observed.existing_count(workloads::Kind::Pod);
                if check(case, want, &found, pods).is_ok() {
                    let found = self.admin.get(&case.path()).await?;
                    if check(case, want, &found, self.all(case.name, "pods").await?.len()).is_ok() {
                        return anyhow::Ok(());
                    }
                }
                changes.changed().await?;
            }
        };
        if let Ok(result) = tokio::time::timeout(TIME_LIMIT, has_state).await {
            return result;
        }
        let found = self.admin.get(&case.path()).await?;
        check(case, want, &found, self.all(case.name, "pods").await?.len())?;
        anyhow::bail!("it has its state, but the last change was not observed")
    }

    /// Plays a case in a namespace of its own.
    pub(crate) async fn play(&self, case: &Case) -> anyhow::Result<()> {
        namespaces::create(&self.admin, case.name).await?;
        for (number, step) in case.steps.iter().enumerate() {
            self.step(case, step).await.with_context(|| format!("{}: step {}: {step:?}", case.name, number + 1))?;
        }
        Ok(())
    }

    async fn step(&self, case: &Case, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Create => drop(self.admin.create(&case.collection(), &case.object()).await?),
            Step::Wait(want) => self.wait_for_state(case, *want).await?,
            Step::Edit(patch) => drop(self.admin.merge(&case.path(), patch).await?),
            Step::EditMeanwhile(first, second) => {
                let before = self.uids(case.name).await?;
                self.admin.merge(&case.path(), first).await?;
                eventually("a new pod", TIME_LIMIT, async || {
                    Ok((!self.uids(case.name).await?.is_subset(&before)).then_some(()))
                })
                .await?;
                self.admin.merge(&case.path(), second).await?;
            }
            Step::Scale(replicas) => {
                let scale = json!({ "spec": { "replicas": replicas } });
                self.admin.merge(&format!("{}/scale", case.path()), &scale).await?;
            }
            Step::Delete(policy) => self.delete(case, policy).await?,
            Step::Add(resource, object) => drop(self.admin.create(&path(case.name, resource, ""), object).await?),
            Step::AwaitPhase(pod, phase) => {
                eventually(&format!("{pod} to be {phase}"), TIME_LIMIT, async || {
                    let pod = self.admin.get(&path(case.name, "pods", pod)).await?;
                    Ok((pod["status"]["phase"] == *phase).then_some(()))
                })
                .await?;
            }
            Step::AwaitSet(name, ready) => {
                eventually(&format!("{ready} ready pods of {name}"), TIME_LIMIT, async || {
                    let set = self.admin.get(&path(case.name, "replicasets", name)).await?;
                    Ok((set["status"]["readyReplicas"] == *ready).then_some(()))
                })
                .await?;
            }
            Step::EditSet(revision, patch) => {
                let sets = self.all(case.name, "replicasets").await?;
                let found = sets.iter().find(|it| it["metadata"]["annotations"][REVISION] == *revision);
                let set = text(&found.context("no such revision")?["metadata"]["name"]).to_owned();
                self.admin.merge(&path(case.name, "replicasets", &set), patch).await?;
            }
            Step::EditPod(label, patch) => {
                let pod = self.pod(case, label).await?;
                self.admin.merge(&pod, patch).await?;
            }
            Step::DeletePod => {
                let pod = self.pod(case, case.name).await?;
                self.replaced(case, async || self.admin.delete(&pod).await.map(drop)).await?;
            }
            Step::FailPod => {
                // The kubelet ends it with DeadlineExceeded.
                let deadline = json!({ "spec": { "activeDeadlineSeconds": 1 } });
                let pod = self.pod(case, case.name).await?;
                self.replaced(case, async || self.admin.merge(&pod, &deadline).await.map(drop)).await?;
            }
            Step::Limit(resource, most) => self.limit(case, resource, *most).await?,
        }
        Ok(())
    }

    /// The path of a controlled pod with this label that has not ended.
    async fn pod(&self, case: &Case, label: &str) -> anyhow::Result<String> {
        let pods = self.all(case.name, "pods").await?;
        let is_active = |it: &&Value| !is_deleting(it) && it["status"]["phase"] != "Failed";
        let mut fitting = pods.iter().filter(is_active).filter(|it| it["metadata"]["labels"]["app"] == label);
        let found = fitting.find(|it| label != case.name || !owner(it).is_empty()).context("no such pod")?;
        Ok(path(case.name, "pods", text(&found["metadata"]["name"])))
    }

    /// Acts, and waits until there is a pod more.
    async fn replaced(&self, case: &Case, act: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let before = self.uids(case.name).await?;
        act().await?;
        eventually("another pod", TIME_LIMIT, async || {
            Ok((!self.uids(case.name).await?.is_subset(&before)).then_some(()))
        })
        .await
    }

    /// Deletes the object of the case, and waits until it is gone.
    async fn delete(&self, case: &Case, policy: &str) -> anyhow::Result<()> {
        let query = if policy.is_empty() { String::new() } else { format!("?propagationPolicy={policy}") };
        self.admin.delete(&format!("{}{query}", case.path())).await?;
        eventually(&format!("{} to be gone", case.name), TIME_LIMIT, async || {
            Ok(self.admin.find(&case.path()).await?.is_none().then_some(()))
        })
        .await
    }

    /// Sets a quota. The quota controller, which would fill in its status, does not run here.
    async fn limit(&self, case: &Case, resource: &str, most: i64) -> anyhow::Result<()> {
        let hard = json!({ resource: most.to_string() });
        let quota = path(case.name, "resourcequotas", "limit");
        let used = match self.admin.find(&quota).await? {
            Some(found) => found["status"]["used"].clone(),
            None => {
                let object = json!({ "metadata": { "name": "limit" }, "spec": { "hard": hard } });
                self.admin.create(&path(case.name, "resourcequotas", ""), &object).await?;
                json!({ resource: "0" })
            }
        };
        self.admin.merge(&quota, &json!({ "spec": { "hard": hard } })).await?;
        self.admin.merge(&format!("{quota}/status"), &json!({ "status": { "hard": hard, "used": used } })).await?;
        // The admission plugin reads a cache.
        let (collection, probe) = case.limited_object(resource);
        eventually("the quota to be in force", TIME_LIMIT, async || {
            let dry_run = format!("{collection}?dryRun=All");
            let answer = self.admin.send(Method::POST, &dry_run, Some(("application/json", &probe))).await?;
            let wanted = if most == 0 { format!("limited: {resource}=0") } else { String::new() };
            anyhow::ensure!((answer.code == 201) == (most > 0) && answer.text.contains(&wanted), "{}", answer.text);
            Ok(Some(()))
        })
        .await
    }
}

/// Fails unless the object of the case has this state, and its namespace so many pods.
fn check(case: &Case, want: Want, object: &Value, pods: usize) -> anyhow::Result<()> {
    let status = &object["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let of_deployment = case.kind == Kind::Deployment;
    let reason = condition(object, "Progressing")["reason"].as_str();
    anyhow::ensure!(
        number("replicas") == want.replicas
            && number("readyReplicas") == want.ready
            && number("availableReplicas") == want.available
            && (!of_deployment || number("updatedReplicas") == want.updated)
            && (!of_deployment || want.has_reason(reason))
            && (status["observedGeneration"] == object["metadata"]["generation"] || reason == Some(CREATE_ERROR))
            && pods == want.pods,
        "{pods} pods and {status}, wanted {want:?}"
    );
    Ok(())
}
