//! Two replicas: the change of the leader, measured by the API server's audit log, and the start of a process.
//!
//! `ROUNDS` (3 unless set) is how often a change is measured; `docs/benchmarks.md` uses 12. Two scenarios run at once,
//! because they mostly wait. Those with the shortest limits run alone on a real server.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

mod support;

use std::time::Duration;

use clock::Clock;
use e2e::{
    Audit, AuditEvent, ControlPlane, Figures, Flavour, Identity, Launch, Manager, Options, Proxy, Rest, Signal, Site,
    assets_or_skip, eventually, free_port, go_manager_or_skip, namespaces, objects, report,
};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::JoinHandle,
};

use support::{On, Server, on_both_servers};

/// The limit for everything that works without a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How many namespaces are kept terminating, so that a new leader has work at once.
const BACKLOG: usize = 40;

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

fn rounds() -> usize {
    std::env::var("ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(3)
}

/// Lease duration, renew deadline and retry period in milliseconds.
type Durations = (u32, u32, u32);
const DEFAULTS: Durations = (15_000, 10_000, 2_000);
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
    async fn wait_until_settled(&mut self, since: Timestamp) -> anyhow::Result<(usize, usize)> {
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

fn user(replica: usize) -> &'static str {
    Identity::Replica(u8::try_from(replica).unwrap_or(u8::MAX)).user()
}

fn replica(site: &Site, number: usize, (duration, deadline, retry): Durations) -> anyhow::Result<Launch> {
    let identity = Identity::Replica(u8::try_from(number)?);
    Ok(Launch::new(site, Flavour::Ours)?
        .kubeconfig(&site.kubeconfig(identity)?)
        .flag("leader-elect-resource-name", "failover")
        // The namespace controller's rate limit is 20 times this, with a burst of 100 times this.
        .flag("kube-api-qps", "1")
        .flag("kube-api-burst", "1")
        .lease(duration, deadline, retry))
}

async fn terminating_count(admin: &Rest) -> anyhow::Result<usize> {
    let all = admin.items("/api/v1/namespaces").await?;
    Ok(all.iter().filter(|it| it["status"]["phase"] == "Terminating").count())
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

/// Creates a namespace with some ConfigMaps and deletes it.
async fn create_and_delete(admin: &Rest, name: &str, content: usize) -> anyhow::Result<()> {
    namespaces::create(admin, name).await?;
    admin.create_all((0..content).map(|it| objects::config_map(name, &format!("c-{it}"))).collect()).await?;
    namespaces::delete(admin, name).await
}

fn now() -> Timestamp {
    Clock::system().wall()
}

/// From `earlier` to `later`; zero if they are in the other order.
fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    later.duration_since(earlier).try_into().unwrap_or(Duration::ZERO)
}

fn millis(millis: u32) -> SignedDuration {
    SignedDuration::from_millis(millis.into())
}

on_both_servers! {
    acceptance_shell_036_terminated_leader_releases_and_standby_leads_at_once
    acceptance_shell_034_standby_leads_when_lease_of_killed_leader_expires
    acceptance_machinery_044_with_default_durations_killed_leader_is_replaced_within_twenty_seconds
    acceptance_machinery_056_leader_paused_beyond_its_term_writes_nothing_afterwards
    five_seconds_without_api_server_lose_neither_work_nor_leadership
    acceptance_shell_035_leader_that_cannot_renew_exits_before_a_new_leader_writes
}

async fn acceptance_shell_036_terminated_leader_releases_and_standby_leads_at_once(on: On) {
    let _places = acquire_places(on).await;
    let Some(plane) = on.audited("SIGTERM of the leader").await.unwrap() else { return };
    let mut replicas = Replicas::start(plane, DEFAULTS).await.unwrap();
    let _work = Workload::start(replicas.admin.clone());
    let mut figures = Figures::default();
    let mut since = Timestamp::MIN;
    for _ in 0..rounds() {
        let (leader, standby) = replicas.wait_until_settled(since).await.unwrap();
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
    let figures = kill_rounds(plane, SHORT, rounds()).await.unwrap();
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
        let (leader, standby) = replicas.wait_until_settled(since).await?;
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

async fn acceptance_machinery_056_leader_paused_beyond_its_term_writes_nothing_afterwards(on: On) {
    let _place = PLACES.acquire().await;
    let Some(plane) = on.audited("SIGSTOP of the leader").await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let mut audit = plane.audit();
    for number in 0..200 {
        create_and_delete(&admin, &format!("sleepy-{number}"), 2).await.unwrap();
    }
    // Four calls per second after the first hundred, so writes queue up for minutes.
    let slow = |number| Ok::<_, anyhow::Error>(replica(&plane, number, DEFAULTS)?.flag("kube-api-qps", "0.2"));
    let mut leader = slow(0).unwrap().started().await.unwrap();
    audit.first("a leader", TIME_LIMIT, |it| is_lease_write_by(it, 0)).await.unwrap();
    let mut standby = slow(1).unwrap().started().await.unwrap();
    standby.wait_until_ok("/readyz").await.unwrap();
    let work_of = |number| move |it: &AuditEvent| it.user() == user(number) && it.is_work();
    eventually("the leader to be busy", TIME_LIMIT, async || Ok((audit.count(work_of(0))? >= 20).then_some(())))
        .await
        .unwrap();

    leader.signal(Signal::STOP).unwrap();
    // The pause of the scenario, longer than the lease.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let taken_over = audit.first("the successor's work", TIME_LIMIT, work_of(1)).await.unwrap();
    let left = terminating_count(&admin).await.unwrap();
    assert!(left >= 50, "only {left} namespaces are left: nothing is queued in the paused leader");
    leader.signal(Signal::CONT).unwrap();
    assert_eq!(leader.exit(TIME_LIMIT).await.unwrap(), Some(1), "a lost lease ends the process");

    let renewal = audit.last("renewal", |it| is_lease_write_by(it, 0)).unwrap();
    let deadline = renewal.received + millis(DEFAULTS.1);
    assert!(taken_over.received > deadline);
    let late: Vec<_> = audit.events().unwrap().iter().filter(|it| work_of(0)(it) && it.received > deadline).collect();
    assert!(late.is_empty(), "{} writes after the deadline {deadline}: {:?}", late.len(), late.first());
    let before = audit.count(work_of(0)).unwrap();
    report(&format!("SIGSTOP for 20 s: {before} writes before the deadline, none after"));
}

async fn five_seconds_without_api_server_lose_neither_work_nor_leadership(on: On) {
    let _place = PLACES.acquire().await;
    let Some(plane) = on.audited("the API server away for 5 s").await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let mut audit = plane.audit();
    let proxy = Proxy::start(plane.port()).await.unwrap();
    let kubeconfig = plane.kubeconfig_through(Identity::Replica(0), proxy.port()).unwrap();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/away";
    let launch = Launch::new(&plane, Flavour::Ours).unwrap().kubeconfig(&kubeconfig);
    let mut manager = launch.flag("leader-elect-resource-name", "away").started().await.unwrap();
    let first = audit.first("a leader", TIME_LIMIT, |it| is_lease_write_by(it, 0)).await.unwrap();
    let holder = first.lease_holder().unwrap().to_owned();

    // Once with closed connections, once with frozen ones.
    for (name, disturb) in [("cut", Proxy::cut as fn(&Proxy)), ("frozen", Proxy::freeze)] {
        for number in 0..20 {
            create_and_delete(&admin, &format!("{name}-before-{number}"), 3).await.unwrap();
        }
        disturb(&proxy);
        for number in 0..20 {
            create_and_delete(&admin, &format!("{name}-meanwhile-{number}"), 3).await.unwrap();
        }
        // The outage of the scenario.
        tokio::time::sleep(Duration::from_secs(5)).await;
        proxy.restore();
        for number in 0..20 {
            namespaces::wait_until_gone(&admin, &format!("{name}-before-{number}"), TIME_LIMIT).await.unwrap();
            namespaces::wait_until_gone(&admin, &format!("{name}-meanwhile-{number}"), TIME_LIMIT).await.unwrap();
        }
        assert_eq!(manager.status().unwrap(), None, "{name}: the manager still runs");
        let spec = admin.get(lease).await.unwrap()["spec"].clone();
        assert_eq!(spec["holderIdentity"], *holder, "{name}");
        assert_eq!(spec["leaseTransitions"].as_u64().unwrap_or(0), 0, "{name}");
    }
}

async fn acceptance_shell_035_leader_that_cannot_renew_exits_before_a_new_leader_writes(on: On) {
    let _place = PLACES.acquire().await;
    let Some(plane) = on.audited("the API server away for longer than the renew deadline").await.unwrap() else {
        return;
    };
    let admin = plane.admin().await.unwrap();
    let mut audit = plane.audit();
    let proxy = Proxy::start(plane.port()).await.unwrap();
    let kubeconfig = plane.kubeconfig_through(Identity::Replica(0), proxy.port()).unwrap();
    let mut leader = replica(&plane, 0, DEFAULTS).unwrap().kubeconfig(&kubeconfig).started().await.unwrap();
    audit.first("a leader", TIME_LIMIT, |it| is_lease_write_by(it, 0)).await.unwrap();
    let mut standby = replica(&plane, 1, DEFAULTS).unwrap().started().await.unwrap();
    standby.wait_until_ok("/readyz").await.unwrap();
    for number in 0..BACKLOG {
        create_and_delete(&admin, &format!("waiting-{number}"), 3).await.unwrap();
    }

    proxy.cut();
    let code = leader.exit(TIME_LIMIT).await.unwrap();
    let exited = now();
    assert_eq!(code, Some(1), "a lost lease is a failure");
    let renewal = audit.last("renewal", |it| is_lease_write_by(it, 0)).unwrap();
    // One second more for the exit itself and for this test to notice it.
    let latest = renewal.completed + millis(DEFAULTS.1 + DEFAULTS.2 + 1_000);
    assert!(exited <= latest, "exited at {exited}, the last renewal was at {}", renewal.completed);
    let first =
        audit.first("the successor's work", TIME_LIMIT, |it| it.user() == user(1) && it.is_work()).await.unwrap();
    assert!(first.received > exited, "{first:?}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_manager_and_ours_take_over_one_lease_from_each_other() {
    let Some(assets) = go_manager_or_skip("handing the Lease to a Go manager and back") else { return };
    let _place = PLACES.acquire().await;
    let plane = ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let mut audit = plane.audit();
    let mut handed = LeaseHandover { plane: &plane, admin: &admin, audit: &mut audit };
    let mut leader = handed.launch(Flavour::Ours, 0).unwrap().started().await.unwrap();
    for (turn, flavour) in [(1, Flavour::Go), (2, Flavour::Ours), (3, Flavour::Go)] {
        handed.check_work(turn - 1).await.unwrap();
        let successor = handed.launch(flavour, turn).unwrap().started().await.unwrap();
        let asked = now();
        leader.signal(Signal::TERM).unwrap();
        let code = leader.exit(TIME_LIMIT).await.unwrap();
        let waited = handed.takeover_delay(turn, asked).await.unwrap();
        match leader.flavour() {
            Flavour::Ours => {
                assert_eq!(code, Some(0));
                assert!(waited < HANDED_LEASE, "released, but taken {waited:?} after the last renewal");
            }
            Flavour::Go => assert!(waited >= HANDED_LEASE, "not released, but taken {waited:?} after the last renewal"),
        }
        leader = successor;
    }
    handed.check_work(3).await.unwrap();
    let lease = admin.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/to-and-fro").await.unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 3, "{lease}");
}

const HANDED_LEASE: Duration = Duration::from_secs(6);

/// A Lease that is handed from one manager to the next; each has the number of its turn as its identity.
struct LeaseHandover<'a> {
    plane: &'a ControlPlane,
    admin: &'a Rest,
    audit: &'a mut Audit,
}

impl LeaseHandover<'_> {
    fn launch(&self, flavour: Flavour, turn: usize) -> anyhow::Result<Launch> {
        let identity = Identity::Replica(u8::try_from(turn)?);
        Ok(Launch::new(self.plane, flavour)?
            .kubeconfig(&self.plane.kubeconfig(identity)?)
            .flag("leader-elect-resource-name", "to-and-fro")
            .lease(u32::try_from(HANDED_LEASE.as_millis())?, 4_000, 1_000))
    }

    /// Checks that the manager of this turn does the work.
    async fn check_work(&mut self, turn: usize) -> anyhow::Result<()> {
        self.audit.first("a leader", TIME_LIMIT, |it| is_lease_write_by(it, turn)).await?;
        let name = format!("turn-{turn}");
        create_and_delete(self.admin, &name, 3).await?;
        namespaces::wait_until_gone(self.admin, &name, TIME_LIMIT).await?;
        let finalize = |it: &AuditEvent| it.resource() == "namespaces/finalize" && it.name() == name && it.succeeded();
        let finalized = self.audit.first("finalize", TIME_LIMIT, finalize).await?;
        anyhow::ensure!(finalized.user() == user(turn), "{name} was finalized by {}", finalized.user());
        Ok(())
    }

    /// How long after the last renewal of the previous leader its successor acquired the Lease.
    async fn takeover_delay(&mut self, turn: usize, asked: Timestamp) -> anyhow::Result<Duration> {
        let taken = self
            .audit
            .first("the takeover", TIME_LIMIT, |it| it.received > asked && is_lease_write_by(it, turn))
            .await?;
        let renewal = self.audit.last("renewal", |it| is_lease_write_by(it, turn - 1))?;
        Ok(between(renewal.received, taken.received))
    }
}

/// True for a successful write of the Lease that sets the replica as its holder.
fn is_lease_write_by(event: &AuditEvent, replica: usize) -> bool {
    event.user() == user(replica) && event.lease_holder().is_some_and(|it| !it.is_empty())
}
