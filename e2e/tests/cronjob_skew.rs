//! A benchmark: many CronJobs with the same minute, and how long after it the last Job is created.
//!
//! `CRONJOBS=10000 cargo test -p e2e --test scenarios cronjob_skew -- --nocapture`. Without `CRONJOBS`, their number, nothing is
//! measured. `E2E_MANAGER=go` measures the upstream manager.

use std::{collections::BTreeSet, time::Duration};

use clock::Clock;
use e2e::{AuditEvent, Flavour, Identity, Launch, Options, eventually, namespaces, report};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::On;

const NAMESPACE: &str = "same-minute";
/// At least this many are created per second.
const PACE: usize = 80;

fn cron_job(number: usize, minute: Timestamp) -> Value {
    let template =
        json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "main:1" }] } });
    json!({
        "metadata": { "name": format!("same-{number:05}") },
        "spec": {
            "schedule": minute.strftime("%-M %-H * * *").to_string(),
            "timeZone": "Etc/UTC",
            // No pods run, because there is no Job controller.
            "jobTemplate": { "spec": { "parallelism": 0, "template": template } },
        },
    })
}

/// The quantile `part` of sorted values.
fn quantile(sorted: &[SignedDuration], part: usize) -> SignedDuration {
    sorted[(sorted.len() * part / 100).min(sorted.len() - 1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cronjobs_of_same_minute_start_in_it_once_each() {
    let Ok(total) = std::env::var("CRONJOBS") else {
        return report("NOT RUN: the skew of many CronJobs is measured only with CRONJOBS, their number");
    };
    let total: usize = total.parse().unwrap();
    let options = Options { audit: true, ..Options::default() };
    let Some(server) = On::Real.server("CronJobs of one minute", options).await.unwrap() else {
        return;
    };
    let flavour = Flavour::from_environment();
    if flavour == Flavour::Go && !server.assets().is_ok_and(|it| it.binary("kube-controller-manager").is_some()) {
        return report("NOT RUN: no kube-controller-manager among the binaries");
    }
    let (admin, clock) = (server.admin().await.unwrap(), Clock::system());
    let launch = Launch::new(&server, flavour)
        .unwrap()
        .kubeconfig(&server.kubeconfig(Identity::Replica(0)).unwrap())
        .flag("controllers", "cronjob-controller")
        .flag("kube-api-qps", "5000")
        .flag("kube-api-burst", "5000");
    let manager = launch.started().await.unwrap();
    namespaces::create(&admin, NAMESPACE).await.unwrap();

    // The minute comes after all CronJobs are created.
    let ready = clock.wall() + SignedDuration::from_secs(i64::try_from(10 + total / PACE).unwrap());
    let minute = Timestamp::from_second((ready.as_second() / 60 + 1) * 60).unwrap();
    let path = format!("/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs");
    let all = (0..total).map(|it| (path.clone(), cron_job(it, minute))).collect();
    admin.create_all(all).await.unwrap();
    assert!(clock.wall() < minute, "{total} CronJobs are not made by {minute}");
    let wait = minute.duration_since(clock.wall()).unsigned_abs();

    let mut audit = server.audit();
    let made = |it: &AuditEvent| {
        it.verb == "create" && it.resource() == "jobs" && it.user() == Identity::Replica(0).user() && it.succeeded()
    };
    let patience = wait + Duration::from_secs(300);
    eventually("a Job of each", patience, async || {
        let count = audit.count(made)?;
        anyhow::ensure!(count >= total, "{count} of {total}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let events = audit.events().unwrap().iter().filter(|it| made(it));
    let mut skews: Vec<SignedDuration> = events.map(|it| it.completed.duration_since(minute)).collect();
    skews.sort();
    let jobs = admin.items(&format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs")).await.unwrap();
    let owners: BTreeSet<&str> =
        jobs.iter().filter_map(|it| it["metadata"]["ownerReferences"][0]["name"].as_str()).collect();
    assert_eq!((skews.len(), jobs.len(), owners.len()), (total, total, total), "each once");
    assert!(skews[0] >= SignedDuration::ZERO, "none before its minute: {skews:?}");

    let usage = e2e::Usage::of(manager.pid()).unwrap();
    let (p50, p99, last) = (quantile(&skews, 50), quantile(&skews, 99), skews[total - 1]);
    report(&format!(
        "{total} CronJobs of one minute with {flavour:?}: skew p50 {p50:?}, p99 {p99:?}, last {last:?}; \
         processor {:?}, resident {} KiB",
        usage.cpu, usage.resident_kib
    ));
}
