use std::{
    collections::BTreeMap,
    future::Future,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant, Timestamp};
use fastrand::Rng;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tasks::Scope;
use test_cluster::{TestCluster, Written};
use tokio::sync::watch;

use super::{
    LONGEST_DELAY,
    plan::{FaultPlan, ProcessFault},
    process::{Main, Process, ProcessRun, SupervisedProcess},
    request::SimRequest,
    trace::Trace,
};

/// The interval between two checks of a goal.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The limit of requests without a change of the clock. More of them mean that processes wake each other in an endless
/// loop.
const MAX_REQUESTS_AT_ONE_INSTANT: u32 = 10_000;
/// The limit for the stop of a process without faults: the time that controllers have, plus the time to release the
/// Lease.
const STOP_LIMIT: Duration = Duration::from_secs(12);
/// Namespaces that always exist, even when they are not stored.
const SYSTEM: [&str; 2] = ["default", "kube-system"];

/// One run: a cluster, processes, and a network between them, on one thread, in virtual time. Clones are handles.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    cluster: TestCluster,
    clock: Clock,
    seed: u64,
    trace: Trace,
    plan: Mutex<FaultPlan>,
    counts: Counts,
    /// When the last request came, and how many came at the same time.
    at_instant: Mutex<(Instant, u32)>,
    rng: Mutex<Rng>,
    /// Owns the tasks of the world itself.
    scope: Mutex<Option<Scope>>,
    slots: Mutex<Vec<Arc<SupervisedProcess>>>,
    writer: Mutex<Option<Writer>>,
    calm: AtomicBool,
    /// For each Lease, as `namespace/name`: the process that wrote its present holder.
    holders: Mutex<BTreeMap<String, Option<Arc<ProcessRun>>>>,
    /// The time at which the last fault so far has ended.
    faults_end: Mutex<Option<Instant>>,
    invariants: Mutex<Vec<Invariant>>,
    delivery_callback: Mutex<Option<DeliveryCallback>>,
    broken: watch::Sender<Option<String>>,
}

type Invariant = (&'static str, Box<dyn FnMut(&Write) -> Result<(), String> + Send>);

type DeliveryCallback = Box<dyn FnMut(&Delivery) + Send>;

/// What a process gets of a resource: one line of a watch, or one list of an informer.
pub struct Delivery<'a> {
    /// The process, such as `a#1`.
    pub by: &'a str,
    /// Such as `pods` or `jobs.batch`.
    pub resource: &'a str,
    /// The JSON that is sent.
    pub text: &'a [u8],
}

/// The process whose request the cluster handles now.
pub(crate) struct Writer {
    pub(crate) process: Arc<ProcessRun>,
    pub(crate) needs_term: bool,
}

/// How many requests, events and writes there were. A sweep takes its places from these.
#[derive(Default)]
pub(crate) struct Counts {
    requests: AtomicU64,
    events: AtomicU64,
    writes: AtomicU64,
    /// The version at which the first process was started.
    started: AtomicU64,
    /// The newest version at which a first list or a set was requested.
    first_view: AtomicU64,
}

/// A stored write, with the object before and after it, and the rest of the cluster at that time.
pub struct Write<'a> {
    /// The process that wrote, such as `a#1`; `world` for all other writers.
    pub by: &'a str,
    written: &'a Written<'a>,
}

impl<'a> Deref for Write<'a> {
    type Target = Written<'a>;

    fn deref(&self) -> &Self::Target {
        self.written
    }
}

impl Counts {
    pub(crate) fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count_event(&self) -> u64 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn record_first_view(&self, version: u64) {
        self.first_view.fetch_max(version, Ordering::Relaxed);
    }

    /// The version at which the first process was started, and the newest at which a first list was requested.
    pub(crate) fn views(&self) -> [u64; 2] {
        [&self.started, &self.first_view].map(|it| it.load(Ordering::Relaxed))
    }

    /// Requests, events and writes so far.
    pub(crate) fn all(&self) -> [u64; 3] {
        [&self.requests, &self.events, &self.writes].map(|it| it.load(Ordering::Relaxed))
    }
}

/// The interface for scenarios.
impl World {
    /// The cluster itself. The scenario reads and changes it without faults.
    #[must_use]
    pub fn cluster(&self) -> &TestCluster {
        &self.0.cluster
    }

    /// The cluster's own clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// A random generator for the choices of the scenario.
    #[must_use]
    pub fn rng(&self) -> Rng {
        self.0.rng.lock().fork()
    }

