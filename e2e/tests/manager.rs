//! The manager as a process: exit codes, messages, and its endpoints.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use e2e::{
    AuditEvent, Build, ControlPlane, Flavour, Identity, Launch, Options, Proxy, Signal, Usage, assets_or_skip, binary,
    eventually, namespaces, objects, report,
};
use http::Method;
use rustls::pki_types::ServerName;
use tokio::net::TcpListener;

use crate::support::{
    On, on_both_servers,
    tls::{served_certificate, verified},
};

/// The limit for everything that works without a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Runs the binary to its end, without the environment of a pod.
fn run(args: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary(Build::Debug)?);
    command.args(args).env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_SERVICE_PORT");
    Ok(command.output()?)
}

/// True for a successful write of a Lease that sets this manager as its holder.
fn is_lease_write_by(event: &AuditEvent, manager: Identity) -> bool {
    event.user() == manager.user() && event.lease_holder().is_some_and(|it| !it.is_empty())
}

/// Asserts exit code 1 and that stderr contains all of `wanted`.
fn assert_fails(args: &[&str], wanted: &[&str]) -> anyhow::Result<()> {
    let output = run(args)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    for words in wanted {
        assert!(stderr.contains(words), "{args:?} says {stderr:?}, not {words:?}");
    }
    Ok(())
}

on_both_servers! {
    acceptance_shell_016_without_port_nothing_listens_and_the_manager_works
    acceptance_shell_017_033_standby_serves_with_generated_certificate_and_writes_nothing
    acceptance_shell_039_controllers_start_between_one_and_two_intervals_after_leadership
    second_signal_ends_the_process_at_once
}

#[test]
fn acceptance_shell_006_007_unknown_controllers_are_all_reported_at_once() {
    assert_fails(&["--controllers=foo"], &["\"foo\" is not in the list of known controllers"]).unwrap();
    let both = ["\"foo\" is not in the list of known controllers", "\"bar\" is not in the list of known controllers"];
    assert_fails(&["--controllers=-foo,bar"], &both).unwrap();
}

#[tokio::test]
async fn acceptance_shell_012_bad_flags_end_the_process_before_any_api_access() {
    // A process that connects to the API server would connect here.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let master = format!("--master=http://{}", listener.local_addr().unwrap());
    assert_fails(&[&master, "--no-such-flag"], &["--no-such-flag"]).unwrap();
    assert_fails(&[&master, "positional"], &["does not take any arguments", "positional"]).unwrap();
    assert_fails(&[&master, "--concurrent-job-syncs=0"], &["concurrent-job-syncs"]).unwrap();
    assert_fails(&[&master, "--concurrent-namespace-syncs=0"], &["concurrent-namespace-syncs"]).unwrap();
    let came = tokio::time::timeout(Duration::from_millis(10), listener.accept()).await;
    assert!(came.is_err(), "the process connected: {came:?}");
}

#[test]
fn acceptance_shell_013_only_leases_can_be_the_lock() {
    let lock = "--leader-elect-resource-lock=endpoints";
    assert_fails(&[lock], &["resourceLock value must be \"leases\""]).unwrap();
    // Without election the value is accepted; the process exits because it has no API server.
    let output = run(&[lock, "--leader-elect=false", "--secure-port=0"]).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(!stderr.contains("resourceLock") && stderr.contains("--kubeconfig"), "{stderr}");
}

#[test]
fn acceptance_shell_015_outside_a_cluster_without_kubeconfig_the_error_names_what_is_missing() {
    assert_fails(&["--secure-port=0"], &["--kubeconfig", "--master", "in-cluster"]).unwrap();
    let missing = "--kubeconfig=/nowhere/to/be/found";
    assert_fails(&["--secure-port=0", missing], &["/nowhere/to/be/found"]).unwrap();
}

async fn acceptance_shell_016_without_port_nothing_listens_and_the_manager_works(on: On) {
    let Some(plane) = on.server("--secure-port=0", Options::default()).await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let manager = Launch::new(&plane, Flavour::Ours).unwrap().flag("secure-port", "0").start().unwrap();
    namespaces::create(&admin, "unserved").await.unwrap();
    namespaces::delete(&admin, "unserved").await.unwrap();
    namespaces::wait_until_gone(&admin, "unserved", TIME_LIMIT).await.unwrap();
    assert_eq!(listening_ports(manager.pid()).unwrap(), BTreeSet::new());

    let serving = Launch::new(&plane, Flavour::Ours).unwrap().started().await.unwrap();
    assert_eq!(
        listening_ports(serving.pid()).unwrap(),
        BTreeSet::from([serving.port()]),
        "the check sees what listens"
    );
}

