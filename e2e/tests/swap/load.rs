//! Steady work for each controller. Each piece is counted, so that at the end nothing may be lost or done twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use clock::Clock;
use e2e::{
    Rest, eventually,
    fields::{condition, is_deleting, name, uid},
    namespaces, objects,
    workloads::{Kind, NamespaceObjects, ObservedObjects},
};
use fake_nodes::{Environment, Fleet, NodeSpec, PREFIX};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tasks::Scope;
use tokio::sync::watch;

/// How long the last pieces of work may take.
const LAST_WORK_TIMEOUT: Duration = Duration::from_secs(180);
/// When a leader is killed soon after its start, the grace period of a silent node begins anew.
const PER_KILL: Duration = Duration::from_secs(10);
/// The renewal interval of the nodes, much shorter than their grace period.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);

const JOBS: &str = "load-jobs";
const FINISHED: &str = "load-finished";
const CRON: &str = "load-cron";
const SETS: &str = "load-sets";
const DAEMONS: &str = "load-daemons";
const DEPLOYED: &str = "load-deployed";
const REPLICATED: &str = "load-replicated";
const TREES: &str = "load-trees";
const EVICTIONS: &str = "load-evictions";
const DYING: &str = "load-dying";
const GONE: &str = "load-gone-";

/// The taint of nodes on which the managers do not run.
const FOR_LOAD: &str = "example.com/load";
/// Nodes for pods of the scheduler.
const STEADY: [&str; 2] = ["steady-1", "steady-2"];
/// It is cordoned and uncordoned.
const CORDONED: &str = "cordoned";
/// Its taint evicts pods at once.
const EVICTING: &str = "evicting";
/// Its kubelet stops again and again.
const MORTAL: &str = "mortal";

const COMPLETIONS: u64 = 3;
const REPLICAS: usize = 3;
/// The dependents of an owner that lives.
const KEPT: usize = 10;
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Nodes with work for the controllers.
pub(crate) struct Load {
    admin: Rest,
    fleet: Fleet,
    observed: Arc<ObservedObjects>,
    /// The pause between two pieces of work of one kind.
    interval: Duration,
    stop: watch::Sender<bool>,
}

/// How much of each kind was done.
#[derive(Debug)]
pub(crate) struct Done {
    jobs: usize,
    finished_jobs: usize,
    cron_jobs: usize,
    set_pods: usize,
    daemon_pods: usize,
    deployed_pods: usize,
    replicated_pods: usize,
    trees: usize,
    namespaces: usize,
    evictions: usize,
    node_marks: usize,
    deaths: usize,
}

impl Load {
    /// Registers the nodes.
    pub(crate) async fn new(admin: Rest, scope: &Scope, interval: Duration) -> anyhow::Result<Self> {
        let environment =
            Environment { client: admin.client().clone(), clock: Clock::system(), spawner: scope.spawner() };
        let nodes = vec![
            NodeSpec::new(STEADY[0]).label("pool", "steady").taint(FOR_LOAD, "", "NoSchedule"),
            NodeSpec::new(STEADY[1]).label("pool", "steady").taint(FOR_LOAD, "", "NoSchedule"),
            NodeSpec::new(CORDONED).taint("example.com/cordoned", "", "NoSchedule"),
            NodeSpec::new(EVICTING).taint("example.com/evict", "", "NoExecute"),
            NodeSpec::new(MORTAL).taint("example.com/mortal", "", "NoSchedule"),
        ];
        let nodes: Vec<NodeSpec> = nodes.into_iter().map(|it| it.pods(500).cpu(64)).collect();
        let options =
            fake_nodes::Options { nodes, renew_interval: RENEW_INTERVAL, ..fake_nodes::Options::with_nodes(0) };
        let observed = ObservedObjects::start(&admin, &scope.spawner());
        let fleet = Fleet::start(options, environment);
        tokio::time::timeout(LAST_WORK_TIMEOUT, fleet.registered()).await?;
        Ok(Self { admin, fleet, observed, interval, stop: watch::Sender::new(false) })
    }

