use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clock::Clock;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    observed_objects::{ObservedObject, ObservedObjects},
    result::{CreatedObject, result},
    script::{Edit, Graph, InOrder, Policy, Step, Until},
};
use crate::{Rest, namespaces};

/// Longer than the collector needs to start.
const TIME_LIMIT: Duration = Duration::from_secs(90);
const JSON: &str = "application/json";
/// The name of the second namespace of a run in scripts.
const OTHER: &str = "other";

/// What all runs share.
#[derive(Clone)]
pub struct RunContext {
    /// The client that acts as the user.
    pub admin: Rest,
    /// The observed objects.
    pub observed: Arc<ObservedObjects>,
    /// The clock.
    pub clock: Clock,
}

/// Runs one graph with one policy, in a namespace of its own.
pub struct ScriptRunner<'a> {
    context: &'a RunContext,
    graph: &'a Graph,
    policy: Policy,
    namespace: String,
    created: Mutex<Vec<CreatedObject>>,
    locations: Mutex<BTreeMap<String, ObjectLocation>>,
}

/// The location of an object, by its name in the script.
#[derive(Clone)]
struct ObjectLocation {
    kind: &'static Kind,
    path: String,
    /// Its name on the server.
    name: String,
}

impl<'a> ScriptRunner<'a> {
    /// Does not start yet.
    #[must_use]
    pub fn new(context: &'a RunContext, name: &str, graph: &'a Graph, policy: Policy) -> Self {
        let namespace = format!("g-{name}-{}", policy.word());
        Self { context, graph, policy, namespace, created: Mutex::default(), locations: Mutex::default() }
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The present result, normalised.
    #[must_use]
    pub fn result(&self) -> Value {
        let word = |it: &str, word: &str| (it.to_owned(), word.to_owned());
        // Cluster-scoped objects have the name of the run as a prefix.
        let words = [
            word(&self.namespace_of(OTHER), "<other>"),
            word(&format!("{}-of-", self.namespace), ""),
            word(&self.namespace, "<own>"),
        ];
        result(&self.context.observed, &self.created.lock(), &words)
    }

    /// Runs all steps.
    ///
    /// # Errors
    /// If an expected state is not reached; the message names the step.
    pub async fn run_script(&self) -> anyhow::Result<()> {
        namespaces::create(&self.context.admin, &self.namespace).await?;
        let objects = &self.graph.objects;
        if objects.iter().any(|it| it["metadata"]["namespace"] == OTHER) {
            namespaces::create(&self.context.admin, &self.namespace_of(OTHER)).await?;
        }
        for object in objects {
            self.create(object).await?;
        }
        self.wait_until_watched(objects).await?;
        for (number, step) in self.graph.steps.iter().enumerate() {
            let done = self.step(step).await;
            done.with_context(|| format!("{}: step {}: {step:?}", self.namespace, number + 1))?;
        }
        Ok(())
    }

    /// Waits until the collector knows the objects: for each kind an object with an owner that never existed is
    /// created, and must be deleted. A dependent that the collector does not know yet is deleted after its owner was
    /// deleted with the policy Orphan (kubernetes#26120).
    async fn wait_until_watched(&self, objects: &[Value]) -> anyhow::Result<()> {
        let kinds: BTreeMap<&str, &Value> =
            objects.iter().filter_map(|it| Some((it["kind"].as_str()?, it))).filter(|it| it.0 != Kind::EVENT).collect();
        let mut probes = Vec::new();
        for (name, object) in kinds {
            let kind = Kind::of(object).with_context(|| format!("{object} is of no known kind"))?;
            let mut probe = object.clone();
            let (api_version, owner) =
                if kind.namespaced { ("v1", "ConfigMap") } else { ("rbac.authorization.k8s.io/v1", "ClusterRole") };
            let absent = format!("{}-absent-owner", self.namespace);
            probe["metadata"] = json!({
                "name": format!("{}-probe", self.namespace),
                "ownerReferences": [{ "apiVersion": api_version, "kind": owner, "name": absent, "uid": absent }],
            });
            let created = self.context.admin.create(&kind.collection(&self.namespace), &probe).await?;
            probes.push((name, created["metadata"]["uid"].as_str().context("no uid")?.to_owned()));
        }
        self.wait(|| {
            for (kind, uid) in &probes {
                let gone = self.context.observed.find(uid).is_some_and(|it| it.gone);
                anyhow::ensure!(gone, "the collector does not watch {kind} objects: the probe was not deleted");
            }
            Ok(())
        })
        .await
        .with_context(|| self.namespace.clone())
    }

    fn namespace_of(&self, said: &str) -> String {
        if said == OTHER { format!("{}-{OTHER}", self.namespace) } else { self.namespace.clone() }
    }

    async fn step(&self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Delete(what) => self.delete(what).await,
            Step::Release(name) => self.merge(name, json!({ "metadata": { "finalizers": null } })).await,
            Step::Edit(Edit { object, patch }) => self.merge(object, patch.clone()).await,
            Step::Create(objects) => {
                for object in objects {
                    self.create(object).await?;
                }
                Ok(())
            }
            Step::Until(until) => self.until(until).await,
            Step::By(by) if by.policies.contains(&self.policy) => self.until(&by.until).await,
            Step::InOrder(order) if order.policies.contains(&self.policy) => self.check_order(order),
            Step::By(_) | Step::InOrder(_) => Ok(()),
        }
    }