/// The ports on which a process listens.
fn listening_ports(pid: u32) -> anyhow::Result<BTreeSet<u16>> {
    let mut inodes = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let inode = target.to_str().and_then(|it| it.strip_prefix("socket:[")?.strip_suffix(']'));
        inodes.extend(inode.map(str::to_owned));
    }
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("net").join(table));
        for line in table.unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Local address, state (0A listens) and inode.
            let [_, local, _, "0A", _, _, _, _, _, inode, ..] = fields[..] else { continue };
            if inodes.contains(inode) {
                let port = local.rsplit(':').next().unwrap_or_default();
                ports.insert(u16::from_str_radix(port, 16)?);
            }
        }
    }
    Ok(ports)
}

async fn acceptance_shell_017_033_standby_serves_with_generated_certificate_and_writes_nothing(on: On) {
    let Some(plane) = on.audited("a standby").await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let mut audit = plane.audit();
    let replica = |number| {
        let launch = Launch::new(&plane, Flavour::Ours).unwrap();
        launch
            .kubeconfig(&plane.kubeconfig(Identity::Replica(number)).unwrap())
            .flag("leader-elect-resource-name", "two")
    };
    let leader = replica(0).started().await.unwrap();
    audit.first("a leader", TIME_LIMIT, |it| is_lease_write_by(it, Identity::Replica(0))).await.unwrap();
    let mut standby = replica(1).started().await.unwrap();
    standby.wait_until_ok("/readyz").await.unwrap();
    for number in 0..20 {
        let name = format!("watched-{number}");
        namespaces::create(&admin, &name).await.unwrap();
        admin.create_all(objects::dozen(&name, 12)).await.unwrap();
        namespaces::delete(&admin, &name).await.unwrap();
    }
    for number in 0..20 {
        namespaces::wait_until_gone(&admin, &format!("watched-{number}"), TIME_LIMIT).await.unwrap();
    }
    let standby_user = Identity::Replica(1).user();
    // It requests reviews about itself, which change nothing.
    let written = |it: &AuditEvent| it.user() == standby_user && it.is_write() && !it.is_review();
    assert_eq!(audit.count(written).unwrap(), 0, "a standby writes nothing");

    let verbose = |manager: &e2e::Manager| manager.endpoints().unwrap();
    let health = verbose(&standby).send(Method::GET, "/healthz?verbose", None).await.unwrap();
    assert_eq!(health.code, 200);
    assert!(health.text.contains("[+]leaderElection ok"), "{}", health.text);
    assert!(!health.text.contains("namespace-controller"), "{}", health.text);
    let health = verbose(&leader).send(Method::GET, "/healthz?verbose", None).await.unwrap();
    assert!(health.text.contains("[+]namespace-controller ok"), "{}", health.text);
    let metrics = verbose(&standby).send(Method::GET, "/metrics", None).await.unwrap();
    assert!(metrics.text.contains("leader_election_master_status{name=\"two\"} 0"), "{}", metrics.text);

    let certificate = served_certificate(standby.port()).await.unwrap();
    for name in [ServerName::try_from("localhost").unwrap(), ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST))] {
        let name_ = name.clone();
        verified(standby.port(), certificate.clone(), name).await.unwrap_or_else(|err| panic!("{name_:?}: {err:#}"));
    }
}