    /// Starts a process, and starts it again each time it ended or crashed. `main` is called for each start.
    pub fn run<F>(&self, name: &'static str, main: F)
    where
        F: Fn(Process) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    {
        self.start(name, None, Arc::new(main));
    }

    /// The same for a process that may write only while it holds this Lease, given as `namespace/name`.
    pub fn run_elected<F>(&self, name: &'static str, lease: &'static str, main: F)
    where
        F: Fn(Process) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    {
        self.start(name, Some(lease), Arc::new(main));
    }

    fn start(&self, name: &'static str, lease: Option<&'static str>, main: Main) {
        let slot = Arc::new(SupervisedProcess::new(name, lease, main));
        let first = {
            let mut slots = self.0.slots.lock();
            slots.push(slot.clone());
            slots.len() == 1
        };
        self.spawn("supervisor", slot.supervise(self.clone()));
        if first {
            self.0.counts.started.store(self.cluster().version(), Ordering::Relaxed);
            self.spawn("process_faults", self.clone().inject_process_faults());
        }
    }

    /// Runs a task of the scenario until the run ends.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(scope) = &*self.0.scope.lock() {
            scope.spawner().spawn(name, work);
        }
    }

    /// Waits in virtual time.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Stops drawing new faults. The effects of earlier faults stay: a frozen watch stays frozen, a late event comes
    /// late. In a sweep, the one fault may still happen after this.
    pub fn calm(&self) {
        if self.0.calm.swap(true, Ordering::Relaxed) {
            return;
        }
        self.trace(|| "== calm".to_owned());
        if matches!(*self.plan(), FaultPlan::Script(_)) {
            return;
        }
        *self.plan() = FaultPlan::Calm;
        for slot in &*self.0.slots.lock() {
            if let Some(it) = slot.current() {
                it.resume();
            }
        }
    }

    /// True once no new faults are drawn. The scenario's own tasks should stop their faults too.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.0.calm.load(Ordering::Relaxed)
    }

    /// Waits until `condition` is true, and checks that it stays true until everything that was delayed has arrived.
    ///
    /// # Errors
    /// When it is not true `within` this time, or is false again a little later.
    pub async fn eventually(&self, within: Duration, what: &str, condition: impl Fn() -> bool) -> Result<(), String> {
        let until = self.now() + within;
        while !condition() {
            if self.now() >= until {
                return Err(format!("not true within {within:?}: {what}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let reached = self.now();
        while self.now() < reached + LONGEST_DELAY {
            tokio::time::sleep(POLL_INTERVAL).await;
            if !condition() {
                let later = self.now().saturating_duration_since(reached);
                return Err(format!("became true, but was false again after {later:?}: {what}"));
            }
        }
        Ok(())
    }

    /// Like [`World::eventually`], for a condition that knows what is missing. The error contains that.
    ///
    /// # Errors
    /// As [`World::eventually`].
    pub async fn eventually_complete(
        &self,
        within: Duration,
        what: &str,
        first_fault: impl Fn() -> Option<String>,
    ) -> Result<(), String> {
        let done = self.eventually(within, what, || first_fault().is_none()).await;
        done.map_err(|why| format!("{why}; {}", first_fault().unwrap_or_default()))
    }

    /// Checks `holds` after every stored write from now on. The state of the closure belongs to this run.
    pub fn always(&self, what: &'static str, holds: impl FnMut(&Write) -> Result<(), String> + Send + 'static) {
        self.0.invariants.lock().push((what, Box::new(holds)));
    }

    /// Calls `callback` with everything that processes get from watches and from lists of informers from now on, at the
    /// moment at which they get it. A process cannot know what it has not been shown. The closure must not own the world.
    pub fn on_delivered(&self, callback: impl FnMut(&Delivery) + Send + 'static) {
        *self.0.delivery_callback.lock() = Some(Box::new(callback));
    }

    /// Ends the run as failed.
    pub fn fail(&self, why: String) {
        self.trace(|| format!("## {why}"));
        self.0.broken.send_if_modified(|it| {
            let first = it.is_none();
            it.get_or_insert(why);
            first
        });
    }
}

impl World {
    pub(crate) fn new(seed: u64, plan: FaultPlan, traced: bool, epoch: i64) -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(epoch).unwrap_or(Timestamp::UNIX_EPOCH));
        let cluster = TestCluster::with_seed(clock.clone(), seed);
        cluster.set_recording(false);
        let inner = Inner {
            at_instant: Mutex::new((clock.now(), 0)),
            trace: Trace::new(traced, clock.clone()),
            cluster,
            clock,
            seed,
            plan: Mutex::new(plan),
            counts: Counts::default(),
            rng: Mutex::new(Rng::with_seed(seed)),
            scope: Mutex::new(Some(Scope::new())),
            slots: Mutex::default(),
            writer: Mutex::default(),
            calm: AtomicBool::new(false),
            holders: Mutex::default(),
            faults_end: Mutex::default(),
            invariants: Mutex::default(),
            delivery_callback: Mutex::default(),
            broken: watch::Sender::new(None),
        };
        let world = Self(Arc::new(inner));
        let weak = Arc::downgrade(&world.0);
        world.cluster().observe(move |written| {
            if let Some(world) = Weak::upgrade(&weak).map(World) {
                world.on_stored(written);
            }
        });
        world
    }

    pub(crate) fn now(&self) -> Instant {
        self.0.clock.now()
    }

    pub(crate) fn plan(&self) -> MutexGuard<'_, FaultPlan> {
        self.0.plan.lock()
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Counts a request, and fails a run whose clock does not advance any more.
    pub(crate) fn count_request(&self) -> u64 {
        let now = self.now();
        let together = {
            let mut at_instant = self.0.at_instant.lock();
            *at_instant = if at_instant.0 == now { (now, at_instant.1 + 1) } else { (now, 1) };
            at_instant.1
        };
        if together == MAX_REQUESTS_AT_ONE_INSTANT {
            self.fail(format!(
                "{MAX_REQUESTS_AT_ONE_INSTANT} requests at one instant: the processes run in an endless loop"
            ));
        }
        self.counts().count_request()
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        self.0.trace.record(what);
    }

    pub(crate) fn report_delivery(&self, delivery: &Delivery) {
        if let Some(callback) = &mut *self.0.delivery_callback.lock() {
            callback(delivery);
        }
    }

    pub(crate) fn has_delivery_callback(&self) -> bool {
        self.0.delivery_callback.lock().is_some()
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        self.0.trace.take()
    }

    pub(crate) fn set_writer(&self, writer: Option<Writer>) {
        *self.0.writer.lock() = writer;
    }

    /// The present wall time on a clock with this difference in seconds.
    pub(crate) fn epoch(&self, skew: i64) -> Timestamp {
        let wall = self.0.clock.wall();
        Timestamp::from_second(wall.as_second() + skew).unwrap_or(wall)
    }

    pub(crate) fn seed_of(&self, name: &str, start: u64) -> u64 {
        name.bytes().fold(self.0.seed ^ start.rotate_left(32), |hash, byte| {
            // The step of FNV-1a; any cheap hash would do.
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Records a fault that has an effect for this time.
    pub(crate) fn record_fault_until(&self, time: Duration) {
        if !time.is_zero() {
            let end = self.now() + time;
            let mut faults_end = self.0.faults_end.lock();
            *faults_end = (*faults_end).max(Some(end));
        }
    }

    /// Plays a second client that is faster: creates the object that the request would create, or changes the object
    /// that the request would change, in an irrelevant annotation. False where neither is possible.
    pub(crate) fn race(&self, asked: &SimRequest) -> bool {
        let cluster = self.cluster();
        let SimRequest { resource, namespace, name, .. } = asked;
        // A custom kind may have been removed while a process still requests it.
        if !cluster.is_served(resource) {
            return false;
        }
        let Some(made) = asked.created_object() else {
            let there = cluster.get(resource, namespace, name).is_some();
            if there {
                let number = cluster.version().to_string();
                cluster.update(resource, namespace, name, |it| {
                    it["metadata"]["annotations"]["sim/touched"] = number.into();
                });
            }
            return there;
        };
        let Some(name) = made["metadata"]["name"].as_str().filter(|it| !it.is_empty()) else { return false };
        let home = cluster.get("namespaces", "", namespace);
        let ends = home.is_none_or(|it| it["metadata"]["deletionTimestamp"].is_string());
        let refused = ends && !namespace.is_empty() && !SYSTEM.contains(&namespace.as_str());
        if refused || !made["kind"].is_string() || cluster.get(resource, namespace, name).is_some() {
            return false;
        }
        let mut made = made.clone();
        if !namespace.is_empty() {
            made["metadata"]["namespace"] = namespace.as_str().into();
        }
        cluster.create(made);
        true
    }

    /// Waits until the run has failed.
    pub(crate) async fn failure(&self) -> String {
        let mut broken = self.0.broken.subscribe();
        loop {
            if let Some(why) = broken.borrow_and_update().clone() {
                return why;
            }
            if broken.changed().await.is_err() {
                return "the run has ended".to_owned();
            }
        }
    }

    /// Stops every process in order; afterwards no process runs any more.
    pub(crate) async fn end(&self) -> Result<(), String> {
        self.calm();
        loop {
            // The effects of earlier faults may delay the stop of processes.
            let faults_end = self.0.faults_end.lock().take();
            let Some(end) = faults_end else { break };
            tokio::time::sleep_until(end).await;
        }
        let asked = self.now();
        self.trace(|| "== the end".to_owned());
        let slots = self.0.slots.lock().clone();
        slots.iter().for_each(|it| it.stop());
        for slot in slots {
            if !slot.wait_until_ended().await {
                return Err(format!("{} does not stop", slot.name));
            }
            if self.0.faults_end.lock().is_some() {
                // The fault of a sweep happened during the stop.
                continue;
            }
            let took = self.now().saturating_duration_since(asked);
            if took > STOP_LIMIT {
                return Err(format!("{} needs {took:?} to stop without any fault", slot.name));
            }
            slot.exit().map_err(|why| format!("{} fails at its stop: {why}", slot.name))?;
        }
        Ok(())
    }

    /// Drops everything that still runs.
    pub(crate) fn drop_all(&self) {
        drop(self.0.scope.lock().take());
        self.0.holders.lock().clear();
        // A callback that owns this world would keep it alive for ever.
        self.cluster().stop_intercepting();
        self.cluster().on_response(|_| {});
    }

    /// How many handles exist besides this one.
    pub(crate) fn other_handles(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Checks a stored write.
    fn on_stored(&self, written: &Written) {
        self.0.counts.writes.fetch_add(1, Ordering::Relaxed);
        let writer = self.0.writer.lock();
        let process = writer.as_ref().map(|it| it.process.clone());
        let needs_term = writer.as_ref().is_some_and(|it| it.needs_term);
        drop(writer);
        let by = process.as_ref().map_or("world", |it| it.name.as_str());
        self.trace(|| {
            let place =
                if written.namespace().is_empty() { String::new() } else { format!("{}/", written.namespace()) };
            let Write { by, written } = Write { by, written };
            let (change, resource) = (written.change(), written.resource());
            format!("{by} = {change:?} {resource} {place}{} @{}", written.name(), written.version())
        });
        if written.kind() == "Lease" {
            self.on_lease_stored(written, process.as_ref());
        }
        // An Event describes the past, so it may be stored after the term of its sender. It must still be sent within
        // the term.
        let is_event = written.kind() == "Event";
        if let Some((process, lease)) =
            process.as_ref().filter(|_| needs_term && !is_event).and_then(|it| Some((it, it.lease?)))
        {
            let holders = self.0.holders.lock();
            let holds = holders.get(lease).and_then(Option::as_ref).is_some_and(|it| Arc::ptr_eq(it, process));
            if !holds {
                let what = format!("{} {}", written.resource(), written.name());
                self.fail(format!("{} writes {what} although the Lease does not name it", process.name));
            }
        }
        let write = Write { by, written };
        for (what, holds) in &mut *self.0.invariants.lock() {
            if let Err(why) = holds(&write) {
                self.fail(format!("{what}: {why}"));
            }
        }
        if self.plan().take_crash_at(written.version()) {
            for process in self.0.slots.lock().iter().filter_map(|it| it.current()) {
                self.trace(|| format!("!! {} is killed", process.name));
                process.kill();
            }
            self.record_fault_until(LONGEST_DELAY);
        }
    }

    fn on_lease_stored(&self, written: &Written, process: Option<&Arc<ProcessRun>>) {
        let holder_of = |lease: Option<serde_json::Value>| {
            let lease = lease.unwrap_or_default();
            lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
        };
        let (before, after) = (holder_of(written.before()), holder_of(written.after()));
        if before != after {
            let lease = format!("{}/{}", written.namespace(), written.name());
            self.0.holders.lock().insert(lease, process.filter(|_| !after.is_empty()).cloned());
        }
    }

    /// Crashes, pauses and stops processes as long as the plan says so.
    async fn inject_process_faults(self) {
        loop {
            let Some((wait, process_fault)) = self.plan().next_process_fault() else { return };
            tokio::time::sleep(wait).await;
            if self.is_calm() {
                return;
            }
            let slots = self.0.slots.lock().clone();
            let chosen = self.plan().choice(slots.len());
            let Some(process) = slots[chosen].current() else { continue };
            self.record_fault_until(POLL_INTERVAL * 5);
            match process_fault {
                ProcessFault::Crash => {
                    self.trace(|| format!("!! {} is killed", process.name));
                    process.kill();
                }
                ProcessFault::Pause(time) => process.pause(&self, time),
                ProcessFault::Stop => {
                    self.trace(|| format!("!! {} is stopped", process.name));
                    process.stop.cancel();
                }
            }
        }
    }
}
