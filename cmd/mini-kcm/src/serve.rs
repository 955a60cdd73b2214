//! The serving port, and the connections for delegated authentication and authorization.

use std::{net::SocketAddr, path::Path};

use axum::Router;
use client::{Clients, ConfigError, Connection, Environment, Limits, PoolOptions};
use serving::Deps;
use tasks::Spawner;
use tokio::sync::oneshot;

use crate::config::Serving;

/// The rate limit of reviews, as in upstream.
const REVIEW_LIMITS: Limits = Limits { qps: 200.0, burst: 400 };

/// Connections for TokenReviews and SubjectAccessReviews; `None` without a usable kubeconfig.
#[derive(Clone, Default)]
pub struct ReviewConnections {
    /// From `--authentication-kubeconfig`.
    pub authentication: Option<Connection>,
    /// From `--authorization-kubeconfig`.
    pub authorization: Option<Connection>,
}

impl ReviewConnections {
    /// Opens the connections of the flags. Without a flag it uses the in-cluster configuration, if there is one.
    ///
    /// # Errors
    /// A text that names the flag.
    pub fn open(serving: &Serving, options: &PoolOptions) -> Result<Self, String> {
        let Serving { authentication_kubeconfig, authorization_kubeconfig, .. } = serving;
        Ok(Self {
            authentication: open("--authentication-kubeconfig", authentication_kubeconfig.as_deref(), options)?,
            authorization: open("--authorization-kubeconfig", authorization_kubeconfig.as_deref(), options)?,
        })
    }
}

fn open(flag: &str, kubeconfig: Option<&Path>, options: &PoolOptions) -> Result<Option<Connection>, String> {
    let opened = client::load(kubeconfig, None).and_then(|config| Connection::open(config, options.clone()));
    optional(flag, kubeconfig, opened)
}

/// A kubeconfig from a flag must be usable. Without a flag a missing connection is accepted, because the port can still
/// serve probes (`DelegatingAuthenticationOptions.getClient` of apiserver).
fn optional<T>(flag: &str, kubeconfig: Option<&Path>, opened: Result<T, ConfigError>) -> Result<Option<T>, String> {
    match (opened, kubeconfig) {
        (Ok(connection), _) => Ok(Some(connection)),
        (Err(err), None) => {
            if !err.is_no_pod() {
                tracing::warn!(
                    flag, %err,
                    "cannot use the in-cluster configuration; the serving port sends no reviews for this flag"
                );
            }
            Ok(None)
        }
        (Err(ConfigError::Kubeconfig { path, reason }), Some(_)) => Err(format!("{flag} {}: {reason}", path.display())),
        (Err(err), Some(_)) => Err(format!("{flag}: {err}")),
    }
}

/// An open serving port. It is closed on drop.
pub struct ServingPort {
    /// Its address.
    pub address: SocketAddr,
    _open: oneshot::Sender<()>,
}

/// Serves `pages` on a separate thread, so that many requests take no CPU time from the workers of the leader. The
/// thread ends when the future or the result is dropped.
///
/// # Errors
/// Why the port cannot be served. The text names the flag.
pub async fn serve(
    serving: &Serving,
    pages: Router,
    review_connections: ReviewConnections,
    environment: &Environment,
    (seed, spawner): (u64, Spawner),
) -> Result<ServingPort, String> {
    let api = |connection: Option<Connection>, name| {
        connection.map(|it| Clients::new(it, environment.clone()).unfenced(name, REVIEW_LIMITS))
    };
    let deps = Deps {
        authenticator: api(review_connections.authentication, "authentication"),
        authorizer: api(review_connections.authorization, "authorization"),
        clock: environment.clock.clone(),
        seed,
        metrics: environment.metrics.clone(),
        spawner,
    };
    let options = serving.options.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| format!("cannot serve: {err}"))?;
    let (open, mut closed) = oneshot::channel();
    let (sender, receiver) = oneshot::channel();
    let run_port = move || {
        runtime.block_on(async move {
            // No value is sent on `closed`. It completes when its sender is dropped, also while the port still starts.
            let served = tokio::select! {
                biased;
                _ = &mut closed => return,
                served = serving::serve(options, pages, deps) => served,
            };
            let is_serving = served.is_ok();
            // The receiver is gone when the manager has stopped.
            let _ = sender.send(served);
            if is_serving {
                let _ = closed.await;
            }
        });
        // Tasks that still run are aborted.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("serving".to_owned()).spawn(run_port);
    thread.map_err(|err| format!("cannot serve: {err}"))?;
    match receiver.await {
        Ok(Ok(address)) => Ok(ServingPort { address, _open: open }),
        Ok(Err(err)) => Err(err.to_string()),
        Err(_) => Err("cannot serve: the thread ended".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use client::InClusterError;

    use super::*;

    #[test]
    fn kubeconfig_from_a_flag_must_be_usable() {
        let no_pod = || ConfigError::InCluster(InClusterError::NoPod("KUBERNETES_SERVICE_HOST"));
        let no_roots = || ConfigError::Tls("no roots".to_owned());
        let unreadable = || ConfigError::Kubeconfig { path: "/k".into(), reason: "gone".to_owned() };
        let named = Some(Path::new("/k"));
        for (name, kubeconfig, opened, want) in [
            ("usable", None, Ok(()), Ok(Some(()))),
            ("no pod", None, Err(no_pod()), Ok(None)),
            ("a pod without authorities", None, Err(no_roots()), Ok(None)),
            ("usable kubeconfig", named, Ok(()), Ok(Some(()))),
            ("kubeconfig without authorities", named, Err(no_roots()), Err("--flag: client credentials: no roots")),
            ("no kubeconfig", named, Err(unreadable()), Err("--flag /k: gone")),
        ] {
            assert_eq!(optional("--flag", kubeconfig, opened), want.map_err(str::to_owned), "{name}");
        }
    }
}
