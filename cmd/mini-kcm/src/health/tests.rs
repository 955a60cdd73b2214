use std::time::Duration;

use clock::Clock;
use controller::{Backoff, Queue};

use super::*;

fn worker_health(name: &'static str) -> (Queue<u8>, WorkerHealth) {
    let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
    let queue = Queue::new(name, Backoff::default(), clock.clone(), &Metrics::new());
    let worker_health = WorkerHealth::new(&queue, 1, clock);
    (queue, worker_health)
}

fn running(name: &'static str, worker_health: Vec<WorkerHealth>) -> RunningController {
    RunningController { name, worker_health, pages: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_023_verbose_answers_have_a_line_per_check() {
    let health = HealthChecks::default();
    health.set_controllers(vec![running("namespace-controller", vec![worker_health("namespace").1])]);
    assert_eq!(health.run_checks(Probe::Healthz, &ProbeQuery::parse("")).text, "ok");
    for (probe, last) in [(Probe::Healthz, "healthz"), (Probe::Livez, "livez"), (Probe::Readyz, "readyz")] {
        let text = health.run_checks(probe, &ProbeQuery::parse("verbose")).text;
        assert_eq!(text, format!("[+]namespace-controller ok\n{last} check passed\n"));
    }
    assert_eq!(
        HealthChecks::default().run_checks(Probe::Healthz, &ProbeQuery::parse("verbose")).text,
        "healthz check passed\n"
    );
}

#[test]
fn check_of_the_lease_passes_before_the_election_begins() {
    let health = HealthChecks::default();
    health.declare_election();
    let text = health.run_checks(Probe::Healthz, &ProbeQuery::parse("verbose")).text;
    assert_eq!(text, "[+]leaderElection ok\nhealthz check passed\n");
}

#[tokio::test(start_paused = true)]
async fn controller_with_stuck_workers_fails_only_its_own_check() {
    let health = HealthChecks::default();
    let ((_well, well), (queue, stuck)) = (worker_health("well"), worker_health("stuck"));
    stuck.on_started();
    health
        .set_controllers(vec![running("a-controller", vec![well.clone()]), running("b-controller", vec![well, stuck])]);
    queue.add(1);
    tokio::time::sleep(controller::STALL - Duration::from_secs(1)).await;
    assert!(health.run_checks(Probe::Livez, &ProbeQuery::parse("")).healthy);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = health.run_checks(Probe::Healthz, &ProbeQuery::parse(""));
    assert!(!report.healthy);
    assert_eq!(report.text, "[+]a-controller ok\n[-]b-controller failed: reason withheld\nhealthz check failed\n");
    let one = health.run_check(Probe::Healthz, "b-controller").unwrap();
    let reason = "no worker took any of the 1 keys of the queue stuck for 301 s";
    assert_eq!(one.text, format!("internal server error: {reason}\n"));
    assert!(health.run_check(Probe::Healthz, "a-controller").unwrap().healthy);
    assert_eq!(health.run_check(Probe::Healthz, "c-controller"), None);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_031_results_of_checks_are_counted_until_they_are_reset() {
    let health = HealthChecks::default();
    health.set_controllers(vec![running("a", Vec::new()), running("b", Vec::new())]);
    let _ = health.run_checks(Probe::Healthz, &ProbeQuery::parse(""));
    let _ = health.run_checks(Probe::Healthz, &ProbeQuery::parse("exclude=a"));
    let _ = health.run_check(Probe::Readyz, "a");
    let text = health.slis().encode();
    for line in [
        "kubernetes_healthcheck{name=\"a\",type=\"healthz\"} 1\n",
        "kubernetes_healthchecks_total{name=\"a\",status=\"success\",type=\"healthz\"} 1\n",
        "kubernetes_healthchecks_total{name=\"b\",status=\"success\",type=\"healthz\"} 2\n",
        "kubernetes_healthchecks_total{name=\"a\",status=\"success\",type=\"readyz\"} 1\n",
        "# HELP kubernetes_healthcheck [STABLE] ",
        "process_start_time_seconds ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    health.reset_slis();
    let text = health.slis().encode();
    assert!(!text.contains("healthcheck") && text.contains("process_start_time_seconds"), "{text}");
}
