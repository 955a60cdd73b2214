//! Controllers are swapped and taken back in a cluster with the built-in manager as kubeadm starts it, by the commands
//! of `docs/operations.md` with the files of `manifests/`, and in wrong orders. There is work for each controller all
//! the time.
//!
//! What is checked: the audit log shows one writer for each controller, and no longer pause than the documented one;
//! nothing is lost and nothing is done twice. The test is the kubelet of a control-plane node: it runs the managers as
//! processes and has a mirror pod for the built-in one. Only the times of the Leases and of nodes are shorter.
//!
//! `KILLS` (10 unless set) is how often the leader is killed.

#![expect(clippy::unwrap_used, reason = "scenarios are tests")]

#[path = "../support/mod.rs"]
mod support;

mod kubelet;
mod load;
mod steps;
mod writers;

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use clock::Clock;
use e2e::{ControlPlane, Identity, Options, Rest, eventually, free_port, go_manager_or_skip, kubectl_or_skip, report};
use http::Method;
use jiff::Timestamp;
use serde_json::json;
use tasks::Scope;

use kubelet::{BUILT_IN, Kubelet, Lease};
use load::Load;
use steps::Steps;
use support::shipped::account_for;
use writers::{Program, Writers};

/// The limit for a step, on a machine that compiles at the same time.
const TIME_LIMIT: Duration = Duration::from_secs(180);
/// The pause between two pieces of work of one kind.
const INTERVAL: Duration = Duration::from_secs(1);

const LEASE: Lease = (6, 5);
/// Each death of a leader costs this time.
const SHORT_LEASE: Lease = (4, 3);

/// A cluster with the built-in manager and with work.
struct Drill {
    kubelet: Arc<Kubelet>,
    steps: Steps,
    writers: Writers,
    admin: Rest,
    /// Pauses are checked from here on, unless there is none.
    begin: Option<Timestamp>,
}

/// Runs a scenario under load, and checks everything.
async fn drill(name: &str, lease: Lease, scenario: impl AsyncFnOnce(&mut Drill) -> anyhow::Result<()>) {
    let Some(assets) = go_manager_or_skip(name) else { return };
    if kubectl_or_skip(name).is_none() {
        return;
    }
    let scope = Scope::new();
    let plane = ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await.unwrap();
    let (admin, writers) = (plane.admin().await.unwrap(), Writers::new(plane.audit()));
    let kubelet = Kubelet::start(Arc::new(plane), lease, &scope.spawner()).await.unwrap();
    let load = Load::new(admin.clone(), &scope, INTERVAL).await.unwrap();
    let mut drill = Drill { kubelet: kubelet.clone(), steps: Steps::read().unwrap(), writers, admin, begin: None };
    let run = async {
        let steps = async {
            drill.until_work_by(Program::BuiltIn).await?;
            drill.begin = Some(Clock::system().wall());
            scenario(&mut drill).await?;
            let end = Clock::system().wall();
            load.stop();
            drill.begin.map_or(Ok(()), |begin| drill.writers.check_pauses(begin, end))
        };
        let (done, ()) = futures::try_join!(load.run(), steps)?;
        load.check(&done).await?;
        drill.writers.check_one_writer(&kubelet.starts().await)?;
        report(&format!("{name}: nothing lost and nothing doubled: {done:?}"));
        anyhow::Ok(())
    };
    let result = tokio::select! {
        result = run => result,
        never = kubelet.run() => match never {},
    };
    if let Err(err) = result {
        kubelet.show_logs().await;
        panic!("{name}: {err:#}");
    }
}

impl Drill {
    /// Waits until this program does all the work.
    async fn until_work_by(&mut self, program: Program) -> anyhow::Result<()> {
        self.writers.until_all_by(program, TIME_LIMIT).await
    }

