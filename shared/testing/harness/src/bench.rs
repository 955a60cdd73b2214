//! What benches of one controller share.

use std::{future::ready, sync::Arc, time::Duration};

use client::{Limits, Transport};
use clock::Clock;
use controller::Builder;
use metrics::Histogram;
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_cluster::{Change, Options, TestCluster};
use tokio::time::{sleep, timeout};

use crate::Rig;

/// The batches of a measurement.
pub const BATCHES: usize = 21;

/// Every wait of a bench ends within this time.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A cluster in real time that keeps only a few of its last writes for watches. So many objects may be created before the
/// first watch starts.
#[must_use]
pub fn large_cluster() -> TestCluster {
    let cluster = TestCluster::with_options(Clock::system(), Options { history: 5_000, ..Options::default() });
    cluster.set_recording(false);
    cluster
}

/// The names of pods that were created since the list was last taken.
#[must_use]
pub fn created_pods(cluster: &TestCluster) -> Arc<Mutex<Vec<String>>> {
    let created: Arc<Mutex<Vec<String>>> = Arc::default();
    let names = created.clone();
    cluster.observe(move |write| {
        if write.change() == Change::Added && write.kind() == "Pod" {
            names.lock().push(write.name().to_owned());
        }
    });
    created
}

/// One controller whose syncs are measured.
pub struct MeasuredController {
    /// The work duration of each key.
    pub syncs: Histogram,
    /// What the controller got from its manager.
    pub rig: Rig,
}

impl MeasuredController {
    /// Starts the controller that `declare` adds, without a rate limit. `queue` is the name of its work queue.
    #[must_use]
    pub fn start(cluster: &TestCluster, name: &'static str, queue: &str, declare: impl FnOnce(&mut Builder)) -> Self {
        Self::start_on(cluster.service(), Clock::system(), name, queue, declare)
    }

    /// The same with another server and clock.
    #[must_use]
    pub fn start_on(
        server: Transport,
        clock: Clock,
        name: &'static str,
        queue: &str,
        declare: impl FnOnce(&mut Builder),
    ) -> Self {
        let rig = Rig::new(server, clock, Limits::NONE);
        let mut builder = Builder::new(name, rig.deps.clone());
        declare(&mut builder);
        let (controller, stop) = (builder.build(), rig.stop.clone());
        rig.scope.spawner().spawn("controller", async move { controller.run(stop, ready(())).await });
        // The work queue has registered this family; the call returns the existing one.
        let family = ["workqueue_work_duration_seconds", "Duration of each sync."];
        let syncs = rig.deps.metrics.histograms(family[0], family[1], &["name"], &[1.0]).with_label_values(&[queue]);
        Self { syncs, rig }
    }

    /// Returns when there was no sync for `rest`.
    pub async fn until_idle(&self, rest: Duration) {
        let idle = async {
            loop {
                let before = self.syncs.get_sample_count();
                sleep(rest).await;
                if self.syncs.get_sample_count() == before {
                    return;
                }
            }
        };
        timeout(PATIENCE, idle).await.unwrap();
    }

    /// Syncs an object `rounds` times in each batch. `change` gets a number and changes what does not concern the
    /// controller. Returns the median and the highest of the average durations, in microseconds.
    pub async fn measure_syncs(
        &self,
        cluster: &TestCluster,
        object: [&str; 3],
        rounds: u64,
        change: impl Fn(&mut Value, u64),
    ) -> (f64, f64) {
        let before = cluster.version();
        let mut means = Vec::with_capacity(BATCHES);
        for batch in 0..BATCHES as u64 {
            means.push(
                timeout(PATIENCE, self.run_batch(cluster, object, batch * rounds, rounds, &change)).await.unwrap(),
            );
        }
        let written = cluster.version() - before - BATCHES as u64 * rounds;
        assert_eq!(written, 0, "a sync without changes writes nothing");
        median_and_worst(means)
    }

    async fn run_batch(
        &self,
        cluster: &TestCluster,
        [resource, namespace, name]: [&str; 3],
        from: u64,
        rounds: u64,
        change: &impl Fn(&mut Value, u64),
    ) -> f64 {
        let (count, sum) = (self.syncs.get_sample_count(), self.syncs.get_sample_sum());
        for round in 1..=rounds {
            cluster.update(resource, namespace, name, |it| change(it, from + round));
            while self.syncs.get_sample_count() < count + round {
                tokio::task::yield_now().await;
            }
        }
        let syncs_made = (self.syncs.get_sample_count() - count) as f64;
        (self.syncs.get_sample_sum() - sum) * 1e6 / syncs_made
    }
}

/// A change of a label that no controller reads.
pub fn change_label(object: &mut Value, round: u64) {
    object["metadata"]["labels"] = json!({ "round": round.to_string() });
}

/// The median and the highest value.
#[must_use]
pub fn median_and_worst(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}