async fn acceptance_shell_039_controllers_start_between_one_and_two_intervals_after_leadership(on: On) {
    let Some(plane) = on.audited("--controller-start-interval").await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let mut audit = plane.audit();
    // Work for the new leader.
    for number in 0..5 {
        let name = format!("due-{number}");
        namespaces::create(&admin, &name).await.unwrap();
        admin.create_all(vec![objects::config_map(&name, "a")]).await.unwrap();
        namespaces::delete(&admin, &name).await.unwrap();
    }
    let kubeconfig = plane.kubeconfig(Identity::Replica(0)).unwrap();
    let launch = Launch::new(&plane, Flavour::Ours).unwrap().kubeconfig(&kubeconfig);
    let _manager = launch.flag("controller-start-interval", "1s").started().await.unwrap();
    let user = Identity::Replica(0).user();
    let acquired =
        audit.first("leadership", TIME_LIMIT, |it| is_lease_write_by(it, Identity::Replica(0))).await.unwrap();
    let first = audit.first("work", TIME_LIMIT, |it| it.user() == user && it.is_work()).await.unwrap();
    let began: Duration = first.received.duration_since(acquired.received).try_into().unwrap();
    // Half a second for the first sync, which discovers the server's resources.
    let wanted = Duration::from_secs(1)..Duration::from_millis(2_500);
    assert!(wanted.contains(&began), "began after {began:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_is_sufficient_identity() {
    let Some(assets) = assets_or_skip("a client certificate") else { return };
    let plane = ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let subject = serde_json::json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io",
        "name": Identity::ControllerManager.user() });
    let role = serde_json::json!({ "kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io",
        "name": "system:controller:namespace-controller" });
    let binding = serde_json::json!({ "metadata": { "name": "e2e" }, "roleRef": role, "subjects": [subject] });
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.unwrap();
    let kubeconfig = plane.kubeconfig(Identity::ControllerManager).unwrap();
    let launch = Launch::new(&plane, Flavour::Ours).unwrap().kubeconfig(&kubeconfig);
    // The bootstrap roles grant rights for a Lease of this name.
    let launch = launch.flag("leader-elect-resource-name", "kube-controller-manager");
    let _manager = launch.started().await.unwrap();
    namespaces::create(&admin, "certified").await.unwrap();
    admin.create_all(objects::dozen("certified", 24)).await.unwrap();
    namespaces::delete(&admin, "certified").await.unwrap();
    namespaces::wait_until_gone(&admin, "certified", TIME_LIMIT).await.unwrap();
    let user = Identity::ControllerManager.user();
    let refused = |it: &AuditEvent| it.user() == user && matches!(it.code(), 401 | 403);
    let mut audit = plane.audit();
    let refusals: Vec<_> = audit.events().unwrap().iter().filter(|it| refused(it)).map(|it| it.uri.clone()).collect();
    assert!(refusals.is_empty(), "{refusals:?}");
}

async fn second_signal_ends_the_process_at_once(on: On) {
    let Some(plane) = on.audited("a second signal").await.unwrap() else { return };
    let admin = plane.admin().await.unwrap();
    let proxy = Proxy::start(plane.port()).await.unwrap();
    let kubeconfig = plane.kubeconfig_through(Identity::Replica(0), proxy.port()).unwrap();
    let launch = Launch::new(&plane, Flavour::Ours).unwrap().kubeconfig(&kubeconfig);
    let mut manager = launch.flag("controller-shutdown-timeout", "0s").started().await.unwrap();
    namespaces::create(&admin, "busy").await.unwrap();
    admin.create_all(objects::dozen("busy", 600)).await.unwrap();
    namespaces::delete(&admin, "busy").await.unwrap();
    let work = |it: &AuditEvent| it.user() == Identity::Replica(0).user() && it.is_work();
    plane.audit().first("work", TIME_LIMIT, work).await.unwrap();
    // No present or later call is answered, so an orderly shutdown cannot finish soon.
    proxy.freeze();
    manager.signal(Signal::TERM).unwrap();
    eventually("the first signal to be handled", TIME_LIMIT, async || {
        Ok(manager.log()?.contains("Received a stop signal").then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(manager.status().unwrap(), None, "it waits for the calls in flight");
    manager.signal(Signal::TERM).unwrap();
    let code = manager.exit(Duration::from_secs(2)).await.unwrap();
    assert_eq!(code, Some(1), "an interrupted shutdown is not a success");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_leader_uses_little_memory() {
    let Some(assets) = assets_or_skip("the size of an idle leader") else { return };
    let plane = ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await.unwrap();
    let mut manager = Launch::new(&plane, Flavour::Ours).unwrap().started().await.unwrap();
    plane.audit().first("a leader", TIME_LIMIT, |it| is_lease_write_by(it, Identity::Admin)).await.unwrap();
    manager.wait_until_ok("/readyz").await.unwrap();
    // Memory that only the start needed is returned within seconds.
    let small = eventually("an idle leader of 16 MiB, of it 4 MiB anonymous", TIME_LIMIT, async || {
        let usage = Usage::of(manager.pid())?;
        anyhow::ensure!(usage.resident_kib <= 16 * 1024 && usage.anonymous_kib <= 4 * 1024, "{usage:?}");
        Ok(Some(usage))
    });
    report(&format!("an idle leader: {:?}", small.await.unwrap()));
}
