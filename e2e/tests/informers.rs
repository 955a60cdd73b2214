//! Informers with a disturbed real API server: after the disturbance every store equals a fresh list.
//!
//! They run in this process, with the manager's connections.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{Cached, Lease, Meta, Namespace, Node, Pod, Resource};
use e2e::{
    ControlPlane, Gateway, Identity, Options, Proxy, Rest, Site, StandaloneInformers, assets_or_skip, eventually,
    namespaces, objects, report,
};
use futures::future::join_all;
use informer::{Dynamic, Informer, Scope, Watched};
use serde_json::{Value, json};

use crate::support::{On, on_both_servers};

/// The back-off may have grown to a minute while the server was not available.
const TIME_LIMIT: Duration = Duration::from_secs(150);
/// A watch of 60 to 75 s that is silent for ten seconds after its timeout counts as frozen.
const FROZEN_WATCH_TIME_LIMIT: Duration = Duration::from_secs(95);

const RELISTS: &str = "mini_kcm_informer_relists_total";
const FROZEN: &str = "mini_kcm_informer_frozen_watches_total";

/// Informers of five types: four typed, one as metadata.
struct Watching {
    view: StandaloneInformers,
    namespaces: Informer<Namespace>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    config_maps: Dynamic<Informer<Meta>>,
}

impl Watching {
    fn start(site: &Site, port: u16, seed: u64) -> anyhow::Result<Self> {
        let view = StandaloneInformers::open(&site.kubeconfig_through(Identity::Admin, port)?, seed)?;
        let config_maps = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
        Ok(Self {
            namespaces: view.informers.typed(),
            pods: view.informers.typed(),
            nodes: view.informers.typed(),
            leases: view.informers.typed(),
            config_maps: view.informers.dynamic(config_maps, Scope::Cluster),
            view,
        })
    }

    fn all(&self) -> Vec<Arc<dyn Watched>> {
        let mut all = self.view.informers.all();
        all.push(self.config_maps.watched());
        all
    }

    async fn synced(&self) -> anyhow::Result<()> {
        let all = self.all();
        tokio::time::timeout(TIME_LIMIT, join_all(all.iter().map(|it| it.wait_for_sync()))).await?;
        Ok(())
    }

    /// Waits until every store equals a fresh list.
    async fn wait_until_current(&self, admin: &Rest) -> anyhow::Result<()> {
        self.wait_until_typed_current(admin, TIME_LIMIT).await?;
        wait_until_equal(self.config_maps.target(), admin, TIME_LIMIT).await
    }

    async fn wait_until_typed_current(&self, admin: &Rest, within: Duration) -> anyhow::Result<()> {
        let (namespaces, pods) =
            (wait_until_equal(&self.namespaces, admin, within), wait_until_equal(&self.pods, admin, within));
        let (nodes, leases) =
            (wait_until_equal(&self.nodes, admin, within), wait_until_equal(&self.leases, admin, within));
        tokio::try_join!(namespaces, pods, nodes, leases).map(drop)
    }
}

/// Waits until a store has exactly the objects of a fresh list, in the same versions.
async fn wait_until_equal<T: Cached>(informer: &Informer<T>, admin: &Rest, within: Duration) -> anyhow::Result<()> {
    let path = informer.resource().collection(None);
    let what = format!("the store of {} to equal a fresh list", informer.resource());
    eventually(&what, within, async || {
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let listed: BTreeSet<[String; 4]> = admin
            .items(&path)
            .await?
            .iter()
            .map(|it| ["namespace", "name", "uid", "resourceVersion"].map(|field| text(it, field)))
            .collect();
        let entries = informer.store().entries();
        let unreadable = entries.iter().filter(|it| it.readable().is_none()).count();
        anyhow::ensure!(unreadable == 0, "{unreadable} objects do not decode");
        let held: BTreeSet<[String; 4]> = entries
            .iter()
            .map(|it| it.meta())
            .map(|it| [it.namespace.to_string(), it.name.to_owned(), it.uid.to_string(), it.version.to_string()])
            .collect();
        let (missing, surplus) = (listed.difference(&held), held.difference(&listed));
        anyhow::ensure!(
            listed == held,
            "missing {:?}, surplus {:?}",
            missing.collect::<Vec<_>>(),
            surplus.collect::<Vec<_>>()
        );
        Ok(Some(()))
    })
    .await
}

/// Creates, changes and deletes objects of all watched types at random, the same for equal seeds.
struct Churn {
    admin: Rest,
    rng: fastrand::Rng,
    /// The existing objects, by path.
    there: BTreeMap<String, bool>,
    turn: u32,
}

impl Churn {
    async fn start(admin: Rest, seed: u64) -> anyhow::Result<Self> {
        namespaces::create(&admin, "churn").await?;
        Ok(Self { admin, rng: fastrand::Rng::with_seed(seed), there: BTreeMap::new(), turn: 0 })
    }

