//! A declared controller before, in and after a term, with an in-memory API server.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::{convert::Infallible, sync::Arc, time::Duration};

use api::{Atom, Namespace};
use client::Limits;
use clock::{Clock, Timestamp};
use controller::{Backoff, Builder, Controller, Deps, Lane, Outcome, Proof};
use harness::Rig;
use parking_lot::Mutex;
use serde_json::json;
use tasks::Scope;
use test_cluster::TestCluster;
use tokio_util::sync::CancellationToken;

const NAME: &str = "test-controller";

/// The calls of the handler and of the sync.
#[derive(Default)]
struct Recorded {
    changes: Mutex<Vec<(String, Lane)>>,
    synced: Mutex<Vec<String>>,
    standby_changes: Mutex<usize>,
}

struct World {
    cluster: TestCluster,
    recorded: Arc<Recorded>,
    controller: Controller,
    scope: Scope,
}

/// A controller that handles namespaces. Each sync takes `work`.
fn declare(resync: Duration, own: Option<Duration>, work: Duration) -> World {
    let clock = Clock::virtual_from(Timestamp::UNIX_EPOCH);
    let cluster = TestCluster::new(clock.clone());
    let Rig { deps, scope, .. } = Rig::new(cluster.service(), clock, Limits::NONE);
    let deps = Deps { resync, ..deps };
    let mut builder = Builder::new(NAME, deps);
    let namespaces = builder.informer::<Namespace>(Proof::LiveReads);
    let queue = builder.queue::<Atom>("test", Backoff::default());
    let recorded = Arc::new(Recorded::default());
    let (changed, done, keys, standby_changes) = (recorded.clone(), recorded.clone(), queue.clone(), recorded.clone());
    builder.on_every_change(&namespaces, move |_| *standby_changes.standby_changes.lock() += 1);
    builder.on_change(&namespaces, own, move |change, lane| {
        let Some(new) = change.new else { return };
        changed.changes.lock().push((new.meta().name.to_owned(), lane));
        keys.add_to(Atom::from(new.meta().name), lane);
    });
    builder.workers(&queue, 1, move |name: Atom| {
        let done = done.clone();
        async move {
            tokio::time::sleep(work).await;
            done.synced.lock().push(name.to_string());
            Ok::<_, Infallible>(Outcome::Done)
        }
    });
    World { cluster, recorded, controller: builder.build(), scope }
}

impl World {
    /// Begins the term. The caches are proved after `proved`.
    fn begin(self, proved: Duration) -> Running {
        let Self { cluster, recorded, controller, scope } = self;
        let stop = CancellationToken::new();
        let run = controller.run(stop.clone(), tokio::time::sleep(proved));
        let task = scope.spawner().spawn("controller", run);
        Running { cluster, recorded, stop, task: Some(task), _scope: scope }
    }
}

struct Running {
    cluster: TestCluster,
    recorded: Arc<Recorded>,
    stop: CancellationToken,
    task: Option<tasks::Task>,
    _scope: Scope,
}

impl Running {
    fn synced(&self) -> usize {
        self.recorded.synced.lock().len()
    }

    async fn end(&mut self) {
        self.stop.cancel();
        self.task.take().unwrap().wait_until_ended().await;
    }
}

