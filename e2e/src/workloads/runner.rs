use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use clock::Clock;
use http::Method;
use serde_json::{Value, json};

use super::{
    kubelet::{self, choose, has_ended, is_bound, is_tracked},
    observed_objects::{Kind, NamespaceObjects, ObservedObjects},
    script::{EditPod, Run, Step, Until, Which, Workload},
    times::Zero,
};
use crate::{
    Rest,
    fields::{is_deleting, name},
    namespaces,
};

/// Longer than a back-off after two failures.
const TIME_LIMIT: Duration = Duration::from_secs(90);
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";

/// What all runs share.
#[derive(Clone)]
pub struct RunContext {
    /// The client that acts as user, scheduler and kubelet.
    pub admin: Rest,
    /// The observed objects.
    pub observed: Arc<ObservedObjects>,
    /// The names of the fake nodes.
    pub nodes: Vec<String>,
    /// The clock.
    pub clock: Clock,
    /// The minute in which the runs began.
    pub zero: Zero,
    /// Our manager runs, and not upstream's.
    pub ours: bool,
}

/// Runs one workload in a namespace of its own.
pub struct ScriptRunner<'a> {
    context: &'a RunContext,
    /// Also the name of the object.
    name: String,
    namespace: String,
    workload: &'a Workload,
    objects: Arc<NamespaceObjects>,
}

impl<'a> ScriptRunner<'a> {
    /// Does not start yet.
    #[must_use]
    pub fn new(context: &'a RunContext, name: &str, workload: &'a Workload) -> Self {
        let namespace = format!("w-{}", name.replace('.', "-"));
        let objects = context.observed.in_namespace(&namespace);
        Self { context, name: name.to_owned(), namespace, workload, objects }
    }

    /// The observed objects of its namespace.
    #[must_use]
    pub fn objects(&self) -> &Arc<NamespaceObjects> {
        &self.objects
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Runs all steps.
    ///
    /// # Errors
    /// If an expected state is not reached; the message names the step.
    pub async fn run_script(&self) -> anyhow::Result<()> {
        self.begin().await?;
        for (number, step) in self.workload.steps.iter().enumerate() {
            self.step(step).await.with_context(|| format!("{}: step {}: {step:?}", self.name, number + 1))?;
        }
        Ok(())
    }

    /// Creates the namespace and the objects.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn begin(&self) -> anyhow::Result<()> {
        namespaces::create(&self.context.admin, &self.namespace).await?;
        for object in &self.workload.before {
            self.create(object).await?;
        }
        self.create_own(&self.workload.object).await
    }

    async fn create_own(&self, object: &Value) -> anyhow::Result<()> {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(self.name);
        self.create(&object).await.with_context(|| self.name.clone())
    }

