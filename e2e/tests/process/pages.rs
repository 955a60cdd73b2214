//! The pages of port 10257, compared with kube-controller-manager on the same API server. Every difference is in
//! `docs/differences.md`, and every line there is still a difference.

mod allowed;
mod families;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use e2e::{ControlPlane, Flavour, Launch, Manager, Options, eventually, go_manager_or_skip, namespaces};
use http::Method;
use serde_json::Value;

use allowed::{Difference, Kind};
use families::Family;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The pages of one manager.
struct Pages {
    families: BTreeMap<String, Family>,
    /// Leaves of `/configz`, by path.
    configuration: BTreeMap<String, Value>,
    checks: BTreeSet<String>,
}

impl Pages {
    async fn read(manager: &Manager) -> anyhow::Result<Self> {
        let endpoints = manager.endpoints()?;
        let get = async |path: &str| {
            let answer = endpoints.send(Method::GET, path, None).await?;
            anyhow::ensure!(answer.code == 200, "{path}: {} {}", answer.code, answer.text);
            Ok(answer)
        };
        let checks = get("/healthz?verbose").await?;
        let checks = checks.text.lines().filter_map(|it| it.strip_prefix("[+]")?.strip_suffix(" ok"));
        let checks = checks.map(str::to_owned).collect();
        let mut configuration = BTreeMap::new();
        let configz = get("/configz").await?.json();
        leaves("", &configz["kubecontrollermanager.config.k8s.io"], &mut configuration);
        // Upstream's list comes from a map, so its order is random.
        let ignored = configuration.get_mut("/GarbageCollectorController/GCIgnoredResources");
        if let Some(list) = ignored.and_then(Value::as_array_mut) {
            list.sort_by_key(Value::to_string);
        }
        Ok(Self { families: families::parse(&get("/metrics").await?.text), configuration, checks })
    }

    /// The differences between ours and upstream's.
    fn compare(&self, upstreams: &Self) -> BTreeSet<Difference> {
        let mut found = BTreeSet::new();
        let mut differs = |page: &str, name: &str, kind| {
            found.insert(Difference { item: format!("{page} {name}"), kind });
        };
        for (name, kind) in one_sided(self.families.keys(), upstreams.families.keys()) {
            differs("/metrics", name, kind);
        }
        for (name, ours) in &self.families {
            if let Some(kind) = upstreams.families.get(name).and_then(|upstreams| ours.differs(upstreams)) {
                differs("/metrics", name, kind);
            }
        }
        for (name, kind) in one_sided(self.configuration.keys(), upstreams.configuration.keys()) {
            differs("/configz", name, kind);
        }
        for (path, ours) in &self.configuration {
            if upstreams.configuration.get(path).is_some_and(|it| it != ours) {
                differs("/configz", path, Kind::OtherValue);
            }
        }
        for (name, kind) in one_sided(self.checks.iter(), upstreams.checks.iter()) {
            differs("/healthz", name, kind);
        }
        found
    }
}

fn one_sided<'a>(
    ours: impl Iterator<Item = &'a String>,
    upstreams: impl Iterator<Item = &'a String>,
) -> Vec<(&'a str, Kind)> {
    let (ours, upstreams): (BTreeSet<&String>, BTreeSet<&String>) = (ours.collect(), upstreams.collect());
    let only_ours = ours.difference(&upstreams).map(|it| (it.as_str(), Kind::OnlyOurs));
    let only_upstreams = upstreams.difference(&ours).map(|it| (it.as_str(), Kind::OnlyUpstream));
    only_ours.chain(only_upstreams).collect()
}

/// Every value that is not an object, by its path. A list counts as one value.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value.as_object().filter(|it| !it.is_empty()) {
        Some(fields) => fields.iter().for_each(|(name, it)| leaves(&format!("{path}/{name}"), it, found)),
        None => drop(found.insert(path.to_owned(), value.clone())),
    }
}

/// A manager that leads and has emptied a namespace, so that every family has series.
async fn pages_after_work(plane: &ControlPlane, flavour: Flavour) -> anyhow::Result<Pages> {
    let admin = plane.admin().await?;
    let launch = Launch::new(plane, flavour)?
        .flag("leader-elect-resource-name", &format!("{flavour:?}").to_lowercase())
        .flag("authorization-always-allow-paths", "/*");
    let mut manager = launch.started().await?;
    let name = format!("worked-on-by-{flavour:?}").to_lowercase();
    namespaces::create(&admin, &name).await?;
    namespaces::delete(&admin, &name).await?;
    namespaces::wait_until_gone(&admin, &name, TIME_LIMIT).await?;
    manager.wait_until_ok("/metrics/slis").await?;
    eventually("the check of the namespace controller", TIME_LIMIT, async || {
        let pages = Pages::read(&manager).await?;
        Ok(Some(pages).filter(|it| it.checks.contains("namespace-controller")))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_shell_023_028_045_differences_from_upstreams_pages_are_listed() {
    let scenario = "pages compared with kube-controller-manager's";
    let Some(assets) = go_manager_or_skip(scenario) else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let upstreams = pages_after_work(&plane, Flavour::Go).await.unwrap();
    let ours = pages_after_work(&plane, Flavour::Ours).await.unwrap();
    assert!(ours.families.len() > 30 && ours.configuration.len() > 100, "the pages were read");
    allowed::check(&ours.compare(&upstreams));
}
