//! All graphs, run once for all scenarios.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Clock;
use e2e::{
    AuditEvent, Flavour,
    graphs::{ObservedObjects, RunContext, ScriptRunner},
    report,
    script_files::differences,
};
use futures::{StreamExt, stream};
use serde_json::Value;
use tasks::Scope;

use super::{
    files::{self, File},
    setup::{self, Setup},
};
use crate::support::{On, Once};

/// After this time without a change no further change is expected.
const QUIET: Duration = Duration::from_secs(6);
/// The time limit for the expected results.
const TIME_LIMIT: Duration = Duration::from_secs(45);
/// How many runs run at once; each has one or two namespaces.
const AT_ONCE: usize = 24;

/// The results of all runs.
#[derive(Default)]
pub(crate) struct RunResults {
    /// For each run: the differences from the expected result.
    all: BTreeMap<String, Vec<String>>,
    /// Graphs that were not run, for a reason that was printed.
    left_out: BTreeSet<String>,
    /// Calls of the collector that the server refused as unauthorized or forbidden.
    pub(crate) refused: Vec<String>,
}

impl RunResults {
    /// Runs all runs, once per server. `None` if they cannot be run.
    pub(crate) async fn on(on: On) -> Option<&'static Self> {
        static RESULTS: Once<Option<RunResults>> = Once::new();
        RESULTS.on(on, async || run_all(on).await).await.unwrap().as_ref()
    }

    /// Asserts that all runs of these graphs ended as recorded. Plays that cannot be run were reported.
    pub(crate) async fn assert_as_recorded(on: On, graphs: &[&str]) {
        let Some(results) = Self::on(on).await else { return };
        if let Err(why) = results.shown(graphs) {
            panic!("{why}");
        }
    }

    /// An error if a run of these graphs differs or does not exist.
    fn shown(&self, graphs: &[&str]) -> Result<(), String> {
        for graph in graphs {
            let of_graph = |run: &str| run.split_once('.').is_some_and(|(it, _)| it == *graph);
            let runs: Vec<_> = self.all.iter().filter(|(run, _)| of_graph(run)).collect();
            if runs.is_empty() && !self.left_out.contains(*graph) {
                return Err(format!("no run of the graph {graph} among {} runs", self.all.len()));
            }
            if let Some((run, findings)) = runs.into_iter().find(|(_, findings)| !findings.is_empty()) {
                return Err(format!("{run}:\n    {}", findings.join("\n    ")));
            }
        }
        Ok(())
    }

    /// All differences, also if nothing was run.
    pub(crate) fn findings(&self) -> Vec<String> {
        if self.all.is_empty() && self.left_out.is_empty() {
            return vec!["there are no graphs".to_owned()];
        }
        let found = self.all.iter().filter(|(_, it)| !it.is_empty());
        found.map(|(name, it)| format!("{name}:\n    {}", it.join("\n    "))).collect()
    }
}

/// One run with its expected result.
struct ScriptRun<'a> {
    name: String,
    runner: ScriptRunner<'a>,
    expected: Option<&'a Value>,
}

impl ScriptRun<'_> {
    /// Runs it; returns when the expected result is reached, or after the time limit.
    async fn run(&self, context: &RunContext) -> anyhow::Result<()> {
        self.runner.run_script().await?;
        let Some(expected) = self.expected else { return Ok(()) };
        let mut changes = context.observed.subscribe();
        let deadline = context.clock.now() + TIME_LIMIT;
        loop {
            changes.borrow_and_update();
            let reached = self.runner.result() == *expected;
            if reached || tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(());
            }
        }
    }
}

async fn run_all(on: On) -> anyhow::Result<Option<RunResults>> {
    let Some((server, flavour)) = on.audited_manager("owner graphs").await? else { return Ok(None) };
    let record = std::env::var("RECORD").is_ok_and(|it| it == "1") && on == On::Real;
    setup::define_graphs(&server.admin().await?).await?;
    let setup = Setup::with(server, flavour).await?;
    let scope = Scope::new();
    let observed = ObservedObjects::start(&setup.admin, &scope.spawner());
    let context = RunContext { admin: setup.admin.clone(), observed, clock: Clock::system() };
    let mut files = files::all()?;
    let left_out = left_out(&files, on);
    let (all, results) = run_files(&files, &left_out, &context, flavour, record).await;
    if record {
        for file in &mut files {
            file.record(&results, flavour)?;
        }
    }
    if all.values().any(|it| !it.is_empty()) {
        setup.manager.show_log();
    }
    let mut audit = setup.server.audit();
    let refused = audit.events()?.iter().filter(|it| it.is_by_controller() && matches!(it.code(), 401 | 403));
    let refused = refused.map(AuditEvent::summary).collect();
    Ok(Some(RunResults { all, left_out, refused }))
}

