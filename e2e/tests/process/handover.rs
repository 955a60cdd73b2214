//! Running Jobs are handed from the upstream manager to ours and back: each pod is counted once, whichever manager saw
//! it end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clock::Clock;
use e2e::{
    ControlPlane, Flavour, Launch, Options, Rest, eventually, go_manager_or_skip, namespaces, report,
    workloads::{Kind, NamespaceObjects, ObservedObjects, create},
};
use fake_nodes::{Environment, Fleet, PREFIX};
use serde_json::{Value, json};
use tasks::Scope;

const TIME_LIMIT: Duration = Duration::from_secs(90);
const NAMESPACE: &str = "handed";
const JOBS: [&str; 3] = ["plain", "indexed", "per-index"];
const COMPLETIONS: usize = 24;
/// The first manager is the upstream one; then they alternate.
const LEADERS: [Flavour; 4] = [Flavour::Go, Flavour::Ours, Flavour::Go, Flavour::Ours];

fn template() -> Value {
    json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example.com/main:1" }] } })
}

fn job(name: &str, more: &Value) -> Value {
    let mut spec = json!({ "completions": COMPLETIONS, "parallelism": 4, "backoffLimit": 100, "template": template() });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": spec })
}

/// The scheduler and the user: decides how each pod ends, and records it.
struct PodEnder {
    admin: Rest,
    objects: Arc<NamespaceObjects>,
    nodes: Vec<String>,
    /// For each Job: how many pods must succeed, and how many must fail.
    decided: BTreeMap<String, (u64, u64)>,
    known: BTreeSet<String>,
    /// For each Job: its last counters.
    counted: BTreeMap<String, (u64, u64)>,
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn job_of(pod: &Value) -> &str {
    pod["metadata"]["labels"]["job-name"].as_str().unwrap_or_default()
}

impl PodEnder {
    /// Binds all waiting pods. Every fifth pod of each Job fails.
    async fn bind(&mut self) -> anyhow::Result<()> {
        for pod in self.objects.existing(Kind::Pod) {
            let waits = !pod["spec"]["nodeName"].is_string() && !pod["metadata"]["deletionTimestamp"].is_string();
            if !waits || !self.known.insert(text(&pod, "uid").to_owned()) {
                continue;
            }
            let (well, failed) = self.decided.entry(job_of(&pod).to_owned()).or_default();
            let fails = (*well + *failed) % 5 == 2;
            *(if fails { failed } else { well }) += 1;
            let node = &self.nodes[self.known.len() % self.nodes.len()];
            let lines = json!({
                format!("{PREFIX}run-for"): "700ms",
                format!("{PREFIX}exit-code"): if fails { "1" } else { "0" },
            });
            let binding = json!({
                "metadata": { "name": text(&pod, "name"), "annotations": lines },
                "target": { "kind": "Node", "name": node },
            });
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}/binding", text(&pod, "name"));
            self.admin.create(&path, &binding).await?;
        }
        Ok(())
    }

    /// Checks the counters, which must never decrease and never exceed the number of ended pods.
    fn check_counters(&mut self) -> anyhow::Result<u64> {
        let mut all = 0;
        for job in self.objects.existing(Kind::Job) {
            let name = text(&job, "name").to_owned();
            let count = |field: &str| job["status"][field].as_u64().unwrap_or_default();
            let now = (count("succeeded"), count("failed"));
            let before = self.counted.insert(name.clone(), now).unwrap_or_default();
            anyhow::ensure!(now.0 >= before.0 && now.1 >= before.1, "{name}: {before:?} became {now:?}");
            let decided = self.decided.get(&name).copied().unwrap_or_default();
            anyhow::ensure!(
                now.0 <= decided.0 && now.1 <= decided.1,
                "{name}: {now:?} counted, {decided:?} decided to end"
            );
            all += now.0 + now.1;
        }
        Ok(all)
    }

