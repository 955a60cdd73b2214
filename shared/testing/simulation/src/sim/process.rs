use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use client::{Limits, Transport};
use clock::{Clock, Instant};
use controller::Builder;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tasks::{Gate, Scope};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{World, network, request::SimRequest};
use harness::Rig;

/// `--leader-elect-renew-deadline`: a process must not send a write this long after it sent its last renewal.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The largest difference between the wall clocks of two machines, in seconds.
pub const MAX_CLOCK_SKEW: i64 = 30;
/// No process needs this long to stop.
const MAX_STOP_TIME: Duration = Duration::from_secs(200);

/// What a process of the simulation gets at its start. It must start its tasks in `scope`, read the time from `clock`,
/// send requests through `transport`, and derive randomness from `seed`.
pub struct Process {
    /// Unique among all processes: `a#1` is the first start of `a`.
    pub name: String,
    /// The transport to the API server, with injected faults.
    pub transport: Transport,
    /// Its own clock: processes differ in wall time.
    pub clock: Clock,
    /// Owns the tasks of the process.
    pub scope: Scope,
    /// SIGTERM.
    pub stop: CancellationToken,
    /// Equal in equal runs.
    pub seed: u64,
}

/// The main function of a process.
pub(crate) type Main = Arc<dyn Fn(Process) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// A process that runs one controller without leader election, as declared by `start`, until it is stopped.
pub fn controller(
    name: &'static str,
    start: impl Fn(&mut Builder) + Send + Sync + 'static,
) -> impl Fn(Process) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
    let start = Arc::new(start);
    move |process| {
        let start = start.clone();
        async move {
            let Process { name: host, transport, clock, scope, stop, seed } = process;
            let Rig { mut deps, scope, stop } = Rig::within(scope, stop, transport, clock, Limits::NONE, seed);
            deps.host = host;
            let informers = deps.informers.clone();
            let mut builder = Builder::new(name, deps);
            start(&mut builder);
            builder.build().run(stop, std::future::ready(())).await;
            informers.shut_down().await;
            drop(scope);
            Ok(())
        }
        .boxed()
    }
}

/// A process that is started again each time it ends, until it is stopped for good.
pub(crate) struct SupervisedProcess {
    pub(crate) name: &'static str,
    lease: Option<&'static str>,
    main: Main,
    /// The result of the last run; `Ok` after a crash.
    exit: Mutex<Result<(), String>>,
    current: Mutex<Option<Arc<ProcessRun>>>,
    stopped: AtomicBool,
    ended: Notify,
    over: AtomicBool,
}

/// One run of a process, from its start to its end.
pub(crate) struct ProcessRun {
    pub(crate) name: String,
    gate: Gate,
    pub(crate) stop: CancellationToken,
    /// It was killed: from now on it has no effect.
    dying: AtomicBool,
    killed: Notify,
    /// All its tasks are dropped. What still runs was detached.
    gone: AtomicBool,
    /// The Lease of its leader election. It must not write without holding it.
    pub(crate) lease: Option<&'static str>,
    term: Mutex<Term>,
    /// Until when it is paused.
    paused: Mutex<Option<Instant>>,
}

/// What the simulation knows of a term.
#[derive(Default)]
struct Term {
    /// When the last renewal was sent that the process knows to be stored.
    renewed: Option<Instant>,
    released: bool,
}

impl ProcessRun {
    fn new(name: String, lease: Option<&'static str>) -> Self {
        Self {
            name,
            gate: Gate::new(),
            stop: CancellationToken::new(),
            dying: AtomicBool::new(false),
            killed: Notify::new(),
            gone: AtomicBool::new(false),
            lease,
            term: Mutex::default(),
            paused: Mutex::default(),
        }
    }

    /// Like `kill -9`: it executes nothing more.
    pub(crate) fn kill(&self) {
        self.dying.store(true, Ordering::Relaxed);
        self.gate.close();
        self.killed.notify_one();
    }