    /// Ends [`Load::run`].
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Creates work until it is stopped.
    pub(crate) async fn run(&self) -> anyhow::Result<Done> {
        self.until("the nodes to be ready, with their networks", async || {
            let nodes = self.admin.items("/api/v1/nodes").await?;
            let is_set_up = |it: &Value| it["spec"]["podCIDR"].is_string() && !has_taint(it, NOT_READY);
            Ok(nodes.iter().all(is_set_up))
        })
        .await?;
        for name in [JOBS, FINISHED, CRON, SETS, DAEMONS, DEPLOYED, REPLICATED, TREES, EVICTIONS, DYING] {
            namespaces::create(&self.admin, name).await?;
        }
        self.create_lasting_objects().await?;
        let pods = async {
            futures::try_join!(
                self.delete_pods(SETS),
                self.delete_pods(DAEMONS),
                self.delete_pods(DEPLOYED),
                self.delete_pods(REPLICATED),
            )
        };
        let (pods, jobs, finished_jobs, cron_jobs, trees, namespaces, evictions, node_marks, deaths) = futures::try_join!(
            pods,
            self.jobs(),
            self.finished_jobs(),
            self.cron_jobs(),
            self.trees(),
            self.namespaces(),
            self.evictions(),
            self.node_marks(),
            self.deaths(),
        )?;
        let (set_pods, daemon_pods, deployed_pods, replicated_pods) = pods;
        Ok(Done {
            jobs,
            finished_jobs,
            cron_jobs,
            set_pods,
            daemon_pods,
            deployed_pods,
            replicated_pods,
            trees,
            namespaces,
            evictions,
            node_marks,
            deaths,
        })
    }

    /// Waits until all work is done, and checks that nothing is lost and nothing was done twice.
    pub(crate) async fn check(&self, done: &Done) -> anyhow::Result<()> {
        ensure!(done.namespaces > 0 && done.evictions > 0 && done.node_marks > 0 && done.deaths > 0, "{done:?}");
        self.check_jobs(done.jobs).await?;
        self.check_finished_jobs(done.finished_jobs).await?;
        self.check_cron_jobs(done.cron_jobs).await?;
        self.check_replaced_pods(SETS, done.set_pods, REPLICAS).await?;
        self.check_replaced_pods(DAEMONS, done.daemon_pods, STEADY.len()).await?;
        self.check_replaced_pods(DEPLOYED, done.deployed_pods, REPLICAS).await?;
        self.check_replaced_pods(REPLICATED, done.replicated_pods, REPLICAS).await?;
        self.check_trees(done.trees).await?;
        self.check_evictions().await?;
        self.check_nodes().await
    }

    fn objects(&self, namespace: &str) -> Arc<NamespaceObjects> {
        self.observed.in_namespace(namespace)
    }

    /// Waits for the interval. Returns false when the work must end.
    async fn goes_on(&self) -> bool {
        let mut stop = self.stop.subscribe();
        tokio::time::timeout(self.interval, stop.wait_for(|it| *it)).await.is_err()
    }

    async fn until(&self, what: &str, is_reached: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        eventually(what, LAST_WORK_TIMEOUT + PER_KILL * crate::kills(), async || Ok(is_reached().await?.then_some(())))
            .await
    }

    /// Objects that must survive everything.
    async fn create_lasting_objects(&self) -> anyhow::Result<()> {
        let set =
            workload("set", json!({ "serviceName": "set", "replicas": REPLICAS, "podManagementPolicy": "Parallel" }));
        self.admin.create(&path("apps/v1", SETS, "statefulsets"), &set).await?;
        let mut daemon = workload("daemon", json!({}));
        daemon["spec"]["template"]["spec"]["nodeSelector"] = json!({ "pool": "steady" });
        self.admin.create(&path("apps/v1", DAEMONS, "daemonsets"), &daemon).await?;
        let deployment = workload("deployed", json!({ "replicas": REPLICAS }));
        self.admin.create(&path("apps/v1", DEPLOYED, "deployments"), &deployment).await?;
        let mut replicated = workload("replicated", json!({ "replicas": REPLICAS }));
        replicated["spec"]["selector"] = replicated["spec"]["selector"]["matchLabels"].take();
        self.admin.create(&path("v1", REPLICATED, "replicationcontrollers"), &replicated).await?;
        self.create_tree("kept", KEPT).await?;
        for (namespace, node) in [(EVICTIONS, EVICTING), (DYING, MORTAL)] {
            let everything = json!([{ "operator": "Exists" }]);
            let pod = pod("tolerant", node, &everything);
            self.admin.create(&path("v1", namespace, "pods"), &pod).await?;
        }
        Ok(())
    }