    async fn run_steps(&mut self, steps: usize) -> anyhow::Result<()> {
        for _ in 0..steps {
            self.run_step().await?;
        }
        Ok(())
    }

    async fn run_step(&mut self) -> anyhow::Result<()> {
        self.turn += 1;
        let name = format!("it-{}", self.rng.u8(0..40));
        let (collection, object) = match self.rng.u8(0..5) {
            0 => objects::pod("churn", &name),
            1 => objects::config_map("churn", &name),
            2 => ("/api/v1/nodes".to_owned(), json!({ "metadata": { "name": name } })),
            3 => {
                let lease = json!({ "metadata": { "name": name }, "spec": { "holderIdentity": "e2e" } });
                ("/apis/coordination.k8s.io/v1/namespaces/churn/leases".to_owned(), lease)
            }
            // No controller finalizes these here: deleted ones remain terminating.
            _ => ("/api/v1/namespaces".to_owned(), json!({ "metadata": { "name": name } })),
        };
        let path = format!("{collection}/{name}");
        match self.there.get(&path) {
            None => {
                self.admin.create(&collection, &object).await?;
                self.there.insert(path, true);
            }
            Some(_) if collection == "/api/v1/namespaces" && self.rng.u8(0..3) > 0 => {
                self.label(&path).await?;
            }
            Some(true) if self.rng.bool() => {
                self.admin.delete(&path).await?;
                if collection != "/api/v1/namespaces" {
                    self.there.remove(&path);
                } else {
                    self.there.insert(path, false);
                }
            }
            Some(_) => self.label(&path).await?,
        }
        Ok(())
    }

    async fn label(&self, path: &str) -> anyhow::Result<()> {
        let label = json!({ "metadata": { "labels": { "turn": self.turn.to_string() } } });
        self.admin.merge(path, &label).await.map(drop)
    }
}