    pub(crate) fn is_dying(&self) -> bool {
        self.dying.load(Ordering::Relaxed)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Like `kill -STOP` and later `kill -CONT`.
    pub(crate) fn pause(self: &Arc<Self>, world: &World, pause: Duration) {
        world.trace(|| format!("!! {} is paused for {pause:?}", self.name));
        self.gate.close();
        world.record_fault_until(pause);
        let until = world.now() + pause;
        {
            // With two overlapping pauses the later end counts.
            let mut paused = self.paused.lock();
            *paused = (*paused).max(Some(until));
        }
        let (it, run) = (self.clone(), world.clone());
        world.spawn("pause", async move {
            tokio::time::sleep(pause).await;
            if it.paused.lock().is_some_and(|end| end <= run.now()) {
                run.trace(|| format!("!! {} continues", it.name));
                it.resume();
            }
        });
    }

    pub(crate) fn resume(&self) {
        if !self.is_dying() {
            self.gate.open();
        }
    }

    /// Returns an error when the process must not send this now.
    pub(crate) fn check_send(&self, asked: &SimRequest, now: Instant) -> Result<(), String> {
        if self.lease.is_none() || !asked.needs_term() {
            return Ok(());
        }
        let term = self.term.lock();
        match term.renewed {
            _ if term.released => Err(format!("{} sends {asked} after it released its Lease", self.name)),
            None => Err(format!("{} sends {asked} before its term", self.name)),
            Some(renewed) if now.saturating_duration_since(renewed) >= RENEW_DEADLINE => {
                let late = now.saturating_duration_since(renewed);
                Err(format!("{} sends {asked} after its term: its last renewal was sent {late:?} ago", self.name))
            }
            Some(_) => Ok(()),
        }
    }

    /// A renewal of the Lease was stored and answered.
    pub(crate) fn on_renewed(&self, sent: Instant) {
        self.term.lock().renewed = Some(sent);
    }

    /// The process has sent an update that removes the holder of the Lease.
    pub(crate) fn on_released(&self) {
        self.term.lock().released = true;
    }
}

impl SupervisedProcess {
    pub(crate) fn new(name: &'static str, lease: Option<&'static str>, main: Main) -> Self {
        Self {
            name,
            lease,
            main,
            exit: Mutex::new(Ok(())),
            current: Mutex::default(),
            stopped: AtomicBool::new(false),
            ended: Notify::new(),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn current(&self) -> Option<Arc<ProcessRun>> {
        self.current.lock().clone().filter(|it| !it.is_dying())
    }

    /// Stops the process and does not start it again.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(it) = self.current() {
            it.resume();
            it.stop.cancel();
        }
    }

    pub(crate) async fn wait_until_ended(&self) -> bool {
        while !self.over.load(Ordering::Relaxed) {
            if tokio::time::timeout(MAX_STOP_TIME, self.ended.notified()).await.is_err() {
                return false;
            }
        }
        true
    }

    /// How the last run ended.
    pub(crate) fn exit(&self) -> Result<(), String> {
        self.exit.lock().clone()
    }

    /// Starts the process, and starts it again each time it ends.
    pub(crate) async fn supervise(self: Arc<Self>, world: World) {
        for start in 1_u64.. {
            let it = Arc::new(ProcessRun::new(format!("{}#{start}", self.name), self.lease));
            *self.current.lock() = Some(it.clone());
            if self.stopped.load(Ordering::Relaxed) {
                it.stop.cancel();
            }
            self.run_once(&world, &it, start).await;
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let pause = world.plan().restart_delay();
            tokio::time::sleep(pause).await;
        }
        self.over.store(true, Ordering::Relaxed);
        self.ended.notify_one();
    }

    async fn run_once(&self, world: &World, it: &Arc<ProcessRun>, start: u64) {
        let seed = world.seed_of(self.name, start);
        let skew = fastrand::Rng::with_seed(seed).i64(-MAX_CLOCK_SKEW..=MAX_CLOCK_SKEW);
        let process = Process {
            name: it.name.clone(),
            transport: network::transport(world.clone(), it.clone()),
            clock: Clock::virtual_from(world.epoch(skew)),
            scope: Scope::with_gate(it.gate.clone()),
            stop: it.stop.clone(),
            seed,
        };
        world.trace(|| format!("== {} starts", it.name));
        // A separate task: its panic is reported, and it can be dropped while it is suspended.
        let mut root = tokio::spawn(it.gate.suspend_while_closed((self.main)(process)));
        let exit = tokio::select! {
            biased;
            () = it.killed.notified() => None,
            exit = &mut root => Some(exit),
        };
        *self.exit.lock() = match &exit {
            Some(Ok(Err(why))) => Err(why.clone()),
            _ => Ok(()),
        };
        match exit {
            None => {
                root.abort();
                // The task was aborted on purpose.
                let _ = root.await;
                world.trace(|| format!("== {} crashed", it.name));
            }
            Some(Ok(Ok(()))) => world.trace(|| format!("== {} ended", it.name)),
            Some(Ok(Err(why))) => world.trace(|| format!("== {} failed: {why}", it.name)),
            // The panic hook has recorded it.
            Some(Err(_)) => world.trace(|| format!("== {} panicked", it.name)),
        }
        it.dying.store(true, Ordering::Relaxed);
        // The runtime drops its tasks at the next opportunity.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        it.gone.store(true, Ordering::Relaxed);
    }
}
