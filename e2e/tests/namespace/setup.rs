//! The setup of the scenarios.

use std::time::Duration;

use e2e::{Audit, AuditEvent, Flavour, Identity, Launch, Manager, Rest, eventually, namespaces, objects, report};
use tokio::sync::OnceCell;

use crate::support::{On, Server};

/// A namespace is never finalized earlier than this after its deletion.
pub(crate) const SAFETY_DELAY: Duration = Duration::from_secs(5);
/// The time limit for the removal of a namespace without obstacles, also on a busy machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

pub(crate) const DISCOVERY: &str = "NamespaceDeletionDiscoveryFailure";
pub(crate) const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
pub(crate) const REMAINING: &str = "NamespaceContentRemaining";
pub(crate) const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// What the scenarios share. Its processes end with ours.
struct Shared {
    server: Server,
    manager: Manager,
}

/// The setup of one scenario; prints the manager's log when the scenario fails.
pub(crate) struct Setup {
    shared: &'static Shared,
    pub(crate) admin: Rest,
}

impl Setup {
    /// `None` if there is no such server.
    pub(crate) async fn new(on: On, name: &str) -> anyhow::Result<Option<Self>> {
        static REAL: OnceCell<Option<Shared>> = OnceCell::const_new();
        static EMBEDDED: OnceCell<Option<Shared>> = OnceCell::const_new();
        let shared = match on {
            On::Real => &REAL,
            On::Embedded => &EMBEDDED,
        };
        let start = async || {
            let Some(server) = on.audited("namespaces").await? else { return Ok(None) };
            let Some(flavour) = flavour(&server) else { return Ok(None) };
            let manager = launch(&server, flavour)?.started().await?;
            anyhow::Ok(Some(Shared { server, manager }))
        };
        let Some(shared) = shared.get_or_try_init(start).await? else {
            report(&format!("NOT RUN on the {on:?} server: {name}"));
            return Ok(None);
        };
        report(&format!("on the {on:?} server: {name}"));
        let admin = shared.server.admin().await?;
        Ok(Some(Self { shared, admin }))
    }

    pub(crate) fn server(&self) -> &'static Server {
        &self.shared.server
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.shared.manager.flavour() == Flavour::Ours
    }

    pub(crate) fn audit(&self) -> Audit {
        self.shared.server.audit()
    }

    /// Creates a namespace with these objects.
    pub(crate) async fn namespace(&self, name: &str, content: Vec<objects::PathAndObject>) -> anyhow::Result<()> {
        namespaces::create(&self.admin, name).await?;
        self.admin.create_all(content).await
    }

    /// Waits until a pass of the manager over the namespace has begun and ended. Passes are counted in the audit log,
    /// by the lists of a kind that is never empty there.
    pub(crate) async fn wait_for_passes(&self, namespace: &str, resource: &str, more: usize) -> anyhow::Result<()> {
        let mut audit = self.audit();
        let list = |it: &AuditEvent| is_list_of(it, namespace, resource);
        let before = audit.count(list)?;
        let what = format!("{more} more passes over {namespace}");
        eventually(&what, TIME_LIMIT, async || Ok((audit.count(list)? >= before + more).then_some(()))).await
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.manager.show_log();
        }
    }
}

/// Which manager runs on this server, if it is available.
pub(crate) fn flavour(server: &Server) -> Option<Flavour> {
    let flavour = Flavour::from_environment();
    let there = |it: &e2e::Assets| it.binary("kube-controller-manager").is_some();
    if flavour == Flavour::Go && !server.assets().is_ok_and(there) {
        report("NOT RUN: no kube-controller-manager among the binaries");
        return None;
    }
    Some(flavour)
}

pub(crate) fn launch(server: &Server, flavour: Flavour) -> anyhow::Result<Launch> {
    let launch = Launch::new(server, flavour)?.kubeconfig(&server.kubeconfig(Identity::Replica(0))?);
    // Ours with its defaults; upstream's defaults would take minutes for a hundred namespaces.
    Ok(match flavour {
        Flavour::Ours => launch,
        Flavour::Go => launch.flag("kube-api-qps", "200").flag("kube-api-burst", "200"),
    })
}

/// True for a list by the manager, in any form (full objects or metadata).
fn is_list_of(event: &AuditEvent, namespace: &str, resource: &str) -> bool {
    event.user() == Identity::Replica(0).user()
        && event.verb == "list"
        && event.namespace() == namespace
        && event.resource() == resource
}
