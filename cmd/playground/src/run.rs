//! The whole run, from start to cleanup.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use clock::{Clock, Instant};
use fake_nodes::{Environment, Fleet, PREFIX};
use mini_kcm::config::Config;
use serde_json::{Value, json};
use tasks::{Scope, Spawner};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{Layer, filter::LevelFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    chaos,
    cleanup::clean_up,
    flags::Options,
    manager::{self, Manager},
    samples::{NODE_FAILURE, Progress, SAMPLES, Sample, State},
    screen::Screen,
    screen_model::{Row, ScreenModel},
    shared_state::{Known, SharedState},
    signals::Signals,
    target::{Cluster, ManagerPlan, Target},
    user::User,
};

/// The time limit for the registration of the nodes. In this process they register at once.
const REGISTRATION: Duration = Duration::from_secs(30);
/// The running time of pods without a script, such as those of a user's Job, unless the pod is always restarted.
const UNSCRIPTED: Duration = Duration::from_secs(3);
/// The interval at which kubelets renew their Leases. It is short, because the manager's grace period is short too.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest time between two redraws of the screen.
const FRAME: Duration = Duration::from_millis(80);
/// How many lines of the log are printed after a failure.
const LOG_LINES: usize = 12;

/// How the run ended.
enum End {
    Done,
    Interrupted,
    Failed(String),
}

/// Runs the samples until they are done or the user stops them.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let folder = tempfile::Builder::new().prefix("mini-kcm-playground-").tempdir().context("no temporary folder")?;
    let log = folder.path().join("playground.log");
    log_to(&log)?;
    let stop = CancellationToken::new();
    let ended = tokio::select! {
        biased;
        () = wait_for_second_signal(&mut signals, &stop) => bail!("second signal: ended without cleaning up"),
        ended = run_samples(&options, folder.path(), &stop, Screen::open) => ended,
    };
    if ended.is_err() {
        crate::screen::print(&tail(&log), true);
    }
    ended
}

/// Cancels `stop` at the first signal, and returns at the second.
async fn wait_for_second_signal(signals: &mut Signals, stop: &CancellationToken) {
    signals.next().await;
    stop.cancel();
    signals.next().await;
}

async fn run_samples(
    options: &Options,
    folder: &Path,
    stop: &CancellationToken,
    open: fn() -> Screen,
) -> anyhow::Result<()> {
    let (clock, scope, state) = (Clock::system(), Scope::new(), Arc::new(SharedState::new()));
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let target = async {
        match &options.kubeconfig {
            Some(path) => Target::real(options, path, &id(), &clock).await,
            None => Target::embedded(options, seed, clock.clone(), folder).await,
        }
    };
    let target = tokio::select! {
        biased;
        () = stop.cancelled() => return interrupted(!options.until_done),
        target = target => target?,
    };
    let config = manager::config(options, &target)?;
    let samples = runnable_samples(config.as_ref(), options.kill_node);
    let mut model = ScreenModel { head: head(&target, seed, options), hints: hints(&target), ..ScreenModel::default() };
    model.foot = "Ctrl-C stops and cleans up".to_owned();
    let mut screen = open();
    model.head.iter().chain(&model.hints).for_each(|it| screen.print_line(it));
    if let Cluster::Embedded { cluster, .. } = &target.cluster
        && options.chaos
    {
        chaos::begin(cluster, state.clone(), seed);
    }
    // From here on the cleanup must run in any case.
    let fleet = start_nodes(&target, seed, &clock, &scope.spawner());
    let user = User {
        client: target.client.clone(),
        context: target.context.clone(),
        placement: target.placement.clone(),
        state,
    };
    // The tasks that create and change objects must end before the cleanup, or they would work against it.
    let user_tasks = Scope::new();
    let mut manager = None;
    let mut runner = SampleRunner {
        user: &user,
        samples: &samples,
        spawner: user_tasks.spawner(),
        clock: &clock,
        began: clock.now(),
        until_done: options.until_done,
    };
    let of_manager = matches!(target.cluster, Cluster::Embedded { .. }).then_some(seed);
    let run_all = async {
        if let Some(config) = config {
            manager = Some(Manager::start(config, of_manager, &scope.spawner()).await?);
        }
        tokio::select! {
            biased;
            cause = manager::wait_for_exit(manager.as_mut()) => Ok(End::Failed(format!("mini-kcm has ended: {cause}"))),
            end = async {
                prepare(&user, &fleet, &samples, &user_tasks.spawner()).await?;
                anyhow::Ok(runner.run(&mut model, &mut screen, options.timeout).await)
            } => end,
        }
    };
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => End::Interrupted,
        cause = scope.panicked() => End::Failed(cause),
        cause = user_tasks.panicked() => End::Failed(cause),
        end = run_all => end.unwrap_or_else(|err| End::Failed(format!("{err:#}"))),
    };
    let all_done = model.all_done();
    screen.close(&model);
    crate::screen::print("cleaning up\n", false);
    drop(user_tasks);
    let cleaned = clean_up(target, user, fleet, manager).await;
    match (end, cleaned) {
        (End::Failed(why), Ok(())) => bail!(why),
        (End::Failed(why), Err(err)) => bail!("{why}; {err:#}"),
        (End::Interrupted, Ok(())) => interrupted(!options.until_done || all_done),
        (End::Done | End::Interrupted, cleaned) => cleaned,
    }
}

