//! All workloads, run once for all scenarios.

use std::{collections::BTreeMap, time::Duration};

use e2e::{
    Audit, AuditEvent, Flavour, report,
    script_files::differences,
    workloads::{Kind, RunContext, ScriptRunner, Workload, comparable},
};
use futures::future::join_all;
use serde_json::Value;

use super::{
    files::{self, File},
    setup::Setup,
};
use crate::support::{On, Once};

/// After this time without a change no further change is expected.
const QUIET: Duration = Duration::from_secs(7);
/// The time limit for the recorded result.
const TIME_LIMIT: Duration = Duration::from_secs(45);
/// In this namespace the server refuses pods on purpose.
const OUT_OF_QUOTA: &str = "w-out-of-quota";

/// The results of all workloads.
pub(crate) struct RunResults {
    /// For each workload that was run: the differences from the expected result.
    all: BTreeMap<String, Vec<String>>,
    /// Calls of controllers that the server refused as invalid, unauthorized or forbidden.
    pub(crate) refused: Vec<String>,
}

impl RunResults {
    /// Runs all workloads, once per server. `None` if they cannot be run.
    pub(crate) async fn on(on: On) -> Option<&'static Self> {
        static RESULTS: Once<Option<RunResults>> = Once::new();
        RESULTS.on(on, async || run_all(on).await).await.unwrap().as_ref()
    }

    /// Asserts that these workloads ended as recorded. Workloads that cannot be run were reported.
    pub(crate) async fn assert_as_recorded(on: On, names: &[&str]) {
        let Some(results) = Self::on(on).await else { return };
        for name in names {
            match results.all.get(*name) {
                Some(findings) => assert!(findings.is_empty(), "{name}:\n    {}", findings.join("\n    ")),
                None => report(&format!("NOT RUN on the {on:?} server: {name}")),
            }
        }
    }

    /// All differences.
    pub(crate) fn findings(&self) -> Vec<String> {
        let found = self.all.iter().filter(|(_, it)| !it.is_empty());
        found.map(|(name, it)| format!("{name}:\n    {}", it.join("\n    "))).collect()
    }
}

/// One workload with its expected result.
struct ScriptRun<'a> {
    name: &'a str,
    workload: &'a Workload,
    expected: Option<&'a Value>,
}

impl ScriptRun<'_> {
    fn result(&self, runner: &ScriptRunner<'_>, context: &RunContext) -> Value {
        let kind = if self.workload.object["kind"] == "CronJob" { Kind::CronJob } else { Kind::Job };
        comparable(runner.objects(), kind, self.name, context.zero, &self.workload.leave_out)
    }

    /// Runs it and returns the result, which is the expected one if that is reached in time.
    async fn run(&self, runner: &ScriptRunner<'_>, context: &RunContext, record: bool) -> anyhow::Result<Value> {
        runner.run_script().await?;
        let mut changes = runner.objects().subscribe();
        let deadline = context.clock.now() + TIME_LIMIT;
        loop {
            let result = self.result(runner, context);
            let reached = !record && self.expected == Some(&result);
            let within = if record { context.clock.now() + QUIET } else { deadline };
            if reached || tokio::time::timeout_at(within, changes.changed()).await.is_err() {
                return Ok(result);
            }
        }
    }
}

async fn run_all(on: On) -> anyhow::Result<Option<RunResults>> {
    let Some((server, flavour)) = on.audited_manager("Jobs and CronJobs by script").await? else { return Ok(None) };
    let record = std::env::var("RECORD").is_ok_and(|it| it == "1") && on == On::Real;
    let mut files = files::all()?;
    let setup = Setup::open(server, flavour).await?;
    let (all, results) = run_files(&files, &setup, on, flavour, record).await;
    if record {
        for file in &mut files {
            file.record(&results, flavour)?;
        }
    }
    if all.values().any(|it| !it.is_empty()) {
        setup.show_log();
    }
    // In two of them the server refuses upstream's own status.
    let refused = if flavour == Flavour::Ours { refused(setup.server.audit())? } else { Vec::new() };
    Ok(Some(RunResults { all, refused }))
}

type Results = (BTreeMap<String, Vec<String>>, Vec<(String, Value)>);

async fn run_files(files: &[File], setup: &Setup, on: On, flavour: Flavour, record: bool) -> Results {
    let context = &setup.context;
    let begun = context.clock.now();
    let all = files.iter().flat_map(|file| file.topic.workloads.iter().map(move |it| (file, it)));
    let script_runs = all
        .filter(|(_, (name, workload))| is_runnable(setup, on, name, workload))
        .map(|(file, (name, workload))| ScriptRun { name, workload, expected: file.expected(name, flavour) });
    let script_runs: Vec<ScriptRun<'_>> = script_runs.collect();
    let runners: Vec<ScriptRunner<'_>> =
        script_runs.iter().map(|it| ScriptRunner::new(context, it.name, it.workload)).collect();
    let runs = script_runs.iter().zip(&runners).map(|(script_run, runner)| script_run.run(runner, context, record));
    let result = join_all(runs).await;
    let took = context.clock.now().saturating_duration_since(begun);
    report(&format!("{} workloads in {took:.1?} on the {on:?} server", script_runs.len()));

    let (mut found, mut results) = (BTreeMap::new(), Vec::new());
    for ((script_run, runner), result) in script_runs.iter().zip(&runners).zip(result) {
        // Nothing has changed while the others were run.
        let last = script_run.result(runner, context);
        let lines = match (result, script_run.expected) {
            (Err(err), _) => vec![format!("{err:#}")],
            (Ok(result), _) if record => {
                let changed = differences(&result, &last);
                results.push((script_run.name.to_owned(), last));
                changed
            }
            (Ok(_), Some(expected)) => differences(expected, &last),
            (Ok(_), None) => vec!["nothing is recorded".to_owned()],
        };
        found.insert(script_run.name.to_owned(), lines);
    }
    (found, results)
}

fn is_runnable(setup: &Setup, on: On, name: &str, workload: &Workload) -> bool {
    if !name.contains(&std::env::var("WORKLOADS").unwrap_or_default()) {
        return false;
    }
    let no_collector = (workload.collector && !setup.collector).then_some("no garbage collector");
    let missing = no_collector.or(workload.real.as_deref().filter(|_| on == On::Embedded));
    if let Some(why) = missing {
        report(&format!("NOT RUN on the {on:?} server: {name}: {why}"));
    }
    missing.is_none()
}

/// Calls of controllers that the server refused: upstream's rights must be enough, and the status of Jobs must be
/// valid.
fn refused(mut audit: Audit) -> anyhow::Result<Vec<String>> {
    let is_refusal = |it: &&AuditEvent| matches!(it.code(), 401 | 403 | 422) && it.namespace() != OUT_OF_QUOTA;
    let refused = audit.events()?.iter().filter(|it| it.is_by_controller()).filter(is_refusal);
    Ok(refused.map(AuditEvent::summary).collect())
}
