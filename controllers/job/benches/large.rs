//! Measures the controller's CPU time per pod of a Job of 100,000 completions, by the number of completed pods. Runs in
//! virtual time. The time of the cluster and the pods is not counted. `cargo bench -p job-controller --bench large`.
//! Target: at 90,000 completions at most 1.5 times the value at 1,000 completions.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use client::{BoxError, Incoming, Transport};
use clock::{Clock, Timestamp};
use harness::bench::{MeasuredController, created_pods};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use job_controller::{NAME, Options};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use test_cluster::TestCluster;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::common::{NAMESPACE, create_job};

mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const COMPLETIONS: u64 = 100_000;
const PARALLELISM: u64 = 500;
/// The number of completions at which each measurement starts.
const MARKS: [u64; 6] = [1_000, 10_000, 30_000, 50_000, 70_000, 90_000];
/// The number of completions that each measurement covers.
const WINDOW: u64 = 5_000;
/// The longest run time of a pod. Run times are random, so indexes complete out of order.
const MAX_RUN_TIME: u64 = 2_000;
/// The time between two checks of the pods.
const TICK: Duration = Duration::from_millis(100);
/// The time limit of a run in virtual time; far longer than any run needs.
const TIME_LIMIT: Duration = Duration::from_secs(100_000);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let measured = tokio::time::timeout(TIME_LIMIT, measure()).await;
        let costs = measured.expect("the Job finishes in time");
        let ratio = costs[costs.len() - 1] / costs[0];
        println!("at {} done {ratio:.2} times the cost at {} done; target: 1.5", MARKS[MARKS.len() - 1], MARKS[0]);
    });
}

/// Returns the microseconds per pod after each mark.
async fn measure() -> Vec<f64> {
    let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).expect("a time"));
    let cluster = TestCluster::with_options(
        clock.clone(),
        test_cluster::Options { history: 5_000, ..test_cluster::Options::default() },
    );
    cluster.set_recording(false);
    let (created, done, cluster_meter) = (created_pods(&cluster), counted(&cluster), Meter::default());
    let server = metered(&cluster, &cluster_meter);
    let controller = MeasuredController::start_on(server, clock, NAME, "job", |builder| {
        job_controller::start(builder, Options::default());
    });
    let spec = json!({ "completionMode": "Indexed", "completions": COMPLETIONS, "parallelism": PARALLELISM });
    create_job(&controller.rig.deps.clients, "large", spec).await.expect("a Job");

    let mut rng = fastrand::Rng::with_seed(7);
    let mut running: Vec<(u64, String)> = Vec::new();
    let (mut tick, mut costs, mut begun) = (0, Vec::new(), None);
    while costs.len() < MARKS.len() {
        let now = done.load(Ordering::SeqCst);
        match begun {
            None if now >= MARKS[costs.len()] => begun = Some((now, cluster_meter.ours())),
            Some((from, spent)) if now >= from + WINDOW => {
                let cost = (cluster_meter.ours() - spent) as f64 / 1e3 / (now - from) as f64;
                println!("from {from} done: {cost:.1} µs of CPU for each of the next {} pods", now - from);
                costs.push(cost);
                begun = None;
            }
            None | Some(_) => {}
        }
        cluster_meter.time(|| {
            let ends = |rng: &mut fastrand::Rng| tick + rng.u64(1..=MAX_RUN_TIME / TICK.as_millis() as u64);
            running.extend(std::mem::take(&mut *created.lock()).into_iter().map(|name| (ends(&mut rng), name)));
            let due = running.extract_if(.., |(end, _)| *end <= tick);
            due.for_each(|(_, name)| succeed(&cluster, &name));
        });
        tick += 1;
        sleep(TICK).await;
    }
    costs
}

fn succeed(cluster: &TestCluster, name: &str) {
    let ended = json!({ "terminated": { "exitCode": 0, "finishedAt": "2027-01-15T08:00:00Z" } });
    let container = json!({ "name": "main", "image": "example.com/main:1", "state": ended });
    let status = json!({ "phase": "Succeeded", "containerStatuses": [container] });
    cluster.update("pods", NAMESPACE, name, |it| it["status"] = status);
}

/// The number of completed pods in the Job's status.
fn counted(cluster: &TestCluster) -> Arc<AtomicU64> {
    let done = Arc::new(AtomicU64::new(0));
    let counter = done.clone();
    cluster.observe(move |write| {
        if write.kind() == "Job" {
            let status = write.after().map_or(Value::Null, |it| it["status"].clone());
            counter.store(status["succeeded"].as_u64().unwrap_or(0), Ordering::SeqCst);
        }
    });
    done
}

/// The nanoseconds of this thread that the cluster used, not the controller.
#[derive(Clone, Default)]
struct Meter(Arc<AtomicU64>);

impl Meter {
    fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = thread_time();
        let result = work();
        self.0.fetch_add(thread_time() - begun, Ordering::SeqCst);
        result
    }

    /// The nanoseconds of this thread that the controller has used so far.
    fn ours(&self) -> u64 {
        thread_time() - self.0.load(Ordering::SeqCst)
    }
}

fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let [secs, nanos] = [time.tv_sec, time.tv_nsec].map(|it| u64::try_from(it).unwrap_or(0));
    secs * 1_000_000_000 + nanos
}

/// The cluster's transport. The time for its responses and watches is counted in `meter`.
fn metered(cluster: &TestCluster, meter: &Meter) -> Transport {
    let (service, meter) = (cluster.service(), meter.clone());
    Transport::new(tower::service_fn(move |request| {
        let (answer, meter) = (service.clone().oneshot(request), meter.clone());
        async move {
            let answer = Timed { inner: Box::pin(answer), meter: meter.clone() }.await?;
            Ok::<_, BoxError>(answer.map(|inner| Timed { inner: Box::pin(inner), meter }.boxed_unsync()))
        }
    }))
}

/// A future or a body whose time is counted in `meter`.
struct Timed<T> {
    inner: Pin<Box<T>>,
    meter: Meter,
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { inner, meter } = &mut *self;
        meter.time(|| inner.as_mut().poll(cx))
    }
}

impl Body for Timed<Incoming> {
    type Data = bytes::Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, BoxError>>> {
        let Self { inner, meter } = &mut *self;
        meter.time(|| inner.as_mut().poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}