    /// Jobs whose pods all succeed or all fail; each second one is deleted when it has finished.
    async fn jobs(&self) -> anyhow::Result<usize> {
        let mut number = 0;
        while self.goes_on().await {
            let mut job = json!({ "metadata": { "name": format!("job-{number}") }, "spec": {
                "completions": COMPLETIONS, "parallelism": 2, "completionMode": "Indexed",
                "backoffLimitPerIndex": 0, "template": short_pod(if is_failing(number) { "1" } else { "0" }) } });
            if has_short_life(number) {
                job["spec"]["ttlSecondsAfterFinished"] = json!(0);
            }
            self.admin.create(&path("batch/v1", JOBS, "jobs"), &job).await?;
            number += 1;
        }
        Ok(number)
    }

    /// Jobs of another controller that have finished, with a time to live that is over.
    async fn finished_jobs(&self) -> anyhow::Result<usize> {
        let (mut number, all) = (0, path("batch/v1", FINISHED, "jobs"));
        while self.goes_on().await {
            let name = format!("finished-{number}");
            let spec = json!({ "managedBy": "example.com/nobody", "ttlSecondsAfterFinished": 0, "completions": 1,
                "template": short_pod("0") });
            self.admin.create(&all, &json!({ "metadata": { "name": name }, "spec": spec })).await?;
            let now = Clock::system().wall();
            let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now });
            let status = json!({ "startTime": now, "completionTime": now, "succeeded": 1,
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")] });
            self.admin.merge(&format!("{all}/{name}/status"), &json!({ "status": status })).await?;
            number += 1;
        }
        Ok(number)
    }

    /// CronJobs that missed exactly one time: it must be started once.
    async fn cron_jobs(&self) -> anyhow::Result<usize> {
        let mut number = 0;
        while self.goes_on().await {
            let now = Clock::system().wall();
            let due = Timestamp::from_second(now.as_second() - now.as_second().rem_euclid(60))?;
            let time = due.to_zoned(jiff::tz::TimeZone::UTC);
            let name = format!("cron-{number}");
            let object = json!({ "metadata": { "name": name }, "spec": {
                "schedule": format!("{} {} * * *", time.minute(), time.hour()), "timeZone": "Etc/UTC",
                "jobTemplate": { "spec": { "template": short_pod("0") } } } });
            let all = path("batch/v1", CRON, "cronjobs");
            self.admin.create(&all, &object).await?;
            let last = due - SignedDuration::from_hours(1);
            let status = json!({ "status": { "lastScheduleTime": last.to_string() } });
            self.admin.merge(&format!("{all}/{name}/status"), &status).await?;
            number += 1;
        }
        Ok(number)
    }

    /// Deletes one running pod after the other. Returns how many.
    async fn delete_pods(&self, namespace: &str) -> anyhow::Result<usize> {
        let mut deleted = BTreeSet::new();
        while self.goes_on().await {
            let pods = self.objects(namespace).existing(Kind::Pod);
            let is_new = |it: &&Value| it["status"]["phase"] == "Running" && !deleted.contains(&uid(it));
            let Some(pod) = pods.iter().find(is_new) else { continue };
            let target = format!("{}/{}", path("v1", namespace, "pods"), name(pod));
            let options = json!({ "preconditions": { "uid": uid(pod) } });
            let answer = self.admin.send(Method::DELETE, &target, Some(("application/json", &options))).await?;
            ensure!(answer.code == 200, "{target}: {} {}", answer.code, answer.text);
            deleted.insert(uid(pod));
        }
        Ok(deleted.len())
    }

