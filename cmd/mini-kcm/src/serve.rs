//! The serving port: which clients it asks who may see the pages.

use std::{net::SocketAddr, path::Path};

use axum::Router;
use client::{Clients, ConfigError, Connection, Environment, Limits, PoolOptions};
use serving::Deps;
use tasks::Spawner;
use tokio::sync::oneshot;

use crate::config::Serving;

/// As upstream.
const BUDGET: Limits = Limits { qps: 200.0, burst: 400 };

/// Connections for questions about tokens and rights; none where nobody can be asked.
#[derive(Clone, Default)]
pub struct Reviewers {
    /// Of `--authentication-kubeconfig`.
    pub authentication: Option<Connection>,
    /// Of `--authorization-kubeconfig`.
    pub authorization: Option<Connection>,
}

impl Reviewers {
    /// Opens what the flags name; without a flag, the cluster whose pod we are, if we are one.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub fn open(serving: &Serving, options: &PoolOptions) -> Result<Self, String> {
        let Serving { authentication_kubeconfig, authorization_kubeconfig, .. } = serving;
        Ok(Self {
            authentication: open("--authentication-kubeconfig", authentication_kubeconfig.as_deref(), options)?,
            authorization: open("--authorization-kubeconfig", authorization_kubeconfig.as_deref(), options)?,
        })
    }
}

fn open(flag: &str, kubeconfig: Option<&Path>, options: &PoolOptions) -> Result<Option<Connection>, String> {
    let config = match client::load(kubeconfig, None) {
        Ok(config) => config,
        Err(err) if err.is_no_pod() => return Ok(None),
        // As upstream: without it the port still tells probes how we are.
        Err(ConfigError::InCluster(err)) => {
            tracing::warn!(
                flag, %err,
                "the configuration of the pod that this is cannot be used, so nobody is asked who may see the pages"
            );
            return Ok(None);
        }
        Err(ConfigError::Kubeconfig { path, reason }) => return Err(format!("{flag} {}: {reason}", path.display())),
        Err(err) => return Err(format!("{flag}: {err}")),
    };
    Connection::open(config, options.clone()).map(Some).map_err(|err| format!("{flag}: {err}"))
}

/// A served port; closed when dropped.
pub struct Served {
    /// Where.
    pub address: SocketAddr,
    _open: oneshot::Sender<()>,
}

/// Serves `pages` on a thread of its own: whoever keeps the port busy takes nothing from the workers that lead. The thread
/// ends when this is given up.
///
/// # Errors
/// Why it cannot be served, naming the flag.
pub async fn serve(
    serving: &Serving,
    pages: Router,
    reviewers: Reviewers,
    environment: &Environment,
    (seed, spawner): (u64, Spawner),
) -> Result<Served, String> {
    let api = |connection: Option<Connection>, name| {
        connection.map(|it| Clients::new(it, environment.clone()).unfenced(name, BUDGET))
    };
    let deps = Deps {
        authenticator: api(reviewers.authentication, "authentication"),
        authorizer: api(reviewers.authorization, "authorization"),
        clock: environment.clock.clone(),
        seed,
        metrics: environment.metrics.clone(),
        spawner,
    };
    let options = serving.options.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| format!("cannot serve: {err}"))?;
    let (open, mut closed) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    let work = move || {
        runtime.block_on(async move {
            // Nobody sends on `closed`, it ends with its sender: also while the port still starts.
            let served = tokio::select! {
                biased;
                _ = &mut closed => return,
                served = serving::serve(options, pages, deps) => served,
            };
            let serves = served.is_ok();
            // Nobody waits for the answer of a manager that is gone.
            let _ = tell.send(served);
            if serves {
                let _ = closed.await;
            }
        });
        // What still runs is cut.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("serving".to_owned()).spawn(work);
    thread.map_err(|err| format!("cannot serve: {err}"))?;
    match told.await {
        Ok(Ok(address)) => Ok(Served { address, _open: open }),
        Ok(Err(err)) => Err(err.to_string()),
        Err(_) => Err("cannot serve: the thread ended".to_owned()),
    }
}
