//! A scenario is written once and runs twice: on a real API server, and on the embedded one.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test binary uses its own part")]

mod embedded;
pub(crate) mod leaders;
mod once;
pub(crate) mod shipped;
pub(crate) mod tls;

use std::{ops::Deref, time::Duration};

use e2e::{ControlPlane, Flavour, Options, Site, assets_or_skip, eventually, objects, report};
use http::Method;

use embedded::Embedded;
pub(crate) use once::Once;

/// Each scenario as two tests, `real::<name>` and `embedded::<name>`.
macro_rules! on_both_servers {
    ($($scenario:ident)*) => {
        mod real {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario(crate::support::On::Real).await;
                }
            )*
        }

        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario(crate::support::On::Embedded).await;
                }
            )*
        }
    };
}
pub(crate) use on_both_servers;

/// The kind of server for a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Real,
    Embedded,
}

/// A server for scenarios.
pub(crate) enum Server {
    Real(ControlPlane),
    Embedded(Embedded),
}

impl Deref for Server {
    type Target = Site;
    fn deref(&self) -> &Site {
        match self {
            Self::Real(plane) => plane,
            Self::Embedded(embedded) => embedded.site(),
        }
    }
}

impl On {
    /// Starts a server for `scenario`; `None` after printing that there is none.
    pub(crate) async fn server(self, scenario: &str, options: Options) -> anyhow::Result<Option<Server>> {
        match self {
            Self::Real => {
                let Some(assets) = assets_or_skip(scenario) else { return Ok(None) };
                report(&format!("on the real API server: {scenario}"));
                Ok(Some(Server::Real(ControlPlane::start(assets, options).await?)))
            }
            Self::Embedded => {
                if Flavour::from_environment() == Flavour::Go {
                    report(&format!("NOT RUN on the embedded API server, which is for ours: {scenario}"));
                    return Ok(None);
                }
                report(&format!("on the embedded API server: {scenario}"));
                Ok(Some(Server::Embedded(Embedded::start(&options).await?)))
            }
        }
    }

    /// A server with an audit log.
    pub(crate) async fn audited(self, scenario: &str) -> anyhow::Result<Option<Server>> {
        self.server(scenario, Options { audit: true, ..Options::default() }).await
    }

    /// A server with an audit log and the manager to run on it, if both are available.
    pub(crate) async fn audited_manager(self, scenario: &str) -> anyhow::Result<Option<(Server, Flavour)>> {
        let Some(server) = self.audited(scenario).await? else { return Ok(None) };
        let flavour = Flavour::from_environment();
        if flavour == Flavour::Go && !server.assets().is_ok_and(|it| it.binary("kube-controller-manager").is_some()) {
            report("NOT RUN: no kube-controller-manager among the binaries");
            return Ok(None);
        }
        Ok(Some((server, flavour)))
    }

    /// The limit for a measured time. On a real server the release build is measured; on the embedded server a debug
    /// build, with the server in the process of the test.
    pub(crate) fn time_limit(self, most: Duration) -> Duration {
        match self {
            Self::Real => most,
            Self::Embedded => most * 4,
        }
    }
}

/// A ban on deletes.
pub(crate) struct Ban {
    namespace: String,
    resource: String,
    /// The objects that enforce it on a real server.
    paths: Vec<String>,
}

impl Server {
    /// Forbids deletes of `resource` (of the core group) in a namespace, and waits until this is in force; `probe` is
    /// the name of one of the objects. The refusal contains `<resource> stay`.
    pub(crate) async fn forbid(&self, namespace: &str, resource: &str, probe: &str) -> anyhow::Result<Ban> {
        let mut ban = Ban { namespace: namespace.to_owned(), resource: resource.to_owned(), paths: Vec::new() };
        match self {
            Self::Embedded(embedded) => embedded.forbid(namespace, resource),
            Self::Real(plane) => {
                let admin = plane.admin().await?;
                let name = format!("e2e-{namespace}");
                for (path, object) in objects::undeletable(&name, namespace, resource) {
                    admin.create(&path, &object).await?;
                    ban.paths.push(format!("{path}/{name}"));
                }
                let probe = format!("/api/v1/namespaces/{namespace}/{resource}/{probe}?dryRun=All");
                eventually("the policy to be in force", Duration::from_secs(60), async || {
                    let answer = admin.send(Method::DELETE, &probe, None).await?;
                    Ok((answer.code == 422 || answer.code == 403).then_some(()))
                })
                .await?;
            }
        }
        Ok(ban)
    }

    /// Removes the ban.
    pub(crate) async fn permit(&self, ban: Ban) -> anyhow::Result<()> {
        match self {
            Self::Embedded(embedded) => embedded.permit(&ban.namespace, &ban.resource),
            Self::Real(plane) => {
                let admin = plane.admin().await?;
                for path in ban.paths.iter().rev() {
                    admin.delete(path).await?;
                }
            }
        }
        Ok(())
    }
}
