//! Two replicas: the change of the leader, measured by the API server's audit log, and the start of a process.
//!
//! `ROUNDS` (3 unless set) is how often a change is measured on a real server; `docs/benchmarks.md` uses 12. Two scenarios
//! run at once, because they mostly wait. Those with the shortest limits run alone on a real server.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

mod support;

use std::time::Duration;

use clock::Clock;
use e2e::{
    Audit, AuditEvent, ControlPlane, Figures, Flavour, Launch, Manager, Options, Rest, Signal, assets_or_skip,
    eventually, free_port,
};
use http::Method;
use jiff::Timestamp;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::JoinHandle,
};

use support::{
    On, Server,
    leaders::{
        BACKLOG, DEFAULTS, Durations, between, create_and_delete, is_lease_write_by, millis, now, replica,
        terminating_count, user,
    },
    on_both_servers,
};

/// The limit for everything that works without a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Longer than the safety delay of a namespace.
const BACKLOG_OBSERVED: Duration = Duration::from_secs(7);

/// After a release a standby with idle workers acts within this time; the worst round may take longer on a busy
/// machine.
const AFTER_RELEASE: Duration = Duration::from_millis(150);
const AFTER_RELEASE_WORST: Duration = Duration::from_millis(500);
/// The same after the expiry of a lease that one of our managers held.
const AFTER_EXPIRY: Duration = Duration::from_millis(200);

static PLACES: Semaphore = Semaphore::const_new(2);

/// Real servers that run beside each other answer too late for these limits.
async fn acquire_places(on: On) -> SemaphorePermit<'static> {
    PLACES.acquire_many(if on == On::Real { 2 } else { 1 }).await.unwrap()
}