fn interrupted(clean: bool) -> anyhow::Result<()> {
    if clean { Ok(()) } else { bail!("interrupted before all samples were done") }
}

/// The run while the user watches.
struct SampleRunner<'a> {
    user: &'a User,
    samples: &'a [&'static Sample],
    spawner: Spawner,
    clock: &'a Clock,
    began: Instant,
    until_done: bool,
}

impl SampleRunner<'_> {
    /// Shows every change. Returns when all samples are done with `--until-done`; otherwise it does not return.
    async fn run(&mut self, model: &mut ScreenModel, screen: &mut Screen, timeout: Duration) -> End {
        let mut changes = self.user.state.subscribe();
        let deadline = self.began + timeout;
        loop {
            changes.borrow_and_update();
            model.elapsed = self.clock.now() - self.began;
            self.update(model, screen);
            screen.draw(model);
            if self.until_done && model.all_done() {
                return End::Done;
            }
            let failed = model.rows.iter().find(|it| it.progress.state == State::Failed);
            if let Some(Row { name, progress, .. }) = failed.filter(|_| self.until_done) {
                return End::Failed(format!("sample {name} failed: {}", progress.text));
            }
            if self.until_done && self.clock.now() >= deadline {
                return End::Failed(timeout_message(model, timeout));
            }
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            if screen.is_terminal() {
                tokio::time::sleep(FRAME).await;
            }
        }
    }

    /// Updates the model from the present state, and starts the user's steps that are due.
    fn update(&self, model: &mut ScreenModel, screen: &Screen) {
        let state = &self.user.state;
        let lines = state.read(|it| std::mem::take(&mut it.lines));
        let mut rows = Vec::new();
        for sample in self.samples {
            let (progress, due) = state.read(|it| (progress(sample, self.user, it), self.next_step(sample, it)));
            if let Some(step) = due {
                self.start_step(sample, step);
            }
            rows.push(Row { name: sample.name, shows: sample.shows, progress });
        }
        for line in lines {
            screen.print_line(&model.record_change(&line));
        }
        for row in &rows {
            let before = model.rows.iter().find(|it| it.name == row.name);
            if before != Some(row) {
                let done = if row.progress.state == State::Done { " (done)" } else { "" };
                screen.print_line(&model.record_change(&format!("{:<12}{}{done}", row.name, row.progress.text)));
            }
        }
        (model.nodes, model.faults) = state.read(|it| (nodes(&it.observed), it.faults.clone()));
        model.rows = rows;
        if model.all_done() && !model.foot.contains("done") {
            let stays = if self.until_done { "" } else { "; the cluster runs until Ctrl-C" };
            model.foot = format!("all samples are done{stays}");
            screen.print_line(&model.record_change(&model.foot.clone()));
        }
    }

    /// The number of the step that the user must do now.
    fn next_step(&self, sample: &'static Sample, known: &mut Known) -> Option<usize> {
        let number = known.steps.get(sample.name).copied().unwrap_or(0);
        let step = sample.steps.get(number)?;
        let ready = known.created.contains(sample.name) && !known.busy.contains(sample.name);
        (ready && (step.when)(&self.user.context, &known.observed)).then(|| {
            known.busy.insert(sample.name);
            number
        })
    }

    fn start_step(&self, sample: &'static Sample, number: usize) {
        let (user, step) = (self.user.clone(), &sample.steps[number]);
        user.state.add_line(format!("$ {}", (step.command)(&user.context)));
        self.spawner.spawn("step", async move {
            let done = user.act(&(step.act)(&user.context)).await;
            user.state.change(|it| {
                it.busy.remove(sample.name);
                match done {
                    Ok(()) => drop(it.steps.insert(sample.name, number + 1)),
                    Err(err) => drop(it.failed.insert(sample.name, format!("{err:#}"))),
                }
            });
        });
    }
}

fn progress(sample: &Sample, user: &User, known: &Known) -> Progress {
    if let Some(why) = known.failed.get(sample.name) {
        return Progress::failed(why.clone());
    }
    if !known.created.contains(sample.name) {
        return Progress::going("being created");
    }
    (sample.progress)(&user.context, &known.observed)
}

fn timeout_message(model: &ScreenModel, timeout: Duration) -> String {
    let going = model.rows.iter().filter(|it| it.progress.state != State::Done);
    let going: Vec<String> = going.map(|it| format!("{} ({})", it.name, it.progress.text)).collect();
    format!("--timeout: after {timeout:?} not done: {}", going.join(", "))
}

