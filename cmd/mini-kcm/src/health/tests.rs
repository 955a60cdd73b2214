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

fn running(name: &'static str, worker_health: Vec<WorkerHealth>) -> Running {
    Running { name, worker_health, pages: Vec::new() }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_023_verbose_answers_have_a_line_per_check() {
    let health = Health::default();
    health.run_controllers(vec![running("namespace-controller", vec![worker_health("namespace").1])]);
    assert_eq!(health.answer(Probe::Healthz, &Query::parse("")).text, "ok");
    for (probe, last) in [(Probe::Healthz, "healthz"), (Probe::Livez, "livez"), (Probe::Readyz, "readyz")] {
        let text = health.answer(probe, &Query::parse("verbose")).text;
        assert_eq!(text, format!("[+]namespace-controller ok\n{last} check passed\n"));
    }
    assert_eq!(Health::default().answer(Probe::Healthz, &Query::parse("verbose")).text, "healthz check passed\n");
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_workers_do_not_move_fails_its_check_and_no_other() {
    let health = Health::default();
    let ((_well, well), (queue, stuck)) = (worker_health("well"), worker_health("stuck"));
    stuck.on_started();
    health
        .run_controllers(vec![running("a-controller", vec![well.clone()]), running("b-controller", vec![well, stuck])]);
    queue.add(1);
    tokio::time::sleep(controller::STALL - Duration::from_secs(1)).await;
    assert!(health.answer(Probe::Livez, &Query::parse("")).healthy);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = health.answer(Probe::Healthz, &Query::parse(""));
    assert!(!report.healthy);
    assert_eq!(report.text, "[+]a-controller ok\n[-]b-controller failed: reason withheld\nhealthz check failed\n");
    let one = health.answer_one(Probe::Healthz, "b-controller").unwrap();
    let reason = "no worker took any of the 1 keys of the queue stuck for 301 s";
    assert_eq!(one.text, format!("internal server error: {reason}\n"));
    assert!(health.answer_one(Probe::Healthz, "a-controller").unwrap().healthy);
    assert_eq!(health.answer_one(Probe::Healthz, "c-controller"), None);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_031_results_of_checks_are_counted_until_they_are_reset() {
    let health = Health::default();
    health.run_controllers(vec![running("a", Vec::new()), running("b", Vec::new())]);
    let _ = health.answer(Probe::Healthz, &Query::parse(""));
    let _ = health.answer(Probe::Healthz, &Query::parse("exclude=a"));
    let _ = health.answer_one(Probe::Readyz, "a");
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