/// Nothing is measured on the embedded server, so one change is sufficient.
fn rounds(on: On) -> usize {
    match on {
        On::Real => std::env::var("ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(3),
        On::Embedded => 1,
    }
}

const SHORT: Durations = (3_000, 2_000, 500);

/// Two of our managers with one Lease. Their rate limit is so low that work queues up.
struct Replicas {
    // Dropped first, because their logs are in the control plane's folder.
    members: [Manager; 2],
    plane: Server,
    admin: Rest,
    audit: Audit,
    durations: Durations,
    /// When each was ready.
    started: [Timestamp; 2],
}

impl Replicas {
    async fn start(plane: Server, durations: Durations) -> anyhow::Result<Self> {
        let admin = plane.admin().await?;
        let first = replica(&plane, 0, durations)?.started().await?;
        let mut audit = plane.audit();
        audit.first("a first leader", TIME_LIMIT, |it| is_lease_write_by(it, 0)).await?;
        let second = replica(&plane, 1, durations)?.started().await?;
        Ok(Self { members: [first, second], plane, admin, audit, durations, started: [now(); 2] })
    }

    /// The number of the replica that holds the Lease.
    async fn leader(&mut self) -> anyhow::Result<usize> {
        let write = self.audit.last("renewal", |it| is_lease_write_by(it, 0) || is_lease_write_by(it, 1))?;
        Ok(usize::from(is_lease_write_by(&write, 1)))
    }

    /// Waits until the leader works, the other replica is ready, and there is enough work. Returns both numbers.
    async fn wait_until_ready_for_failover(&mut self, since: Timestamp) -> anyhow::Result<(usize, usize)> {
        let leader = self.leader().await?;
        let standby = 1 - leader;
        self.members[standby].wait_until_ok("/readyz").await?;
        let works = |it: &AuditEvent| it.user() == user(leader) && it.is_work() && it.received > since;
        self.audit.first("the leader's work", TIME_LIMIT, works).await?;
        // A namespace may be removed only after a manager has seen it terminating for five seconds. A standby that has
        // seen the backlog for longer can write at once, whatever the leader has done already.
        let seen = now().duration_since(self.started[standby]).unsigned_abs();
        tokio::time::sleep(BACKLOG_OBSERVED.saturating_sub(seen)).await;
        eventually("a backlog", TIME_LIMIT, async || {
            Ok((terminating_count(&self.admin).await? >= BACKLOG).then_some(()))
        })
        .await?;
        Ok((leader, standby))
    }

    /// The first write of a replica that was received after `since`.
    async fn first_work(&mut self, replica: usize, since: Timestamp) -> anyhow::Result<AuditEvent> {
        let wanted = |it: &AuditEvent| it.user() == user(replica) && it.is_work() && it.received > since;
        self.audit.first("the successor's work", TIME_LIMIT, wanted).await
    }

    /// The last successful write of the Lease by a replica.
    fn last_renewal(&mut self, replica: usize) -> anyhow::Result<AuditEvent> {
        self.audit.last("renewal", |it| is_lease_write_by(it, replica))
    }

    async fn restart(&mut self, replica_: usize) -> anyhow::Result<()> {
        self.members[replica_] = replica(&self.plane, replica_, self.durations)?.started().await?;
        self.started[replica_] = now();
        Ok(())
    }
}

/// Keeps namespaces with content terminating until it is dropped.
struct Workload(JoinHandle<()>);

impl Workload {
    fn start(admin: Rest) -> Self {
        Self(tokio::spawn(async move {
            for number in 0.. {
                // In some scenarios the server is not available at this time.
                while terminating_count(&admin).await.is_ok_and(|it| it >= BACKLOG + BACKLOG / 2) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                if create_and_delete(&admin, &format!("work-{number}"), 3).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }))
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.0.abort();
    }
}

on_both_servers! {
    acceptance_shell_036_terminated_leader_releases_and_standby_leads_at_once
    acceptance_shell_034_standby_leads_when_lease_of_killed_leader_expires
    acceptance_machinery_044_with_default_durations_killed_leader_is_replaced_within_twenty_seconds
}

async fn acceptance_shell_036_terminated_leader_releases_and_standby_leads_at_once(on: On) {
    let _places = acquire_places(on).await;
    let Some(plane) = on.audited("SIGTERM of the leader").await.unwrap() else { return };
    let mut replicas = Replicas::start(plane, DEFAULTS).await.unwrap();
    let _work = Workload::start(replicas.admin.clone());
    let mut figures = Figures::default();
    let mut since = Timestamp::MIN;
    for _ in 0..rounds(on) {
        let (leader, standby) = replicas.wait_until_ready_for_failover(since).await.unwrap();
        let asked = now();
        replicas.members[leader].signal(Signal::TERM).unwrap();
        assert_eq!(replicas.members[leader].exit(TIME_LIMIT).await.unwrap(), Some(0), "an orderly end");

        let is_release =
            |it: &AuditEvent| it.user() == user(leader) && it.received > asked && it.lease_holder() == Some("");
        let release = replicas.audit.first("the release", TIME_LIMIT, is_release).await.unwrap();
        let first = replicas.first_work(standby, asked).await.unwrap();
        assert!(first.received > release.received, "the successor acted before the release: {first:?}");
        let late = |it: &AuditEvent| it.user() == user(leader) && it.is_work() && it.received > release.received;
        assert_eq!(replicas.audit.count(late).unwrap(), 0, "the old leader wrote after its release");
        figures.add(between(release.completed, first.received));
        since = first.received;
        replicas.restart(leader).await.unwrap();
    }
    figures.print("SIGTERM of the leader, release to the successor's first write");
    assert!(figures.median() <= on.time_limit(AFTER_RELEASE), "{figures:?}");
    assert!(figures.worst() <= on.time_limit(AFTER_RELEASE_WORST), "{figures:?}");
}

async fn acceptance_shell_034_standby_leads_when_lease_of_killed_leader_expires(on: On) {
    let _places = acquire_places(on).await;
    let Some(plane) = on.audited("kill -9 of the leader").await.unwrap() else { return };
    let figures = kill_rounds(plane, SHORT, rounds(on)).await.unwrap();
    figures.print("kill -9 of the leader, expiry to the successor's first write");
    assert!(figures.median() <= on.time_limit(AFTER_EXPIRY), "{figures:?}");
    assert!(figures.worst() <= on.time_limit(AFTER_RELEASE_WORST), "{figures:?}");
}

async fn acceptance_machinery_044_with_default_durations_killed_leader_is_replaced_within_twenty_seconds(on: On) {
    let _place = PLACES.acquire().await;
    let Some(plane) = on.audited("kill -9 of the leader with default durations").await.unwrap() else { return };
    let figures = kill_rounds(plane, DEFAULTS, 1).await.unwrap();
    figures.print("kill -9 of the leader with default durations, expiry to the successor's first write");
    assert!(figures.worst() <= on.time_limit(AFTER_RELEASE_WORST), "{figures:?}");
}

async fn kill_rounds(plane: Server, durations: Durations, rounds: usize) -> anyhow::Result<Figures> {
    let mut replicas = Replicas::start(plane, durations).await?;
    let _work = Workload::start(replicas.admin.clone());
    let mut figures = Figures::default();
    let mut since = Timestamp::MIN;
    for _ in 0..rounds {
        let (leader, standby) = replicas.wait_until_ready_for_failover(since).await?;
        let lease = replicas.admin.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/failover").await?;
        let killed = now();
        replicas.members[leader].signal(Signal::KILL)?;
        replicas.members[leader].exit(TIME_LIMIT).await?;

        let first = replicas.first_work(standby, killed).await?;
        let renewal = replicas.last_renewal(leader)?;
        let earliest = renewal.received + millis(durations.0);
        anyhow::ensure!(
            first.received >= earliest,
            "the successor acted within the lease: {first:?} after {renewal:?}"
        );
        figures.add(between(renewal.completed + millis(durations.0), first.received));
        since = first.received;
        let after = replicas.admin.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/failover").await?;
        let transitions = |lease: &serde_json::Value| lease["spec"]["leaseTransitions"].as_u64();
        anyhow::ensure!(transitions(&after) == transitions(&lease).map(|it| it + 1), "{lease} became {after}");
        replicas.restart(leader).await?;
    }
    Ok(figures)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_is_live_within_fifty_milliseconds() {
    let _places = acquire_places(On::Real).await;
    let Some(assets) = assets_or_skip("the time from exec to /livez") else { return };
    let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
    let clock = Clock::system();
    let mut figures = Figures::default();
    for _ in 0..5 {
        let launch = Launch::new(&plane, Flavour::Ours).unwrap();
        let port = free_port().unwrap();
        let endpoints = Rest::unverified(port).unwrap();
        let began = clock.now();
        let manager = launch.flag("secure-port", &port.to_string()).start().unwrap();
        while endpoints.send(Method::GET, "/livez", None).await.map_or(true, |it| it.code != 200) {
            assert!(clock.now() - began < TIME_LIMIT, "{}", manager.log().unwrap());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        figures.add(clock.now() - began);
    }
    figures.print("exec to /livez ok");
    assert!(figures.median() <= Duration::from_millis(50), "{figures:?}");
}
