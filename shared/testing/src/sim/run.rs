use std::{
    future::Future,
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
    plan::{KINDS, Kind, Place, Plan},
};

/// Seeds that are tried where `SEEDS` does not say.
const SEEDS: u64 = 20;
/// Lines of the trace that a failure shows.
const SHOWN: usize = 80;
/// Virtual time that no run needs.
const ENDLESS: Duration = Duration::from_secs(24 * 3600);

/// What happens in a cluster, and what must hold: see `docs/simulation.md`.
#[derive(Clone)]
pub struct Scenario {
    name: &'static str,
    body: Arc<dyn Fn(World) -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
}

impl Scenario {
    /// A scenario is played once for each seed, and once for each place of a sweep.
    #[must_use]
    pub fn new<F, Fut>(name: &'static str, body: F) -> Self
    where
        F: Fn(World) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self { name, body: Arc::new(move |world| body(world).boxed()) }
    }
}

/// One run to be made.
#[derive(Debug, Clone, Copy)]
enum Run {
    Seed(u64),
    Place(&'static str, Kind, u64),
}

impl Run {
    fn plan(self) -> Plan {
        match self {
            Self::Seed(seed) => Plan::random(seed),
            Self::Place(_, kind, at) => Plan::script(kind, at),
        }
    }

    fn seed(self) -> u64 {
        match self {
            Self::Seed(seed) => seed,
            Self::Place(..) => 0,
        }
    }

    /// What makes this run, and only it, once more.
    fn variable(self) -> String {
        match self {
            Self::Seed(seed) => format!("SEED={seed}"),
            Self::Place(name, _, at) => format!("SWEEP={name}:{at}"),
        }
    }
}

/// Plays a scenario with faults from seeds: `SEEDS` of them, or the one that is called `SEED`.
///
/// # Panics
/// When it fails, with a command that makes it fail again.
pub fn seeds(scenario: &Scenario) {
    let runs = match (number("SEED"), std::env::var("SWEEP")) {
        (_, Ok(_)) => return,
        (Some(seed), _) => vec![Run::Seed(seed)],
        (None, _) => (0..number("SEEDS").unwrap_or(SEEDS)).map(Run::Seed).collect(),
    };
    play(scenario, &runs);
}

/// Plays a scenario once for each place where one fault can be, or at the one place that is called `SWEEP`.
///
/// # Panics
/// As [`seeds`].
pub fn sweep(scenario: &Scenario) {
    let runs = match (number("SEED"), std::env::var("SWEEP")) {
        (Some(_), _) => return,
        (_, Ok(place)) => vec![named(&place)],
        (_, Err(_)) => places(scenario),
    };
    play(scenario, &runs);
}

/// The trace of one seed.
///
/// # Errors
/// Why it failed.
pub fn trace(scenario: &Scenario, seed: u64) -> Result<Vec<String>, String> {
    let played = once(scenario, Run::Seed(seed).plan(), seed, true);
    played.result.map(|()| played.trace)
}

struct Played {
    result: Result<(), String>,
    trace: Vec<String>,
    counts: [u64; 3],
    version: u64,
}

/// Every place of a run without faults.
fn places(scenario: &Scenario) -> Vec<Run> {
    let calm = once(scenario, Plan::Calm, 0, true);
    if let Err(why) = calm.result {
        panic!("{} fails without any fault: {why}\n{}", scenario.name, tail(&calm.trace));
    }
    let [requests, events, _] = calm.counts;
    let of = |(name, kind, place)| {
        let count = match place {
            Place::Request => requests,
            Place::Event => events,
            Place::Version => calm.version,
        };
        (0..count).map(move |at| Run::Place(name, kind, at))
    };
    KINDS.into_iter().flat_map(of).collect()
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
    let Ok(number) = text.parse() else { panic!("{variable}={text} is no number") };
    Some(number)
}

/// Plays runs on all cores, each run on one thread. Ends at the first that fails.
fn play(scenario: &Scenario, runs: &[Run]) {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failed = Mutex::new(Vec::new());
    let totals = Mutex::new([0; 3]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(runs.len().max(1));
    std::thread::scope(|threads| {
        for _ in 0..cores {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&run) = runs.get(number) else { break };
                    let told = std::env::var_os("TRACE").is_some();
                    let played = once(scenario, run.plan(), run.seed(), told);
                    for (total, count) in totals.lock().iter_mut().zip(played.counts) {
                        *total += count;
                    }
                    if told {
                        say(&format!("{} {}\n{}", scenario.name, run.variable(), played.trace.join("\n")));
                    }
                    if let Err(why) = played.result {
                        stop.store(true, Ordering::Relaxed);
                        failed.lock().push((number, run, why));
                    }
                }
            });
        }
    });
    // Of those that were under way together, the first.
    if let Some((_, run, why)) = failed.lock().iter().min_by_key(|it| it.0) {
        panic!("{}", report(scenario, *run, why));
    }
    let [requests, events, writes] = *totals.lock();
    let runs = runs.len();
    say(&format!("{}: {runs} runs, {requests} requests, {events} watch events, {writes} writes", scenario.name));
}

/// What a failure says: why, how it came to that, and how to see it again.
fn report(scenario: &Scenario, run: Run, why: &str) -> String {
    let again = once(scenario, run.plan(), run.seed(), true);
    let differs = match &again.result {
        Err(now) if now == why => String::new(),
        other => format!("\nPLAYED AGAIN IT ENDED OTHERWISE, so something is not repeatable: {other:?}"),
    };
    let (name, variable) = (scenario.name, run.variable());
    let command = command(&variable);
    format!("{name}: {why}{differs}\n\n{}\n\n{variable} fails; the same again:\n\n    {command}\n", tail(&again.trace))
}

/// The last lines before the end.
fn tail(trace: &[String]) -> String {
    let first = trace.len().saturating_sub(SHOWN);
    format!(
        "the last {} of {} lines (TRACE=1 shows all):\n{}",
        trace.len() - first,
        trace.len(),
        trace[first..].join("\n")
    )
}

/// The command that plays one run of the present test.
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

/// Plays one run to its end, on this thread.
fn once(scenario: &Scenario, plan: Plan, seed: u64, traced: bool) -> Played {
    panics::listen();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = runtime else { panic!("no runtime") };
    let played = runtime.block_on(async {
        let world = World::new(seed, plan, traced);
        let body = (scenario.body)(world.clone());
        let result = tokio::select! {
            biased;
            why = world.broken() => Err(why),
            done = tokio::time::timeout(ENDLESS, lives(&world, body)) => {
                done.unwrap_or_else(|_| Err("the scenario does not end".to_owned()))
            }
        };
        world.drop_all();
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let result = match result {
            Ok(()) if left > 0 => Err(format!("{left} tasks are left, though every process was dropped")),
            result => result,
        };
        if let Err(why) = &result {
            world.trace(|| format!("## {why}"));
        }
        Played { result, trace: world.take_trace(), counts: world.counts().all(), version: world.cluster().version() }
    });
    let panics = panics::heard();
    let result = if panics.is_empty() { played.result } else { Err(format!("panicked: {}", panics.join("; "))) };
    Played { result, ..played }
}

async fn lives(world: &World, body: BoxFuture<'static, Result<(), String>>) -> Result<(), String> {
    body.await?;
    world.end().await
}

#[expect(clippy::print_stdout, reason = "a test tells what it did, and cargo shows it on demand")]
fn say(text: &str) {
    println!("{text}");
}