    /// An owner with dependents.
    async fn create_tree(&self, name: &str, dependents: usize) -> anyhow::Result<()> {
        let all = path("v1", TREES, "configmaps");
        let owner = self.admin.create(&all, &json!({ "metadata": { "name": name } })).await?;
        let reference = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true }]);
        let dependent = |number| {
            let metadata = json!({ "name": format!("{name}-{number}"), "ownerReferences": reference });
            (all.clone(), json!({ "metadata": metadata }))
        };
        self.admin.create_all((0..dependents).map(dependent).collect()).await
    }

    /// Owners that are deleted in one of the three ways.
    async fn trees(&self) -> anyhow::Result<usize> {
        let mut number = 0;
        while self.goes_on().await {
            let name = format!("tree-{number}");
            self.create_tree(&name, 3).await?;
            let target = format!("{}/{name}", path("v1", TREES, "configmaps"));
            let options = json!({ "propagationPolicy": propagation(number) });
            let answer = self.admin.send(Method::DELETE, &target, Some(("application/json", &options))).await?;
            ensure!(answer.code < 300, "{target}: {} {}", answer.code, answer.text);
            number += 1;
        }
        Ok(number)
    }

    async fn namespaces(&self) -> anyhow::Result<usize> {
        let mut number = 0;
        while self.goes_on().await {
            let name = format!("{GONE}{number}");
            namespaces::create(&self.admin, &name).await?;
            self.admin.create_all((0..2).map(|it| objects::config_map(&name, &format!("c-{it}"))).collect()).await?;
            namespaces::delete(&self.admin, &name).await?;
            number += 1;
        }
        Ok(number)
    }

    /// Pods that do not tolerate the taint of their node.
    async fn evictions(&self) -> anyhow::Result<usize> {
        let mut number = 0;
        while self.goes_on().await {
            let pod = pod(&format!("evicted-{number}"), EVICTING, &json!([]));
            self.admin.create(&path("v1", EVICTIONS, "pods"), &pod).await?;
            number += 1;
        }
        Ok(number)
    }

    /// A node is cordoned and uncordoned, and loses the annotation of its TTL.
    async fn node_marks(&self) -> anyhow::Result<usize> {
        let mut number = 0;
        while self.goes_on().await {
            let patch = json!({ "metadata": { "annotations": { "node.alpha.kubernetes.io/ttl": null } },
                "spec": { "unschedulable": number % 2 == 0 } });
            self.admin.merge(&format!("/api/v1/nodes/{CORDONED}"), &patch).await?;
            number += 1;
        }
        Ok(number)
    }

    /// A node dies with its pods, is taken out of service, and comes back.
    async fn deaths(&self) -> anyhow::Result<usize> {
        let mut number = 0;
        let node = format!("/api/v1/nodes/{MORTAL}");
        while self.goes_on().await {
            let name = format!("evicted-{number}");
            let soon =
                json!([{ "key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 }]);
            self.admin.create(&path("v1", DYING, "pods"), &pod(&name, MORTAL, &soon)).await?;
            let pods = self.objects(DYING);
            let running =
                async || anyhow::Ok(pods.find(Kind::Pod, &name).is_some_and(|it| it["status"]["phase"] == "Running"));
            self.until("the pod to run", running).await?;
            ensure!(self.fleet.make_silent(MORTAL), "no node {MORTAL}");
            let is_deleted = async || anyhow::Ok(pods.find(Kind::Pod, &name).is_none_or(|it| is_deleting(&it)));
            self.until("the pod of a silent node to be evicted", is_deleted).await?;
            let taint = json!([{ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute" }]);
            self.edit_taints(&node, OUT_OF_SERVICE, &taint).await?;
            let is_gone = async || anyhow::Ok(pods.find(Kind::Pod, &name).is_none());
            self.until("the pod of a node out of service to be removed", is_gone).await?;
            self.edit_taints(&node, OUT_OF_SERVICE, &json!([])).await?;
            ensure!(self.fleet.restore(MORTAL), "no node {MORTAL}");
            let is_back = async || {
                let node = self.admin.get(&node).await?;
                anyhow::Ok(!has_taint(&node, UNREACHABLE) && !has_taint(&node, NOT_READY))
            };
            self.until("the node to be back", is_back).await?;
            number += 1;
        }
        Ok(number)
    }

    /// Replaces the taints with this key, again when another client has written the node meanwhile.
    async fn edit_taints(&self, node: &str, key: &str, new: &Value) -> anyhow::Result<()> {
        eventually("a change of the taints", LAST_WORK_TIMEOUT, async || {
            let mut object = self.admin.get(node).await?;
            let known = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let others = known.into_iter().filter(|it| it["key"] != key);
            object["spec"]["taints"] = others.chain(new.as_array().cloned().unwrap_or_default()).collect();
            self.admin.put(node, &object).await.map(|_| Some(()))
        })
        .await
    }

    /// Each Job has counted each of its pods once, and has created as many as it needs.
    async fn check_jobs(&self, count: usize) -> anyhow::Result<()> {
        let objects = self.objects(JOBS);
        let names: Vec<String> = (0..count).map(|it| format!("job-{it}")).collect();
        self.until("all Jobs to finish, and those with a short life to be deleted", async || {
            let existing = objects.existing(Kind::Job);
            let finished = |it: &Value| has_condition(it, "Complete") || has_condition(it, "Failed");
            let lasting = (0..count).filter(|it| !has_short_life(*it)).count();
            ensure!(existing.len() == lasting, "{} Jobs exist, wanted {lasting}", existing.len());
            let pods = objects.existing(Kind::Pod);
            let held = pods.iter().filter(|it| it["metadata"]["finalizers"].is_array()).count();
            ensure!(held == 0, "{held} pods have finalizers");
            Ok(existing.iter().all(finished))
        })
        .await?;
        let observed = objects.observed(Kind::Job);
        let jobs = by_name(&observed);
        let pods = count_by(&objects.observed(Kind::Pod), |it| it["metadata"]["labels"]["job-name"].clone());
        for (number, name) in names.iter().enumerate() {
            let job = jobs.get(name).with_context(|| format!("{name} was not observed"))?;
            let wanted = if is_failing(number) { (0, COMPLETIONS) } else { (COMPLETIONS, 0) };
            let counted = |field: &str| job["status"][field].as_u64().unwrap_or(0);
            ensure!((counted("succeeded"), counted("failed")) == wanted, "{name} counted wrong: {}", job["status"]);
            ensure!(has_condition(job, if is_failing(number) { "Failed" } else { "Complete" }), "{job}");
            let created = pods.get(name.as_str()).copied().unwrap_or_default();
            ensure!(created == usize::try_from(COMPLETIONS)?, "{name} has had {created} pods: {}", job["status"]);
        }
        Ok(())
    }

    async fn check_finished_jobs(&self, count: usize) -> anyhow::Result<()> {
        let objects = self.objects(FINISHED);
        let what = "the Jobs whose time to live is over to be deleted";
        self.until(what, async || {
            let left = objects.existing(Kind::Job).len();
            ensure!(left == 0 && objects.observed_count(Kind::Job) == count, "{left} of {count} are left");
            Ok(true)
        })
        .await
    }

    /// Each CronJob has created one Job, and it was run once.
    async fn check_cron_jobs(&self, count: usize) -> anyhow::Result<()> {
        let objects = self.objects(CRON);
        self.until("the Jobs of all CronJobs to finish", async || {
            let jobs = objects.existing(Kind::Job);
            ensure!(jobs.len() >= count, "{} Jobs of {count} CronJobs", jobs.len());
            let succeeded = objects.existing(Kind::CronJob);
            let succeeded = succeeded.iter().filter(|it| it["status"]["lastSuccessfulTime"].is_string()).count();
            ensure!(succeeded == count, "{succeeded} of {count} CronJobs know that their Job has succeeded");
            Ok(jobs.iter().all(|it| has_condition(it, "Complete")))
        })
        .await?;
        for kind in [Kind::CronJob, Kind::Job, Kind::Pod] {
            let observed = objects.observed_count(kind);
            ensure!(observed == count, "{observed} objects of {kind:?} for {count} CronJobs");
        }
        Ok(())
    }

    /// Each deleted pod was replaced by one.
    async fn check_replaced_pods(&self, namespace: &str, deleted: usize, replicas: usize) -> anyhow::Result<()> {
        let objects = self.objects(namespace);
        self.until(&format!("{replicas} pods of {namespace} to run"), async || {
            let pods = objects.existing(Kind::Pod);
            let running = |it: &&Value| it["status"]["phase"] == "Running" && !is_deleting(it);
            let running = pods.iter().filter(running).count();
            ensure!(running == replicas && pods.len() == replicas, "{running} of {} pods run", pods.len());
            Ok(true)
        })
        .await?;
        let (observed, wanted) = (objects.observed_count(Kind::Pod), replicas + deleted);
        ensure!(observed == wanted, "{namespace} has had {observed} pods, wanted {wanted}");
        Ok(())
    }

    /// The dependents of deleted owners are gone, or orphaned; those of the living one remain.
    async fn check_trees(&self, count: usize) -> anyhow::Result<()> {
        let mut wanted: BTreeSet<String> = (0..KEPT).map(|it| format!("kept-{it}")).collect();
        wanted.insert("kept".to_owned());
        let orphaned = (0..count).filter(|it| propagation(*it) == "Orphan");
        wanted.extend(orphaned.flat_map(|tree| (0..3).map(move |it| format!("tree-{tree}-{it}"))));
        self.until("the garbage to be collected", async || {
            let items = self.admin.items(&path("v1", TREES, "configmaps")).await?;
            let of_load = |it: &String| it.starts_with("kept") || it.starts_with("tree-");
            let found: BTreeSet<String> = items.iter().map(|it| name(it).to_owned()).filter(of_load).collect();
            let lost: Vec<&String> = wanted.difference(&found).collect();
            let left: Vec<&String> = found.difference(&wanted).collect();
            ensure!(lost.is_empty() && left.is_empty(), "lost {lost:?}, left {left:?}");
            Ok(items.iter().all(|it| !it["metadata"]["finalizers"].is_array()))
        })
        .await?;
        self.until("the namespaces to be removed", async || {
            let all = self.admin.items("/api/v1/namespaces").await?;
            let left: Vec<&str> = all.iter().map(name).filter(|it| it.starts_with(GONE)).collect();
            ensure!(left.is_empty(), "{left:?}");
            Ok(true)
        })
        .await
    }

    /// Only the pods that tolerate everything are left, and they are the first ones.
    async fn check_evictions(&self) -> anyhow::Result<()> {
        for namespace in [EVICTIONS, DYING] {
            let objects = self.objects(namespace);
            self.until(&format!("the evicted pods of {namespace} to be gone"), async || {
                let left: Vec<String> = objects.existing(Kind::Pod).iter().map(|it| name(it).to_owned()).collect();
                ensure!(left == ["tolerant"], "{left:?}");
                Ok(true)
            })
            .await?;
            let tolerant = objects.observed(Kind::Pod).iter().filter(|it| name(it) == "tolerant").count();
            ensure!(tolerant == 1, "the pod that tolerates everything was replaced");
        }
        Ok(())
    }

    /// The marks of the nodes follow from their state.
    async fn check_nodes(&self) -> anyhow::Result<()> {
        self.until("the marks of the nodes", async || {
            for node in self.admin.items("/api/v1/nodes").await? {
                let is_cordoned = node["spec"]["unschedulable"] == true;
                ensure!(has_taint(&node, "node.kubernetes.io/unschedulable") == is_cordoned, "{}", node["spec"]);
                ensure!(!has_taint(&node, UNREACHABLE) && !has_taint(&node, OUT_OF_SERVICE), "{}", node["spec"]);
                ensure!(node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0", "{}", node["metadata"]);
            }
            Ok(true)
        })
        .await
    }
}

fn is_failing(number: usize) -> bool {
    number % 4 == 3
}

fn has_short_life(number: usize) -> bool {
    number % 2 == 1
}

fn propagation(number: usize) -> &'static str {
    ["Background", "Foreground", "Orphan"][number % 3]
}

fn path(group: &str, namespace: &str, resource: &str) -> String {
    let prefix = if group == "v1" { "/api/v1".to_owned() } else { format!("/apis/{group}") };
    format!("{prefix}/namespaces/{namespace}/{resource}")
}

fn containers() -> Value {
    json!([{ "name": "main", "image": "example.com/main:1" }])
}

fn tolerations() -> Value {
    json!([{ "key": FOR_LOAD, "operator": "Exists" }])
}

/// A template whose pods end soon with this code.
fn short_pod(exit_code: &str) -> Value {
    let lines = json!({ format!("{PREFIX}run-for"): "300ms", format!("{PREFIX}exit-code"): exit_code });
    let spec = json!({ "restartPolicy": "Never", "containers": containers(), "tolerations": tolerations() });
    json!({ "metadata": { "annotations": lines }, "spec": spec })
}

/// A pod on a node that runs for ever.
fn pod(name: &str, node: &str, tolerations: &Value) -> Value {
    json!({ "metadata": { "name": name },
        "spec": { "nodeName": node, "tolerations": tolerations, "containers": containers() } })
}

/// An object with a selector and a template.
fn workload(name: &str, mut spec: Value) -> Value {
    let labels = json!({ "app": name });
    spec["selector"] = json!({ "matchLabels": labels });
    let pod = json!({ "containers": containers(), "tolerations": tolerations() });
    spec["template"] = json!({ "metadata": { "labels": labels }, "spec": pod });
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn has_condition(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}

fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().into_iter().flatten().any(|it| it["key"] == key)
}

fn by_name(objects: &[Value]) -> BTreeMap<String, &Value> {
    objects.iter().map(|it| (name(it).to_owned(), it)).collect()
}

fn count_by(objects: &[Value], key: impl Fn(&Value) -> Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for object in objects {
        *counts.entry(key(object).as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    counts
}