    /// Creates an object of the script in its namespace.
    async fn create(&self, said: &Value) -> anyhow::Result<()> {
        let mut object = said.clone();
        let kind = Kind::of(said).with_context(|| format!("{said} is of no known kind"))?;
        let script_name = said["metadata"]["name"].as_str().context("no name")?.to_owned();
        let namespace = self.namespace_of(said["metadata"]["namespace"].as_str().unwrap_or_default());
        let name = if kind.namespaced { script_name.clone() } else { format!("{}-of-{script_name}", self.namespace) };
        object["metadata"]["name"] = json!(name);
        if kind.namespaced {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if kind.kind == Kind::EVENT {
            object["involvedObject"]["namespace"] = json!(namespace);
        }
        self.name_owners(&mut object)?;
        let collection = kind.collection(&namespace);
        let created = self.context.admin.create(&collection, &object).await?;
        let uid = created["metadata"]["uid"].as_str().context("no uid")?.to_owned();
        self.created.lock().push(CreatedObject { name: script_name.clone(), uid });
        let path = format!("{collection}/{name}");
        self.locations.lock().insert(script_name, ObjectLocation { kind, path, name });
        Ok(())
    }

    /// `to: <name>` sets all fields of a reference to an object; other fields of the reference override them. Other
    /// uids are made unique for this run.
    fn name_owners(&self, object: &mut Value) -> anyhow::Result<()> {
        for reference in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            let Some(fields) = reference.as_object_mut() else { bail!("{reference} is no reference") };
            if let Some(uid) = fields.get_mut("uid") {
                *uid = json!(format!("{}-{}", self.namespace, uid.as_str().unwrap_or_default()));
            }
            let Some(to) = fields.remove("to") else { continue };
            let to = to.as_str().unwrap_or_default();
            let ObjectLocation { kind, name, .. } = self.location(to)?;
            let named =
                json!({ "apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": self.uid(to)? });
            for (field, value) in named.as_object().into_iter().flatten() {
                fields.entry(field).or_insert_with(|| value.clone());
            }
        }
        Ok(())
    }

    fn location(&self, name: &str) -> anyhow::Result<ObjectLocation> {
        self.locations.lock().get(name).cloned().with_context(|| format!("no object {name:?} was created"))
    }

    /// The uid of the last object that was created with this name.
    fn uid(&self, name: &str) -> anyhow::Result<String> {
        let made = self.created.lock();
        let found = made.iter().rev().find(|it| it.name == name);
        Ok(found.with_context(|| format!("no object {name:?} was created"))?.uid.clone())
    }