fn create(cluster: &TestCluster, name: &str) {
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn no_change_is_handled_before_the_term_and_then_the_initial_list_first() {
    let world = declare(Duration::ZERO, None, Duration::ZERO);
    pass(60).await;
    assert!(world.recorded.changes.lock().is_empty(), "a standby's queue stays empty");
    let present = world.cluster.list("namespaces", "").len();
    assert_eq!(*world.recorded.standby_changes.lock(), present, "the standby handler gets all objects");
    let term = world.begin(Duration::ZERO);
    pass(1).await;
    create(&term.cluster, "new");
    pass(1).await;
    let changes = term.recorded.changes.lock().clone();
    assert_eq!(changes.len(), present + 1);
    assert!(changes[..present].iter().all(|(_, lane)| *lane == Lane::Slow), "{changes:?}");
    assert_eq!(changes[present], ("new".to_owned(), Lane::Now));
    assert_eq!(term.synced(), present + 1);
}

#[tokio::test(start_paused = true)]
async fn workers_wait_until_the_caches_are_proved() {
    let term = declare(Duration::ZERO, None, Duration::ZERO).begin(Duration::from_secs(30));
    pass(29).await;
    assert!(!term.recorded.changes.lock().is_empty(), "handlers are added at once");
    assert_eq!(term.synced(), 0);
    pass(2).await;
    assert!(term.synced() > 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_no_key_is_taken_and_the_running_sync_completes() {
    let mut term = declare(Duration::ZERO, None, Duration::from_secs(10)).begin(Duration::ZERO);
    pass(5).await;
    term.end().await;
    assert_eq!(term.synced(), 1, "the one in flight, of several that were queued");
    let before = term.recorded.changes.lock().len();
    create(&term.cluster, "late");
    pass(60).await;
    assert_eq!((term.recorded.changes.lock().len(), term.synced()), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_term_that_ends_before_its_caches_are_proved_starts_no_worker() {
    let mut term = declare(Duration::ZERO, None, Duration::ZERO).begin(Duration::from_secs(3_600));
    pass(5).await;
    term.end().await;
    assert_eq!(term.synced(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_without_its_own_resync_period_uses_that_of_the_manager() {
    let hour = Duration::from_secs(3_600);
    let minute = Duration::from_secs(60);
    for (manager, own, want) in [(Duration::ZERO, None, 0), (hour, None, 1), (hour, Some(minute), 75)] {
        let world = declare(manager, own, Duration::ZERO);
        let present = world.cluster.list("namespaces", "").len();
        let term = world.begin(Duration::ZERO);
        pass(75 * 60 + 5).await;
        assert_eq!(term.recorded.changes.lock().len(), present * (1 + want), "{manager:?} {own:?}");
        let changes = term.recorded.changes.lock();
        assert!(changes.iter().all(|(_, lane)| *lane == Lane::Slow), "resyncs are in the slow lane");
    }
}

/// A controller that records which parts begin and end, in order.
fn recording_controller() -> (Controller, Arc<Mutex<Vec<&'static str>>>, Scope) {
    let clock = Clock::virtual_from(Timestamp::UNIX_EPOCH);
    let cluster = TestCluster::new(clock.clone());
    let Rig { deps, scope, .. } = Rig::new(cluster.service(), clock, Limits::NONE);
    let mut builder = Builder::new(NAME, deps);
    let entries = Arc::<Mutex<Vec<&'static str>>>::default();
    let tell = |text: &'static str| {
        let entries = entries.clone();
        move || entries.lock().push(text)
    };
    let (begins, ends) = (tell("background begins"), tell("background ends"));
    builder.background("background", move |end| async move {
        begins();
        end.cancelled().await;
        ends();
    });
    builder.on_term_start(tell("term"));
    builder.wait_before_workers(|| tokio::time::sleep(Duration::from_secs(30)));
    let queue = builder.queue::<u8>("test", Backoff::default());
    queue.add(1);
    let works = tell("works");
    builder.workers(&queue, 1, move |_: u8| {
        works();
        async { Ok::<_, Infallible>(Outcome::Done) }
    });
    (builder.build(), entries, scope)
}

#[tokio::test(start_paused = true)]
async fn background_tasks_of_a_standby_continue_in_the_term_and_end_after_the_workers() {
    let (mut controller, entries, scope) = recording_controller();
    pass(1).await;
    assert!(entries.lock().is_empty(), "nothing before all controllers are declared");
    controller.begin();
    controller.begin();
    pass(60).await;
    assert_eq!(*entries.lock(), ["background begins"], "once");
    let stop = CancellationToken::new();
    let task =
        scope.spawner().spawn("controller", controller.run(stop.clone(), tokio::time::sleep(Duration::from_secs(9))));
    pass(29).await;
    assert_eq!(*entries.lock(), ["background begins", "term"]);
    pass(2).await;
    assert_eq!(
        *entries.lock(),
        ["background begins", "term", "works"],
        "the wait counts from the beginning of the term"
    );
    stop.cancel();
    task.wait_until_ended().await;
    assert_eq!(*entries.lock(), ["background begins", "term", "works", "background ends"]);
}

#[tokio::test(start_paused = true)]
async fn a_term_starts_background_tasks_and_a_dropped_standby_ends_them() {
    let (controller, entries, scope) = recording_controller();
    let stop = CancellationToken::new();
    let task = scope.spawner().spawn("controller", controller.run(stop.clone(), std::future::ready(())));
    pass(1).await;
    assert_eq!(entries.lock().len(), 2);
    stop.cancel();
    task.wait_until_ended().await;
    assert_eq!(entries.lock().last(), Some(&"background ends"));
    let (mut controller, entries, _scope) = recording_controller();
    controller.begin();
    pass(1).await;
    drop(controller);
    pass(1).await;
    assert_eq!(*entries.lock(), ["background begins", "background ends"]);
}
