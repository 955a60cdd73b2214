//! Replicas of our manager with one Lease, and the work that they do.

use std::time::Duration;

use clock::Clock;
use e2e::{AuditEvent, Flavour, Identity, Launch, Rest, Site, namespaces, objects};
use jiff::{SignedDuration, Timestamp};

/// How many namespaces are terminating, so that a new leader has work at once.
pub(crate) const BACKLOG: usize = 40;

/// Lease duration, renew deadline and retry period in milliseconds.
pub(crate) type Durations = (u32, u32, u32);
pub(crate) const DEFAULTS: Durations = (15_000, 10_000, 2_000);

pub(crate) fn user(replica: usize) -> &'static str {
    Identity::Replica(u8::try_from(replica).unwrap_or(u8::MAX)).user()
}

pub(crate) fn replica(site: &Site, number: usize, (duration, deadline, retry): Durations) -> anyhow::Result<Launch> {
    let identity = Identity::Replica(u8::try_from(number)?);
    Ok(Launch::new(site, Flavour::Ours)?
        .kubeconfig(&site.kubeconfig(identity)?)
        .flag("leader-elect-resource-name", "failover")
        // The namespace controller's rate limit is 20 times this, with a burst of 100 times this.
        .flag("kube-api-qps", "1")
        .flag("kube-api-burst", "1")
        .lease(duration, deadline, retry))
}

pub(crate) async fn terminating_count(admin: &Rest) -> anyhow::Result<usize> {
    let all = admin.items("/api/v1/namespaces").await?;
    Ok(all.iter().filter(|it| it["status"]["phase"] == "Terminating").count())
}

/// Creates a namespace with some ConfigMaps and deletes it.
pub(crate) async fn create_and_delete(admin: &Rest, name: &str, content: usize) -> anyhow::Result<()> {
    namespaces::create(admin, name).await?;
    admin.create_all((0..content).map(|it| objects::config_map(name, &format!("c-{it}"))).collect()).await?;
    namespaces::delete(admin, name).await
}

pub(crate) fn now() -> Timestamp {
    Clock::system().wall()
}

/// From `earlier` to `later`; zero if they are in the other order.
pub(crate) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    later.duration_since(earlier).try_into().unwrap_or(Duration::ZERO)
}

pub(crate) fn millis(millis: u32) -> SignedDuration {
    SignedDuration::from_millis(millis.into())
}

/// True for a successful write of the Lease that sets the replica as its holder.
pub(crate) fn is_lease_write_by(event: &AuditEvent, replica: usize) -> bool {
    event.user() == user(replica) && event.lease_holder().is_some_and(|it| !it.is_empty())
}
