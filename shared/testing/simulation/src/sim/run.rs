use std::{
    collections::BTreeMap,
    future::Future,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;

use super::{
    World, panics,
    plan::FaultPlan,
    script::{At, KINDS, Kind, Place, Script},
};

/// The default begin of a run: 2027-01-15T08:00:00Z.
const EPOCH: i64 = 1_800_000_000;
/// How many seeds are run without `SEEDS`.
const SEEDS: u64 = 20;
/// How many lines of the trace a failure shows.
const TRACE_LINES: usize = 80;
/// The places of a sweep without `SWEEP=all`, in equal distances, so that each scenario takes about the same time.
const MAX_PLACES: usize = 200;
/// No run needs this much virtual time.
const MAX_RUN_TIME: Duration = Duration::from_secs(24 * 3600);

/// What happens in a cluster, and what must hold: see `docs/simulation.md`.
#[derive(Clone)]
pub struct Scenario {
    name: &'static str,
    /// When it begins, in seconds since the epoch.
    epoch: i64,
    body: Arc<dyn Fn(World) -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
}

impl Scenario {
    /// `body` is run once for each seed, and once for each place of a sweep.
    #[must_use]
    pub fn new<F, Fut>(name: &'static str, body: F) -> Self
    where
        F: Fn(World) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { name, epoch: EPOCH, body: Arc::new(move |world| body(world).boxed()) }
    }

    /// Sets the begin in seconds since the epoch, for example to the night of a clock change.
    #[must_use]
    pub fn starting_at(self, epoch: i64) -> Self {
        Self { epoch, ..self }
    }
}

/// One run.
#[derive(Debug, Clone, Copy)]
enum Run {
    Seed(u64),
    Place(&'static str, Kind, At),
}

impl Run {
    fn plan(self) -> FaultPlan {
        match self {
            Self::Seed(seed) => FaultPlan::random(seed),
            Self::Place(_, kind, at) => FaultPlan::Script(Script::new(kind, at)),
        }
    }

    fn seed(self) -> u64 {
        match self {
            Self::Seed(seed) => seed,
            Self::Place(..) => 0,
        }
    }

    /// The environment variable that repeats exactly this run.
    fn variable(self) -> String {
        match self {
            Self::Seed(seed) => format!("SEED={seed}"),
            Self::Place(name, _, at) => format!("SWEEP={name}:{at}"),
        }
    }
}

/// Runs a scenario with faults from seeds: `SEEDS` many, or only `SEED`. None if `SWEEP` names places.
///
/// # Panics
/// When a run fails, with a command that repeats it.
pub fn seeds(scenario: &Scenario) {
    let runs = match (number("SEED"), std::env::var("SWEEP")) {
        (_, Ok(place)) if place != "none" => return,
        (Some(seed), _) => vec![Run::Seed(seed)],
        (None, _) => (0..number("SEEDS").unwrap_or(SEEDS)).map(Run::Seed).collect(),
    };
    run_all(scenario, &runs);
}

/// Runs a scenario once for each place of one fault: at most 200 of them, all if `SWEEP=all`, none if `SWEEP=none`, or the one
/// that `SWEEP` names.
///
/// # Panics
/// Like [`seeds`].
pub fn sweep(scenario: &Scenario) {
    let runs = match (number("SEED"), std::env::var("SWEEP").ok().as_deref()) {
        (Some(_), _) => return,
        (_, Some("all")) => places(scenario),
        (_, Some("none")) => return,
        (_, Some(place)) => vec![named(place)],
        (_, None) => {
            let all = places(scenario);
            let count = all.len().min(MAX_PLACES);
            (0..count).filter_map(|it| all.get(it * all.len() / count).copied()).collect()
        }
    };
    run_all(scenario, &runs);
}

/// The trace of one seed.
///
/// # Errors
/// Why it failed.
pub fn trace(scenario: &Scenario, seed: u64) -> Result<Vec<String>, String> {
    let played = run_once(scenario, Run::Seed(seed), true);
    played.result.map(|()| played.trace)
}

/// The trace of one place of a sweep, named as in `SWEEP`.
///
/// # Errors
/// Why it failed.
pub fn trace_of(scenario: &Scenario, place: &str) -> Result<Vec<String>, String> {
    let played = run_once(scenario, named(place), true);
    played.result.map(|()| played.trace)
}

struct RunResult {
    result: Result<(), String>,
    trace: Vec<String>,
    counts: [u64; 3],
    /// The versions at the start of the first process, at the newest first list, and at the end.
    versions: [u64; 3],
    /// False when the fault of a sweep could not be carried out.
    took_effect: bool,
}

/// Every place of a run without faults.
fn places(scenario: &Scenario) -> Vec<Run> {
    let calm = run_plan(scenario, FaultPlan::Calm, 0, true);
    if let Err(why) = calm.result {
        panic!("{} fails without any fault: {why}\n{}", scenario.name, tail(&calm.trace));
    }
    let [requests, events, _] = calm.counts;
    let [started, first_view, last] = calm.versions;
    let of = |(name, kind, place)| {
        let at: Vec<At> = match place {
            Place::Request => (0..requests).map(At::number).collect(),
            Place::Event => (0..events).map(At::number).collect(),
            Place::View => (1..first_view).map(At::number).collect(),
            Place::Restart => (started + 1..=last).flat_map(|it| restarts(started, it)).collect(),
        };
        at.into_iter().map(move |at| Run::Place(name, kind, at))
    };
    KINDS.into_iter().flat_map(of).collect()
}

/// The versions that are shown after all processes were killed at a version: the one before, one in the middle, and
/// that of the first start.
fn restarts(started: u64, number: u64) -> impl Iterator<Item = At> {
    let mut views = vec![number - 1, started.midpoint(number), started];
    views.dedup();
    views.into_iter().map(move |view| At { number, view: Some(view) })
}

fn named(place: &str) -> Run {
    let found = place.split_once(':').and_then(|(name, at)| {
        let (name, kind, _) = KINDS.into_iter().find(|it| it.0 == name)?;
        Some(Run::Place(name, kind, at.parse().ok()?))
    });
    let names: Vec<&str> = KINDS.iter().map(|it| it.0).collect();
    let Some(run) = found else { panic!("SWEEP={place}: want KIND:NUMBER, with a kind of {}", names.join(", ")) };
    run
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let Ok(number) = text.parse() else { panic!("{variable}={text} is not a number") };
    Some(number)
}

/// Runs on all cores, each run on one thread. Stops at the first failure.
fn run_all(scenario: &Scenario, runs: &[Run]) {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failed = Mutex::new(Vec::new());
    let totals = Mutex::new([0; 3]);
    // For each kind of fault: at how many places it had no effect, and at how many it had one.
    let effects: Mutex<BTreeMap<&str, [u64; 2]>> = Mutex::default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(runs.len().max(1));
    std::thread::scope(|threads| {
        for _ in 0..cores {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&run) = runs.get(number) else { break };
                    let traced = std::env::var_os("TRACE").is_some();
                    let played = run_once(scenario, run, traced);
                    if let Run::Place(name, ..) = run {
                        effects.lock().entry(name).or_insert([0; 2])[usize::from(played.took_effect)] += 1;
                    }
                    for (total, count) in totals.lock().iter_mut().zip(played.counts) {
                        *total += count;
                    }
                    if traced {
                        print(&format!("{} {}\n{}", scenario.name, run.variable(), played.trace.join("\n")));
                    }
                    if let Err(why) = played.result {
                        stop.store(true, Ordering::Relaxed);
                        failed.lock().push((number, run, why));
                    }
                }
            });
        }
    });
    // Report the first of the runs that failed at the same time.
    if let Some((_, run, why)) = failed.lock().iter().min_by_key(|it| it.0) {
        panic!("{}", report(scenario, *run, why));
    }
    let [requests, events, writes] = *totals.lock();
    let runs = runs.len();
    print(&format!("{}: {runs} runs, {requests} requests, {events} watch events, {writes} writes", scenario.name));
    let effects = effects.into_inner();
    for (name, [missed, took_effect]) in &effects {
        print(&format!("{}: {name} took effect at {took_effect} of {} places", scenario.name, missed + took_effect));
    }
    if !effects.is_empty() {
        let all = effects.values().map(|it| it[1]).sum::<u64>();
        print(&format!("{}: faults took effect at {all} places in total", scenario.name));
    }
}