    /// Waits until the leader among the pods of mini-kcm holds back this many controllers.
    async fn until_held_back(&self, count: usize) -> anyhow::Result<()> {
        eventually(&format!("{count} controllers to be held back"), TIME_LIMIT, async || {
            for port in self.kubelet.ports().await {
                let admin = Rest::unverified_as(port, json!({ "token": Identity::Admin.token() }))?;
                let page = admin.send(Method::GET, "/metrics", None).await?.text;
                let is_leader = |it: &str| it.starts_with("leader_election_master_status{") && it.ends_with(" 1");
                let held_back = page.lines().filter(|it| it.starts_with("mini_kcm_controller_held_back{")).count();
                if page.lines().any(is_leader) && held_back == count {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Kills the leader of mini-kcm, and returns its identity in the Lease.
    async fn kill_leader(&mut self) -> anyhow::Result<String> {
        let (pod, holder) = self.writers.leader()?;
        self.kubelet.kill(&pod).await?;
        Ok(holder)
    }

    /// The documented swap.
    async fn swap(&mut self) -> anyhow::Result<()> {
        self.steps.apply(&self.kubelet).await?;
        self.until_held_back(self.writers.controllers()).await?;
        self.steps.patch(&self.kubelet).await?;
        self.until_work_by(Program::Ours).await
    }

    /// A manager of ours on the Lease of the built-in one exits and names what it lacks.
    async fn refuse_to_lead(&self) -> anyhow::Result<()> {
        let kubelet = &self.kubelet;
        let kubeconfig = account_for(&kubelet.plane, &self.admin, ("mini-kcm", &json!({})), "on-one-lease").await?;
        let args = [format!("--leader-elect-resource-name={BUILT_IN}")];
        let mut process = kubelet.start_ours(&kubeconfig, &args, free_port()?)?;
        let (code, log) = (process.exit(TIME_LIMIT).await?.code(), process.log()?);
        ensure!(code == Some(1) && log.contains("refusing to lead"), "{code:?} {log}");
        ensure!(log.contains("endpoints-controller") && log.contains("--partial-takeover"), "{log}");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_swap_and_undo_lose_nothing() {
    drill("the documented swap", LEASE, async |drill| {
        for round in 1..=times("SWAPS", 1) {
            drill.swap().await?;
            report(&format!("swap {round}: all work is done by ours"));
            drill.steps.restore(&drill.kubelet).await?;
            drill.steps.delete(&drill.kubelet).await?;
            drill.until_work_by(Program::BuiltIn).await?;
            drill.kubelet.until_without_ours(TIME_LIMIT).await?;
            report(&format!("swap {round}: undone"));
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_orders_are_harmless() {
    drill("swaps in a wrong order", LEASE, async |drill| {
        let (kubelet, count) = (drill.kubelet.clone(), drill.writers.controllers());
        report("the patch first");
        drill.steps.patch(&kubelet).await?;
        drill.steps.apply(&kubelet).await?;
        drill.until_work_by(Program::Ours).await?;
        drill.until_held_back(0).await?;

        report("both on one Lease, and the built-in manager restarts in between");
        drill.refuse_to_lead().await?;
        kubelet.kill_built_in().await?;
        drill.refuse_to_lead().await?;
        drill.until_work_by(Program::Ours).await?;

        report("the leader of ours is killed");
        drill.kill_leader().await?;
        drill.until_work_by(Program::Ours).await?;

        report("the patch is forgotten in an upgrade, and ours is killed meanwhile");
        let patched = std::fs::read(kubelet.manifest())?;
        std::fs::copy(kubelet.folder.join("kube-controller-manager.before.yaml"), kubelet.manifest())?;
        drill.until_held_back(count).await?;
        drill.until_work_by(Program::BuiltIn).await?;
        drill.kill_leader().await?;
        drill.until_held_back(count).await?;
        drill.until_work_by(Program::BuiltIn).await?;

        report("the patch is applied again, and ours is killed in the middle");
        std::fs::write(kubelet.manifest(), &patched)?;
        drill.kill_leader().await?;
        drill.until_work_by(Program::Ours).await?;

        report("undone in the other order");
        drill.steps.delete(&kubelet).await?;
        drill.steps.restore(&kubelet).await?;
        drill.until_work_by(Program::BuiltIn).await?;
        kubelet.until_without_ours(TIME_LIMIT).await
    })
    .await;
}

/// How often something is repeated, by an environment variable.
fn times(variable: &str, default: u32) -> u32 {
    std::env::var(variable).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// How often the leader is killed.
fn kills() -> u32 {
    times("KILLS", 10)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_is_killed_again_and_again() {
    drill("kill -9 of our leader", SHORT_LEASE, async |drill| {
        drill.swap().await?;
        // A leader is killed before each controller has written.
        drill.begin = None;
        let kills = kills();
        // The next leader is killed after another number of writes each time.
        let writes = (0..60).map(|it| 1 + it * 17 % 60).cycle();
        for (_, count) in (0..kills).zip(writes) {
            let old = drill.kill_leader().await?;
            drill.writers.until_new_leader(&old, count, TIME_LIMIT).await?;
        }
        report(&format!("{kills} leaders were killed"));
        Ok(())
    })
    .await;
}