    /// `$uid` is the uid of the workload's own object. An owner with the uid `there` is looked up by its kind and name.
    async fn create(&self, object: &Value) -> anyhow::Result<()> {
        let mut object = self.context.zero.fill(object);
        if object.to_string().contains("$uid") {
            let own = self.wait_for("the object", |objects| Ok(objects.find(self.kind(), &self.name))).await?;
            let uid = own["metadata"]["uid"].as_str().unwrap_or_default();
            object = serde_json::from_str(&object.to_string().replace("$uid", uid))?;
        }
        for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            if owner["uid"] == "there" {
                let path = self.other(&format!("{}/{}", collection(owner)?.1, name_of(owner)));
                owner["uid"] = self.context.admin.get(&path).await?["metadata"]["uid"].clone();
            }
        }
        create(&self.context.admin, &self.namespace, &object).await
    }

    fn kind(&self) -> Kind {
        if self.workload.object["kind"] == "CronJob" { Kind::CronJob } else { Kind::Job }
    }

    fn path(&self) -> String {
        let plural = if self.kind() == Kind::CronJob { "cronjobs" } else { "jobs" };
        format!("/apis/batch/v1/namespaces/{}/{plural}/{}", self.namespace, self.name)
    }

    fn other(&self, path: &str) -> String {
        let root = if path.starts_with("jobs/") { "/apis/batch/v1" } else { "/api/v1" };
        let path = self.context.zero.fill_text(path);
        format!("{root}/namespaces/{}/{path}", self.namespace)
    }

    fn pod(&self, pod: &Value) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, name(pod))
    }

    /// Runs one step.
    ///
    /// # Errors
    /// If it fails, or a condition is not reached in time.
    pub async fn step(&self, step: &Step) -> anyhow::Result<()> {
        let admin = &self.context.admin;
        match step {
            Step::Run(run) => self.run(run).await,
            Step::End(run) => self.end(run).await,
            Step::Mark(mark) => {
                let which = Which { count: mark.count, index: mark.index, name: None, bound: None };
                for pod in self.pods(&which, |it| !has_ended(it)).await? {
                    self.write_status(&pod, &kubelet::marked(&mark.condition, self.context.clock.wall())).await?;
                }
                Ok(())
            }
            Step::Until(until) => self.until(until).await,
            Step::WithOurs(until) if self.context.ours => self.until(until).await,
            Step::WithOurs(_) => Ok(()),
            Step::Edit(patch) => admin.merge(&self.path(), &self.context.zero.fill(patch)).await.map(drop),
            Step::Status(status) => {
                let patch = json!({ "status": self.context.zero.fill(status) });
                admin.merge(&format!("{}/status", self.path()), &patch).await.map(drop)
            }
            Step::Refused(patch) => {
                let merge = Some(("application/merge-patch+json", patch));
                let answer = admin.send(Method::PATCH, &self.path(), merge).await?;
                anyhow::ensure!(answer.code == 422, "{} {}", answer.code, answer.text);
                Ok(())
            }
            Step::Delete(policy) => self.delete(&self.path(), policy).await,
            Step::CreateAgain(object) => self.create_own(object).await,
            Step::DeletePod(which) => {
                for pod in self.pods(which, |it| !has_ended(it) || which.bound.is_some()).await? {
                    admin.delete(&self.pod(&pod)).await?;
                }
                Ok(())
            }
            Step::EditPod(edit) => {
                let EditPod { count, index, name, .. } = edit.clone();
                for pod in self.pods(&Which { count, index, name, bound: None }, |_| true).await? {
                    admin.merge(&self.pod(&pod), &edit.patch).await?;
                }
                Ok(())
            }
            Step::Create(objects) => {
                for object in objects {
                    self.create(object).await?;
                }
                Ok(())
            }
            Step::EditOther(other) => admin.merge(&self.other(&other.path), &other.patch).await.map(drop),
            Step::DeleteOther(other) => self.delete(&self.other(&other.path), "Background").await,
        }
    }

    async fn delete(&self, path: &str, policy: &str) -> anyhow::Result<()> {
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy });
        let answer = self.context.admin.send(Method::DELETE, path, Some((JSON, &options))).await?;
        anyhow::ensure!((200..300).contains(&answer.code), "{} {}", answer.code, answer.text);
        Ok(())
    }

    async fn run(&self, run: &Run) -> anyhow::Result<()> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let which = Which { count: run.count, index: run.index, name: None, bound: Some(false) };
        for pod in self.pods(&which, |it| !has_ended(it)).await? {
            let nodes = &self.context.nodes;
            let node = nodes.get(NEXT.fetch_add(1, Ordering::Relaxed) % nodes.len().max(1)).context("no nodes")?;
            let binding = kubelet::binding(&pod, run, node);
            self.context.admin.create(&format!("{}/binding", self.pod(&pod)), &binding).await?;
            // Wait until the pod is observed as bound, so that it is not bound again.
            self.wait_for(&format!("{} to have a node", name(&pod)), |objects| {
                let seen = objects.find(Kind::Pod, name(&pod));
                Ok(seen.is_none_or(|it| is_bound(&it)).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn end(&self, run: &Run) -> anyhow::Result<()> {
        let which = Which { count: run.count, index: run.index, name: None, bound: Some(true) };
        let running = |it: &Value| it["status"]["phase"] == "Running";
        for pod in self.pods(&which, running).await? {
            self.write_status(&pod, &kubelet::ended(&pod, run, self.context.clock.wall())).await?;
            self.wait_for(&format!("{} to have ended", name(&pod)), |objects| {
                let seen = objects.find(Kind::Pod, name(&pod));
                Ok(seen.is_none_or(|it| has_ended(&it)).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn write_status(&self, pod: &Value, patch: &Value) -> anyhow::Result<()> {
        let path = format!("{}/status", self.pod(pod));
        let answer = self.context.admin.send(Method::PATCH, &path, Some((STRATEGIC, patch))).await?;
        anyhow::ensure!(answer.code == 200, "{} {}", answer.code, answer.text);
        Ok(())
    }

    /// Waits for pods.
    async fn pods(&self, which: &Which, fits: impl Fn(&Value) -> bool) -> anyhow::Result<Vec<Value>> {
        self.wait_for("such pods", |objects| {
            let there = objects.existing(Kind::Pod);
            let shown = || there.iter().map(shown_pod).collect::<Vec<_>>().join(", ");
            let found = choose(there.clone(), which, &fits);
            anyhow::ensure!(found.is_some(), "there are {}", shown());
            Ok(found)
        })
        .await
    }

    /// Waits until all conditions hold.
    ///
    /// # Errors
    /// If the time is over; the message has the present state.
    pub async fn until(&self, until: &Until) -> anyhow::Result<()> {
        let status = until.status.as_ref().map(|it| self.context.zero.fill(it));
        let look = |objects: &NamespaceObjects| {
            let own = objects.find(self.kind(), &self.name);
            self.check(until, status.as_ref(), own.as_ref(), objects).map(Some)
        };
        self.wait_for("that", look).await
    }

    fn check(
        &self,
        until: &Until,
        status: Option<&Value>,
        own: Option<&Value>,
        objects: &NamespaceObjects,
    ) -> anyhow::Result<()> {
        let pods = objects.existing(Kind::Pod);
        let shown = || pods.iter().map(shown_pod).collect::<Vec<_>>().join(", ");
        if until.gone {
            anyhow::ensure!(own.is_none(), "it is there: {}", own.unwrap_or(&Value::Null)["metadata"]);
        }
        let nothing = Value::Null;
        let own = own.unwrap_or(&nothing);
        if let Some(status) = status {
            anyhow::ensure!(contains(&own["status"], status), "status {}, pods {}", own["status"], shown());
        }
        for wanted in &until.holds {
            anyhow::ensure!(is_true(own, wanted), "{wanted} is not true: {}, pods {}", own["status"], shown());
        }
        for unwanted in &until.lacks {
            anyhow::ensure!(!is_true(own, unwanted), "{unwanted} is true: {}, pods {}", own["status"], shown());
        }
        anyhow::ensure!(!until.deleting || is_deleting(own), "it is not being deleted: {}", own["metadata"]);
        let active = |it: &&Value| !has_ended(it) && !is_deleting(it);
        let count = |wanted: Option<usize>, what: &str, found: usize| {
            let right = wanted.is_none_or(|it| it == found);
            anyhow::ensure!(right, "{found} {what}: status {}, pods {}", own["status"], shown());
            Ok(())
        };
        count(until.active, "active", pods.iter().filter(active).count())?;
        count(until.waiting, "waiting", pods.iter().filter(active).filter(|it| !is_bound(it)).count())?;
        let terminating = pods.iter().filter(|it| is_deleting(it) && !has_ended(it)).count();
        count(until.terminating, "terminating", terminating)?;
        count(until.ended, "ended", pods.iter().filter(|it| has_ended(it)).count())?;
        count(until.pods, "pods", pods.len())?;
        count(until.tracked, "with the finalizer", pods.iter().filter(|it| is_tracked(it)).count())?;
        let is_job = |it: &Value| it["metadata"]["name"] != self.name || self.kind() != Kind::Job;
        count(until.jobs, "Jobs", objects.existing(Kind::Job).iter().filter(|it| is_job(it)).count())?;
        let seen = objects.seen();
        let finished = seen.iter().filter(|it| it.kind == Kind::Job);
        let finished = finished.filter(|it| is_true(&it.last, "Complete") || is_true(&it.last, "Failed")).count();
        count(until.finished_jobs, "finished Jobs", finished)?;
        if let Some(reason) = &until.event {
            let told = objects.existing(Kind::Event).iter().any(|it| it["reason"] == **reason);
            anyhow::ensure!(told, "no event {reason}");
        }
        Ok(())
    }

    /// Waits for a result, checking at each change.
    async fn wait_for<T>(
        &self,
        what: &str,
        look: impl Fn(&NamespaceObjects) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = self.context.clock.now() + TIME_LIMIT;
        let mut changes = self.objects.subscribe();
        loop {
            let seen = match look(&self.objects) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => "not yet".to_owned(),
                Err(err) => format!("{err:#}"),
            };
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => bail!("the watches have ended"),
                Err(_) => bail!("waited {TIME_LIMIT:?} for {what}: {seen}"),
            }
        }
    }
}

/// Creates an object of one of the kinds in scripts.
///
/// # Errors
/// If the server refuses, or the kind is unknown.
pub async fn create(admin: &Rest, namespace: &str, object: &Value) -> anyhow::Result<()> {
    let (root, plural) = collection(object)?;
    admin.create(&format!("{root}/namespaces/{namespace}/{plural}"), object).await.map(drop)
}

fn collection(object: &Value) -> anyhow::Result<(&'static str, &'static str)> {
    Ok(match object["kind"].as_str().unwrap_or_default() {
        "Job" => ("/apis/batch/v1", "jobs"),
        "CronJob" => ("/apis/batch/v1", "cronjobs"),
        "Pod" => ("/api/v1", "pods"),
        "ResourceQuota" => ("/api/v1", "resourcequotas"),
        "ConfigMap" => ("/api/v1", "configmaps"),
        other => bail!("no collection of {other:?}"),
    })
}

fn name_of(reference: &Value) -> &str {
    reference["name"].as_str().unwrap_or_default()
}

pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    let all = object["status"]["conditions"].as_array();
    all.is_some_and(|all| all.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

/// True when `whole` contains `part`. What is missing in `whole` counts as zero or empty.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (_, Value::Object(part)) => part.iter().all(|(key, it)| contains(&whole[key], it)),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (Value::Null, Value::Number(zero)) => zero.as_i64() == Some(0),
        (Value::Null, Value::Array(none)) => none.is_empty(),
        (Value::Null, Value::String(none)) => none.is_empty(),
        _ => whole == part,
    }
}

fn shown_pod(pod: &Value) -> String {
    let index = kubelet::index(pod).map(|it| format!("[{it}]")).unwrap_or_default();
    let marks = [(is_bound(pod), " bound"), (is_deleting(pod), " deleting"), (is_tracked(pod), " tracked")];
    let marks: String = marks.into_iter().filter(|(is, _)| *is).map(|(_, it)| it).collect();
    format!("{}{index} {}{marks}", name(pod), pod["status"]["phase"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_found_and_missing_numbers_are_zero() {
        let whole = json!({ "active": 1, "uncounted": { "failed": ["a"] } });
        assert!(contains(&whole, &json!({ "active": 1, "failed": 0, "uncounted": { "failed": ["a"] } })));
        assert!(!contains(&whole, &json!({ "active": 0 })));
        assert!(!contains(&whole, &json!({ "failed": 1 })));
        assert!(!contains(&whole, &json!({ "uncounted": { "failed": [] } })));
    }
}