/// The report of a failure: the reason, the trace, and the command that repeats it.
fn report(scenario: &Scenario, run: Run, why: &str) -> String {
    let again = run_once(scenario, run, true);
    let differs = match &again.result {
        Err(now) if now == why => String::new(),
        other => format!("\nTHE REPEATED RUN ENDED DIFFERENTLY, so the run is not repeatable: {other:?}"),
    };
    let (name, variable) = (scenario.name, run.variable());
    let command = command(&variable);
    format!("{name}: {why}{differs}\n\n{}\n\n{variable} fails; to repeat it:\n\n    {command}\n", tail(&again.trace))
}

/// The last lines of a trace.
fn tail(trace: &[String]) -> String {
    let first = trace.len().saturating_sub(TRACE_LINES);
    format!(
        "the last {} of {} lines (TRACE=1 shows all):\n{}",
        trace.len() - first,
        trace.len(),
        trace[first..].join("\n")
    )
}

/// The command that repeats one run of the present test.
fn command(variable: &str) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".to_owned());
    let program = std::env::current_exe().ok();
    let stem = program.as_deref().and_then(|it| it.file_stem()?.to_str()).unwrap_or_default();
    let target = stem.rsplit_once('-').map_or(stem, |it| it.0);
    let target = if target == package.replace('-', "_") { "--lib".to_owned() } else { format!("--test {target}") };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    format!("{variable} cargo test -p {package} {target} {test} -- --exact --nocapture")
}