    /// Continues until this many pods are counted.
    async fn run_until_counted(&mut self, wanted: u64) -> anyhow::Result<()> {
        let mut broken = None;
        eventually(&format!("{wanted} counted pods"), TIME_LIMIT, async || {
            self.bind().await?;
            match self.check_counters() {
                Ok(counted) if counted >= wanted => Ok(Some(())),
                Ok(counted) => anyhow::bail!("{counted}"),
                Err(err) => {
                    broken = Some(err);
                    Ok(Some(()))
                }
            }
        })
        .await?;
        broken.map_or(Ok(()), Err)
    }
}

fn launch(plane: &ControlPlane, flavour: Flavour) -> anyhow::Result<Launch> {
    Ok(Launch::as_kubeadm(plane, flavour, "job-controller", "handed")?.short_lease())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_running_jobs_are_counted_once_across_takeovers_by_go_manager_and_ours() {
    let Some(assets) = go_manager_or_skip("running Jobs handed over three times") else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let (scope, admin) = (Scope::new(), plane.admin().await.unwrap());
    let nodes = fake_nodes::Options { schedulers: Vec::new(), ..fake_nodes::Options::with_nodes(2) };
    let environment = Environment { client: admin.client().clone(), clock: Clock::system(), spawner: scope.spawner() };
    let fleet = Fleet::start(nodes, environment);
    fleet.registered().await;
    let observed = ObservedObjects::start(&admin, &scope.spawner());
    namespaces::create(&admin, NAMESPACE).await.unwrap();
    let indexed = json!({ "completionMode": "Indexed" });
    let per_index = json!({ "completionMode": "Indexed", "backoffLimitPerIndex": 4 });
    for (name, more) in JOBS.iter().zip([json!({}), indexed, per_index]) {
        create(&admin, NAMESPACE, &job(name, &more)).await.unwrap();
    }
    let mut ender = PodEnder {
        admin,
        objects: observed.in_namespace(NAMESPACE),
        nodes: fleet.names().to_vec(),
        decided: BTreeMap::new(),
        known: BTreeSet::new(),
        counted: BTreeMap::new(),
    };

    let mut leader = launch(&plane, LEADERS[0]).unwrap().started().await.unwrap();
    for (turn, flavour) in (1u64..).zip(&LEADERS[1..]) {
        ender.run_until_counted(turn * 15).await.unwrap();
        let successor = launch(&plane, *flavour).unwrap();
        let (successor, ()) = futures::join!(successor.take_over_from(&mut leader, TIME_LIMIT), async {
            // Pods still end while no manager counts them.
            ender.bind().await.unwrap();
        });
        leader = successor.unwrap();
    }
    let (objects, clock) = (ender.objects.clone(), Clock::system());
    let begun = clock.now();
    let done = eventually("the Jobs to be complete", TIME_LIMIT * 2, async || {
        ender.bind().await?;
        ender.check_counters()?;
        let jobs = objects.existing(Kind::Job);
        let complete = |it: &Value| {
            let conditions = it["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Complete" && it["status"] == "True")
        };
        let shown: Vec<&Value> = jobs.iter().map(|it| &it["status"]).collect();
        anyhow::ensure!(jobs.iter().all(complete), "{shown:?}");
        Ok(Some(()))
    });
    done.await.unwrap();
    report(&format!("three handovers; the rest took {:.1?}", clock.now().saturating_duration_since(begun)));

    ender.check_counters().unwrap();
    for name in JOBS {
        let (well, failed) = ender.decided[name];
        assert_eq!(ender.counted[name], (well, failed), "{name}");
        assert_eq!(usize::try_from(well).unwrap(), COMPLETIONS, "{name}: more pods than completions");
    }
    let pods = objects.existing(Kind::Pod);
    assert_eq!(pods.len(), ender.known.len(), "no pod is gone");
    let held = pods.iter().filter(|it| !it["metadata"]["finalizers"].is_null()).count();
    assert_eq!(held, 0, "no pod keeps the finalizer");
}