on_both_servers! {
    frozen_watches_are_detected_and_replaced
    many_429_responses_delay_and_lose_nothing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_are_correct_after_api_server_restart_and_compaction() {
    let Some(assets) = assets_or_skip("informers: restart and compaction") else { return };
    let mut plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let proxy = Proxy::start(plane.port()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let mut churn = Churn::start(admin.clone(), 1).await.unwrap();
    churn.run_steps(200).await.unwrap();
    let watching = Watching::start(&plane, proxy.port(), 1).unwrap();
    watching.synced().await.unwrap();
    churn.run_steps(100).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();

    plane.stop_apiserver().unwrap();
    plane.start_apiserver().await.unwrap();
    churn.run_steps(100).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();

    // The informers cannot see what happens now; then the server compacts it.
    proxy.cut();
    churn.run_steps(200).await.unwrap();
    plane.compact().await.unwrap();
    plane.stop_apiserver().unwrap();
    plane.start_apiserver().await.unwrap();
    let relists = watching.view.sum(RELISTS);
    proxy.restore();
    churn.run_steps(50).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();
    let relists = watching.view.sum(RELISTS) - relists;
    assert!(relists >= 1, "no version was too old: the compaction had no effect");
    report(&format!("informers: {relists} relists after a compaction"));
}

async fn frozen_watches_are_detected_and_replaced(on: On) {
    let Some(plane) = on.server("informers: frozen watches", Options::default()).await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let mut churn = Churn::start(admin.clone(), 2).await.unwrap();
    churn.run_steps(200).await.unwrap();
    // One proxy freezes the connections; the other keeps the connection working and answers its pings.
    let proxy = Proxy::start(plane.port()).await.unwrap();
    let gateway = Gateway::start(&plane).await.unwrap();
    let before_gateway = Proxy::start(gateway.port()).await.unwrap();
    let on_cable = Watching::start(&plane, proxy.port(), 2).unwrap();
    let behind_gateway = Watching::start(&plane, before_gateway.port(), 3).unwrap();
    on_cable.synced().await.unwrap();
    behind_gateway.synced().await.unwrap();
    // The stream of a first set has another timeout: wait until all watches are ordinary ones.
    let watches = behind_gateway.all().len() as u64;
    let ordinary = gateway.watch_count() + watches;
    before_gateway.cut_present();
    eventually("all watches to be open again", TIME_LIMIT, async || {
        Ok((gateway.watch_count() >= ordinary).then_some(()))
    })
    .await
    .unwrap();
    churn.run_steps(50).await.unwrap();
    behind_gateway.wait_until_current(&admin).await.unwrap();

    proxy.freeze_present();
    gateway.silence_watches();
    churn.run_steps(200).await.unwrap();
    let (cable, gateway) = tokio::join!(
        on_cable.wait_until_current(&admin),
        // Not the metadata watch, because it may be silent for ten minutes.
        behind_gateway.wait_until_typed_current(&admin, FROZEN_WATCH_TIME_LIMIT),
    );
    cable.unwrap();
    gateway.unwrap();
    assert_eq!(behind_gateway.view.sum(FROZEN), 4, "each of the typed watches was frozen");
    assert_eq!(behind_gateway.view.sum(RELISTS), 0, "a frozen watch is reopened, not listed");
}

async fn many_429_responses_delay_and_lose_nothing(on: On) {
    let Some(plane) = on.server("informers: 429 storms", Options::default()).await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let mut churn = Churn::start(admin.clone(), 4).await.unwrap();
    churn.run_steps(200).await.unwrap();
    let gateway = Gateway::start(&plane).await.unwrap();
    let proxy = Proxy::start(gateway.port()).await.unwrap();
    // It starts while requests are refused …
    gateway.refuse_next(2);
    let watching = Watching::start(&plane, proxy.port(), 4).unwrap();
    watching.synced().await.unwrap();
    let watches = watching.all().len() as u64;
    assert!(gateway.refused() >= 2 * watches, "each type was refused twice");
    // … and then all watches are cut while requests are refused again.
    gateway.refuse_next(2);
    proxy.cut_present();
    churn.run_steps(100).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();
    assert!(gateway.refused() >= 4 * watches, "each type was refused twice again");
    assert_eq!(watching.view.sum(RELISTS), 0, "a refusal is no reason to list");
    churn.run_steps(50).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_frames_lose_nothing() {
    let Some(assets) = assets_or_skip("informers: --goaway-chance") else { return };
    let flags = vec!["--goaway-chance=0.02".to_owned()];
    let plane = ControlPlane::start(assets, Options { apiserver_flags: flags, ..Options::default() }).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let mut churn = Churn::start(admin.clone(), 5).await.unwrap();
    let proxy = Proxy::start(plane.port()).await.unwrap();
    let watching = Watching::start(&plane, proxy.port(), 5).unwrap();
    watching.synced().await.unwrap();
    // The server sends GOAWAY for one request of fifty: reopen watches until a connection has ended.
    let connections = proxy.accepted();
    eventually("a connection to be closed", TIME_LIMIT, async || {
        watching.all().iter().for_each(|it| it.reopen_for_proof());
        churn.run_steps(10).await?;
        Ok((proxy.accepted() > connections + 1).then_some(()))
    })
    .await
    .unwrap();
    churn.run_steps(100).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();
    report(&format!("informers: {} connections under --goaway-chance", proxy.accepted()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_watches_than_streams_of_a_connection_are_all_served() {
    let Some(assets) = assets_or_skip("informers: --http2-max-streams-per-connection") else { return };
    let flags = vec!["--http2-max-streams-per-connection=32".to_owned()];
    let plane = ControlPlane::start(assets, Options { apiserver_flags: flags, ..Options::default() }).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let mut churn = Churn::start(admin.clone(), 6).await.unwrap();
    churn.run_steps(100).await.unwrap();
    let watching = Watching::start(&plane, plane.port(), 6).unwrap();
    let secrets = Resource::namespaced("", "v1", "secrets", "Secret");
    let many: Vec<_> = (0..70)
        .map(|it| watching.view.informers.dynamic(secrets.clone(), Scope::Namespace(format!("many-{it}").into())))
        .collect();
    watching.synced().await.unwrap();
    let watched: Vec<_> = many.iter().map(|it| it.watched()).collect();
    tokio::time::timeout(TIME_LIMIT, join_all(watched.iter().map(|it| it.wait_for_sync()))).await.unwrap();
    for number in 0..70 {
        let name = format!("many-{number}");
        namespaces::create(&admin, &name).await.unwrap();
        let (path, secret) = objects::secret(&name, "one");
        admin.create(&path, &secret).await.unwrap();
    }
    churn.run_steps(100).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();
    eventually("every watch to bring its secret", TIME_LIMIT, async || {
        Ok(many.iter().all(|it| it.store().len() == 1).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_work_without_http2() {
    let Some(assets) = assets_or_skip("informers: --disable-http2-serving") else { return };
    let flags = vec!["--disable-http2-serving".to_owned()];
    let plane = ControlPlane::start(assets, Options { apiserver_flags: flags, ..Options::default() }).await.unwrap();
    let proxy = Proxy::start(plane.port()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let mut churn = Churn::start(admin.clone(), 7).await.unwrap();
    churn.run_steps(100).await.unwrap();
    let watching = Watching::start(&plane, proxy.port(), 7).unwrap();
    watching.synced().await.unwrap();
    churn.run_steps(200).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();
    assert!(proxy.accepted() >= 5, "each watch has a connection of its own");
    proxy.cut_present();
    churn.run_steps(100).await.unwrap();
    watching.wait_until_current(&admin).await.unwrap();
}
