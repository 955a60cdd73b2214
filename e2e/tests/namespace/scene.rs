//! What the scenarios stand on, and how they begin.

use std::time::Duration;

use e2e::{
    Audit, AuditEvent, ControlPlane, Flavour, Identity, Launch, Manager, Options, Rest, assets_or_skip, eventually,
    namespaces, objects, say,
};
use http::Method;
use tokio::sync::OnceCell;

/// No namespace is finalized earlier after its deletion.
pub(crate) const SAFETY_DELAY: Duration = Duration::from_secs(5);
/// A namespace without obstacles is gone by then, on a busy machine too.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) const DISCOVERY: &str = "NamespaceDeletionDiscoveryFailure";
pub(crate) const CONTENT_FAILURE: &str = "NamespaceDeletionContentFailure";
pub(crate) const REMAINING: &str = "NamespaceContentRemaining";
pub(crate) const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// What the scenarios share. Its processes end with ours.
struct Shared {
    plane: ControlPlane,
    manager: Manager,
}

/// One scenario's view of it; shows the manager's log when the scenario fails.
pub(crate) struct Scene {
    shared: &'static Shared,
    pub(crate) admin: Rest,
    flavour: Flavour,
}

impl Scene {
    /// `None` where there is no control plane to enter.
    pub(crate) async fn enter(name: &str) -> anyhow::Result<Option<Self>> {
        static SHARED: OnceCell<Shared> = OnceCell::const_new();
        let Some(assets) = assets_or_skip(name) else { return Ok(None) };
        let Some(flavour) = flavour(assets) else { return Ok(None) };
        let start = async || {
            let plane = ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await?;
            let manager = launch(&plane, flavour)?.started().await?;
            anyhow::Ok(Shared { plane, manager })
        };
        let shared = SHARED.get_or_try_init(start).await?;
        let admin = shared.plane.admin().await?;
        Ok(Some(Self { shared, admin, flavour }))
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.flavour == Flavour::Ours
    }

    pub(crate) fn audit(&self) -> Audit {
        self.shared.plane.audit()
    }

    /// A namespace with these objects.
    pub(crate) async fn namespace(&self, name: &str, content: Vec<objects::Placed>) -> anyhow::Result<()> {
        namespaces::create(&self.admin, name).await?;
        self.admin.create_all(content).await
    }

    /// Waits until a pass of the manager over the namespace has begun and ended: lists of a kind that is never empty
    /// there, counted in the audit log.
    pub(crate) async fn passes(&self, namespace: &str, resource: &str, more: usize) -> anyhow::Result<()> {
        let mut audit = self.audit();
        let list = |it: &AuditEvent| is_list_of(it, namespace, resource);
        let before = audit.count(list)?;
        let what = format!("{more} more passes over {namespace}");
        eventually(&what, SOON, async || Ok((audit.count(list)? >= before + more).then_some(()))).await
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.manager.show_log();
        }
    }
}

pub(crate) fn flavour(assets: &e2e::Assets) -> Option<Flavour> {
    let flavour = Flavour::from_environment();
    if flavour == Flavour::Go && assets.binary("kube-controller-manager").is_none() {
        say(&format!("NOT RUN: no kube-controller-manager in {}", assets.folder().display()));
        return None;
    }
    Some(flavour)
}

pub(crate) fn launch(plane: &ControlPlane, flavour: Flavour) -> anyhow::Result<Launch> {
    let launch = Launch::new(plane, flavour)?.kubeconfig(&plane.kubeconfig(Identity::Replica(0))?);
    // Ours with its defaults; upstream's would take minutes for a hundred namespaces.
    Ok(match flavour {
        Flavour::Ours => launch,
        Flavour::Go => launch.flag("kube-api-qps", "200").flag("kube-api-burst", "200"),
    })
}

/// A list by the manager, whatever it asks to see of each object.
fn is_list_of(event: &AuditEvent, namespace: &str, resource: &str) -> bool {
    event.user() == Identity::Replica(0).user()
        && event.verb == "list"
        && event.namespace() == namespace
        && event.resource() == resource
}

/// Creates a policy that forbids the deletion of something and waits until it does.
pub(crate) async fn forbid(admin: &Rest, policy: [objects::Placed; 2], probe: &str) -> anyhow::Result<()> {
    for (path, object) in &policy {
        admin.create(path, object).await?;
    }
    eventually("the policy to be in force", SOON, async || {
        let answer = admin.send(Method::DELETE, &format!("{probe}?dryRun=All"), None).await?;
        Ok((answer.code == 422 || answer.code == 403).then_some(()))
    })
    .await
}