type Results = (BTreeMap<String, Vec<String>>, Vec<(String, Value)>);

async fn run_files(
    files: &[File],
    left_out: &BTreeSet<String>,
    context: &RunContext,
    flavour: Flavour,
    record: bool,
) -> Results {
    let begun = context.clock.now();
    let graphs = files.iter().flat_map(|file| file.topic.graphs.iter().map(move |(name, graph)| (file, name, graph)));
    let graphs = graphs.filter(|(_, name, _)| !left_out.contains(*name));
    let mut script_runs = Vec::new();
    for (file, name, graph) in graphs {
        for (run, policy) in graph.planned_runs(name) {
            let expected = file.expected(&run, flavour).filter(|_| !record);
            script_runs.push(ScriptRun {
                name: run,
                runner: ScriptRunner::new(context, name, graph, policy),
                expected,
            });
        }
    }
    let runs = script_runs.iter().map(|it| it.run(context));
    let ended: Vec<anyhow::Result<()>> = stream::iter(runs).buffered(AT_ONCE).collect().await;
    let took = context.clock.now().saturating_duration_since(begun);
    report(&format!("{} runs of owner graphs in {took:.1?}", script_runs.len()));
    wait_until_quiet(context).await;

    let (mut found, mut results) = (BTreeMap::new(), Vec::new());
    for (script_run, ended) in script_runs.iter().zip(ended) {
        // Nothing has changed since then.
        let result = script_run.runner.result();
        let lines = match (ended, script_run.expected) {
            (Err(err), _) => vec![format!("{err:#}")],
            (Ok(()), _) if record => {
                results.push((script_run.name.clone(), result));
                Vec::new()
            }
            (Ok(()), Some(expected)) => differences(expected, &result),
            (Ok(()), None) => vec!["nothing is recorded".to_owned()],
        };
        found.insert(script_run.name.clone(), lines);
    }
    (found, results)
}

/// Waits until nothing has changed for a while, so that an object that must remain had time to be deleted wrongly.
async fn wait_until_quiet(context: &RunContext) {
    let deadline = context.clock.now() + TIME_LIMIT;
    let mut changes = context.observed.subscribe();
    while context.clock.now() < deadline {
        changes.borrow_and_update();
        if tokio::time::timeout(QUIET, changes.changed()).await.is_err() {
            return;
        }
    }
}

/// The graphs that are not run here, each reported with the reason.
fn left_out(files: &[File], on: On) -> BTreeSet<String> {
    let wanted = std::env::var("GRAPHS").unwrap_or_default();
    let mut names = BTreeSet::new();
    for (name, graph) in files.iter().flat_map(|file| &file.topic.graphs) {
        let missing = graph.real.as_deref().filter(|_| on == On::Embedded);
        let unwanted = (!name.contains(&wanted)).then_some("GRAPHS selects others");
        if let Some(why) = missing.or(unwanted) {
            report(&format!("NOT RUN on the {on:?} server: {name}: {why}"));
            names.insert(name.clone());
        }
    }
    names
}

#[test]
fn graphs_that_were_not_run_are_errors() {
    let results = |all: &[(&str, &[&str])], left_out: &[&str]| RunResults {
        all: all
            .iter()
            .map(|(run, found)| ((*run).to_owned(), found.iter().map(|it| (*it).to_owned()).collect()))
            .collect(),
        left_out: left_out.iter().map(|it| (*it).to_owned()).collect(),
        refused: Vec::new(),
    };
    let none = RunResults::default();
    assert_eq!(none.shown(&["a"]), Err("no run of the graph a among 0 runs".to_owned()));
    assert_eq!(none.findings(), ["there are no graphs"]);
    let good = results(&[("a.background", &[]), ("a.orphan", &[])], &["b"]);
    assert_eq!((good.shown(&["a"]), good.shown(&["a", "b"]), good.findings().len()), (Ok(()), Ok(()), 0));
    assert!(good.shown(&["a", "c"]).is_err(), "an unknown graph is an error");
    let bad = results(&[("a.background", &[]), ("a.orphan", &["one is left"])], &[]);
    assert_eq!(bad.shown(&["a"]), Err("a.orphan:\n    one is left".to_owned()));
    assert_eq!(bad.findings().len(), 1);
}
