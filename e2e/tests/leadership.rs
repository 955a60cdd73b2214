//! Two replicas with one Lease: what a leader that pauses, or that has no API server, must not do; and how a Go manager
//! and ours take over from each other.

use std::time::Duration;

use e2e::{
    Audit, AuditEvent, ControlPlane, Flavour, Identity, Launch, Options, Proxy, Rest, Signal, eventually,
    go_manager_or_skip, namespaces, report,
};
use jiff::Timestamp;

use crate::support::{
    On,
    leaders::{
        BACKLOG, DEFAULTS, between, create_and_delete, is_lease_write_by, millis, now, replica, terminating_count, user,
    },
    on_both_servers,
};

/// The limit for everything that works without a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);

on_both_servers! {
    acceptance_machinery_056_leader_paused_beyond_its_term_writes_nothing_afterwards
    five_seconds_without_api_server_lose_neither_work_nor_leadership
    acceptance_shell_035_leader_that_cannot_renew_exits_before_a_new_leader_writes
}

async fn acceptance_machinery_056_leader_paused_beyond_its_term_writes_nothing_afterwards(on: On) {
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
async fn go_manager_and_ours_take_over_one_lease_from_each_other() {
    let Some(assets) = go_manager_or_skip("handing the Lease to a Go manager and back") else { return };
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