/// Executes one run on this thread.
fn run_once(scenario: &Scenario, run: Run, traced: bool) -> RunResult {
    let played = run_plan(scenario, run.plan(), run.seed(), traced);
    let missed = matches!(run, Run::Place(_, kind, _) if kind.can_always_happen()) && !played.took_effect;
    match played.result {
        Ok(()) if missed => RunResult { result: Err("the fault of this place had no effect".to_owned()), ..played },
        _ => played,
    }
}

fn run_plan(scenario: &Scenario, plan: FaultPlan, seed: u64, traced: bool) -> RunResult {
    panics::start_recording();
    let world = Mutex::new(None);
    let result = panic::catch_unwind(AssertUnwindSafe(|| run_to_end(scenario, plan, seed, traced, &world)));
    let panics = panics::take();
    let result = match result {
        Ok(result) if panics.is_empty() => result,
        _ => Err(format!("panicked: {}", panics.join("; "))),
    };
    let world: Option<World> = world.into_inner();
    let Some(world) = world else { panic!("no world: {result:?}") };
    let [started, first_view] = world.counts().views();
    let took_effect = matches!(&*world.plan(), FaultPlan::Script(it) if it.took_effect);
    let result = result.and_then(|()| match world.other_handles() {
        0 => Ok(()),
        left => Err(format!("memory leak: {left} handles of the world are left after everything was dropped")),
    });
    RunResult {
        result,
        trace: world.take_trace(),
        counts: world.counts().all(),
        versions: [started, first_view, world.cluster().version()],
        took_effect,
    }
}

/// Executes a run to its end. The world is returned in any case.
fn run_to_end(
    scenario: &Scenario,
    plan: FaultPlan,
    seed: u64,
    traced: bool,
    left: &Mutex<Option<World>>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|err| err.to_string())?;
    runtime.block_on(async {
        let world = World::new(seed, plan, traced, scenario.epoch);
        *left.lock() = Some(world.clone());
        let done = tokio::time::timeout(MAX_RUN_TIME, run_scenario(&world, scenario));
        let result = tokio::select! {
            biased;
            why = world.failure() => Err(why),
            // A panic of the scenario itself is reported with its seed too.
            done = AssertUnwindSafe(done).catch_unwind() => match done {
                Ok(Ok(done)) => done,
                Ok(Err(_)) => Err("the scenario does not end".to_owned()),
                Err(_) => Err("the scenario panicked".to_owned()),
            }
        };
        world.drop_all();
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let result = match result {
            Ok(()) if left > 0 => Err(format!("{left} tasks are left although every process was dropped")),
            result => result,
        };
        if let Err(why) = &result {
            world.trace(|| format!("## {why}"));
        }
        result
    })
}

async fn run_scenario(world: &World, scenario: &Scenario) -> Result<(), String> {
    (scenario.body)(world.clone()).await?;
    world.end().await
}

#[expect(clippy::print_stdout, reason = "a test prints a summary, which cargo shows with --nocapture")]
fn print(text: &str) {
    println!("{text}");
}