fn nodes(observed: &crate::observed::Observed) -> Vec<String> {
    let word = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True");
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        format!("{name} {}", if ready { "Ready" } else { "NotReady" })
    };
    observed.named("Node", "", "").map(word).collect()
}

/// Samples whose controllers run.
fn runnable_samples(config: Option<&Config>, kill_node: bool) -> Vec<&'static Sample> {
    let runs = |controller: &str| match config {
        Some(config) => config.controllers.implemented().any(|it| it.name == controller),
        // A real manager runs all controllers.
        None => true,
    };
    SAMPLES.iter().chain(kill_node.then_some(NODE_FAILURE)).filter(|it| it.needs.iter().all(|it| runs(it))).collect()
}

fn head(target: &Target, seed: u64, options: &Options) -> Vec<String> {
    let manager = match &target.manager {
        ManagerPlan::Ours { .. } => "mini-kcm, in this process".to_owned(),
        ManagerPlan::Theirs { holder } => format!("the cluster's own ({holder}); mini-kcm is not started beside it"),
    };
    let chaos = if options.chaos { " --chaos" } else { "" };
    let kill_node = if options.kill_node { " --kill-node" } else { "" };
    vec![
        format!("cluster     {}", target.server),
        format!("manager     {manager}"),
        format!("repeat      --seed={seed}{chaos}{kill_node}"),
        format!("kubeconfig  {}", target.kubeconfig.display()),
    ]
}

fn hints(target: &Target) -> Vec<String> {
    let home = &target.context.home;
    let node = target.nodes.first().map(|it| it.name.as_str()).unwrap_or_default();
    vec![
        format!("export KUBECONFIG={}", target.kubeconfig.display()),
        format!("kubectl get nodes; kubectl get pods -n {home} -w; kubectl describe pod flaky -n {home}"),
        format!("kubectl get jobs,cronjobs -n {home}; kubectl describe job shards -n {home}"),
        format!("kubectl rollout history deployment/shop -n {home}; kubectl get replicasets -n {home}"),
        format!("kubectl get configmaps -n {home} -w; kubectl delete configmap orphan-part -n {home}"),
        format!("kubectl delete pods --all -n {home}; kubectl get events -n {home}"),
        format!("kubectl annotate node {node} {PREFIX}silent=true; kubectl annotate node {node} {PREFIX}silent-"),
    ]
}

fn start_nodes(target: &Target, seed: u64, clock: &Clock, spawner: &Spawner) -> Fleet {
    let options = fake_nodes::Options {
        nodes: target.nodes.clone(),
        schedulers: target.schedulers.clone(),
        seed,
        events: true,
        unscripted: Some(UNSCRIPTED),
        renew_interval: RENEW_INTERVAL,
    };
    let environment = Environment { client: target.client.clone(), clock: clock.clone(), spawner: spawner.clone() };
    Fleet::start(options, environment)
}

/// Waits for the nodes, starts watching, and starts the creation of the samples' objects.
async fn prepare(user: &User, fleet: &Fleet, samples: &[&'static Sample], spawner: &Spawner) -> anyhow::Result<()> {
    tokio::time::timeout(REGISTRATION, fleet.registered()).await.context("the fake nodes could not register")?;
    let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": user.context.home } });
    user.create(&home).await?;
    user.watch("v1", "Namespace", "", spawner);
    user.watch("v1", "Node", "", spawner);
    for namespace in [&user.context.home, &user.context.deleted_namespace] {
        user.watch("v1", "Pod", namespace, spawner);
        let kinds: BTreeSet<_> = samples.iter().flat_map(|it| it.watched_kinds).collect();
        for (api_version, kind) in kinds {
            user.watch(api_version, kind, namespace, spawner);
        }
    }
    for sample in samples {
        spawner.spawn("set-up", user.clone().set_up(sample));
    }
    Ok(())
}

/// Distinguishes our objects on a real cluster from others. It does not come from the seed, because two playgrounds may
/// have equal seeds.
fn id() -> String {
    std::iter::repeat_with(fastrand::lowercase).take(5).collect()
}

fn log_to(path: &Path) -> anyhow::Result<()> {
    let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::sync::Mutex::new(file)).with_ansi(false);
    tracing_subscriber::registry().with(lines.with_filter(LevelFilter::INFO)).init();
    Ok(())
}

/// The last warnings and errors of the log.
fn tail(path: &Path) -> String {
    // The log may not exist.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let bad: Vec<&str> = text.lines().filter(|it| it.contains("ERROR") || it.contains("WARN")).collect();
    let from = bad.len().saturating_sub(LOG_LINES);
    bad[from..].iter().map(|it| format!("{it}\n")).collect()
}

#[cfg(test)]
mod tests;