    fn seen(&self, name: &str) -> anyhow::Result<Option<ObservedObject>> {
        Ok(self.context.observed.find(&self.uid(name)?))
    }

    async fn merge(&self, name: &str, mut patch: Value) -> anyhow::Result<()> {
        if !patch["metadata"]["ownerReferences"].is_null() {
            self.name_owners(&mut patch)?;
        }
        self.context.admin.merge(&self.location(name)?.path, &patch).await.map(drop)
    }

    async fn delete(&self, what: &str) -> anyhow::Result<()> {
        let (name, policy) = match what.split_once(' ') {
            Some((name, policy)) => (name, Policy::parse(policy)?),
            None => (what, self.policy),
        };
        let options =
            policy.option().map(|it| json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": it }));
        let body = options.as_ref().map(|it| (JSON, it));
        let answer = self.context.admin.send(Method::DELETE, &self.location(name)?.path, body).await?;
        anyhow::ensure!((200..300).contains(&answer.code), "{} {}", answer.code, answer.text);
        Ok(())
    }

    async fn until(&self, until: &Until) -> anyhow::Result<()> {
        self.wait(|| self.check(until)).await
    }

    /// Waits until all conditions hold, checking them at each change.
    async fn wait(&self, check: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let deadline = self.context.clock.now() + TIME_LIMIT;
        let mut changes = self.context.observed.subscribe();
        loop {
            changes.borrow_and_update();
            let Err(missing) = check() else { return Ok(()) };
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(changed) => changed?,
                Err(_) => bail!("waited {TIME_LIMIT:?}: {missing:#}; the present result is {}", self.result()),
            }
        }
    }

    fn check(&self, until: &Until) -> anyhow::Result<()> {
        let Until { gone, there, deleting, owners, finalizers, event } = until;
        for name in gone {
            anyhow::ensure!(self.seen(name)?.is_some_and(|it| it.gone), "{name} is not gone");
        }
        for (names, wanted) in [(there, false), (deleting, true)] {
            for name in names {
                let object = self.existing(name)?;
                let is_deleting = object["metadata"]["deletionTimestamp"].is_string();
                anyhow::ensure!(is_deleting == wanted, "{name} is being deleted: {is_deleting}");
            }
        }
        for (name, wanted) in owners {
            let wanted: Vec<String> =
                wanted.iter().map(|it| Ok(self.location(it)?.name)).collect::<anyhow::Result<_>>()?;
            let object = self.existing(name)?;
            let found = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let found: Vec<&str> = found.filter_map(|it| it["name"].as_str()).collect();
            anyhow::ensure!(found == wanted, "owners of {name} are {found:?}");
        }
        for (name, wanted) in finalizers {
            let found = &self.existing(name)?["metadata"]["finalizers"];
            let as_wanted = if wanted.is_empty() { found.is_null() } else { *found == json!(wanted) };
            anyhow::ensure!(as_wanted, "finalizers of {name} are {found}");
        }
        if let Some(reason) = event {
            let told =
                self.result()["events"].as_array().is_some_and(|it| it.iter().any(|it| it["reason"] == **reason));
            anyhow::ensure!(told, "no event {reason}");
        }
        Ok(())
    }

    fn existing(&self, name: &str) -> anyhow::Result<Value> {
        let seen = self.seen(name)?.filter(|it| !it.gone);
        Ok(seen.with_context(|| format!("{name} does not exist"))?.last)
    }

    /// Checks the order of deletions by their versions.
    fn check_order(&self, order: &InOrder) -> anyhow::Result<()> {
        let mut ends = Vec::new();
        for name in &order.gone {
            let seen = self.seen(name)?.filter(|it| it.gone).with_context(|| format!("{name} is not gone"))?;
            let version = seen.last["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            ends.push((version.parse::<u64>()?, name));
        }
        anyhow::ensure!(ends.is_sorted(), "deleted in another order: {ends:?}");
        Ok(())
    }
}
