//! The manager in this process.

use anyhow::{Context, bail};
use mini_kcm::{
    config::Config,
    flags::{self, Invocation},
    manager::Exit,
};
use tasks::Spawner;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    flags::Options,
    target::{Cluster, ManagerPlan, Target},
};

/// So that a user who makes a node silent does not wait for a minute. The fake kubelets renew their Leases more often
/// than real ones.
const SHORT_TIMES: [&str; 3] =
    ["--node-monitor-grace-period=10s", "--node-monitor-period=1s", "--node-eviction-rate=1"];

/// A started mini-kcm, which may have ended.
pub(crate) struct Manager {
    stop: CancellationToken,
    exit: oneshot::Receiver<Exit>,
    /// How it ended, once received: the channel delivers it only once.
    ended: Option<Exit>,
}

/// The manager's configuration; `None` if the cluster already has a manager.
pub(crate) fn config(options: &Options, target: &Target) -> anyhow::Result<Option<Config>> {
    let ManagerPlan::Ours { .. } = &target.manager else { return Ok(None) };
    let mut args = vec![format!("--kubeconfig={}", target.kubeconfig.display()), "--secure-port=0".to_owned()];
    if matches!(target.cluster, Cluster::Embedded { .. }) {
        args.extend(SHORT_TIMES.map(str::to_owned));
    }
    args.extend(options.manager.iter().cloned());
    // The invalid flags came from the user, after `--`.
    let typed = || format!("-- {}", options.manager.join(" "));
    match flags::parse(args) {
        Invocation::Run(parsed) => {
            let config = Config::new(parsed).map_err(|errors| anyhow::anyhow!(errors.join("; ")));
            Ok(Some(config.with_context(typed)?))
        }
        Invocation::Print(text) => bail!("after --: {text}"),
    }
}

impl Manager {
    /// Without a seed it draws one: on a shared cluster equal seeds would give equal identities in the leader election.
    pub(crate) async fn start(config: Config, seed: Option<u64>, spawner: &Spawner) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let mut deps =
            mini_kcm::start::deps(&config, klog::Handle::detached(), stop.clone()).await.map_err(anyhow::Error::msg)?;
        deps.seed = seed.unwrap_or(deps.seed);
        let (sender, exit) = oneshot::channel();
        spawner.spawn("mini-kcm", async move {
            let exit = mini_kcm::manager::run(config, deps).await;
            // The receiver is gone when the playground has ended already.
            let _ = sender.send(exit);
        });
        Ok(Self { stop, exit, ended: None })
    }

    /// Stops it in order. Returns why that failed, unless it had ended before and that was reported.
    pub(crate) async fn end(mut self) -> Option<String> {
        if self.ended.is_some() {
            return None;
        }
        self.stop.cancel();
        match self.exit().await {
            Exit::Clean => None,
            Exit::Failed(cause) => Some(cause.clone()),
        }
    }

    async fn exit(&mut self) -> &Exit {
        match self.ended {
            Some(ref exit) => exit,
            None => {
                let exit = (&mut self.exit).await;
                self.ended.insert(exit.unwrap_or_else(|_| Exit::Failed("no result".to_owned())))
            }
        }
    }
}

/// Waits until the manager has ended by itself, and returns how.
pub(crate) async fn wait_for_exit(manager: Option<&mut Manager>) -> String {
    match manager {
        None => std::future::pending().await,
        Some(manager) => match manager.exit().await {
            Exit::Failed(cause) => cause.clone(),
            Exit::Clean => "it ended without an error, but it was not stopped".to_owned(),
        },
    }
}
