//! All workloads, run once for all scenarios.

use std::{collections::BTreeMap, time::Duration};

use e2e::{
    Audit, AuditEvent, Flavour,
    plays::differences,
    say,
    workloads::{Kind, Player, Stage, Workload, comparable},
};
use futures::future::join_all;
use serde_json::Value;

use crate::{
    sets::{self, Set},
    setup::Setup,
    support::{On, Once},
};

/// After this time without a change no further change is expected.
const QUIET: Duration = Duration::from_secs(7);
/// The time limit for the recorded result.
const SOON: Duration = Duration::from_secs(45);
/// In this namespace the server refuses pods on purpose.
const OUT_OF_QUOTA: &str = "w-out-of-quota";

/// The results of all workloads.
pub(crate) struct Played {
    /// For each workload that was run: the differences from the expected result.
    all: BTreeMap<String, Vec<String>>,
    /// Calls of controllers that the server refused as invalid, unauthorized or forbidden.
    pub(crate) refused: Vec<String>,
}

impl Played {
    /// Runs all workloads, once per server. `None` if they cannot be run.
    pub(crate) async fn on(on: On) -> Option<&'static Self> {
        static PLAYED: Once<Option<Played>> = Once::new();
        PLAYED.on(on, async || play_all(on).await).await.unwrap().as_ref()
    }

    /// Asserts that these workloads ended as recorded. Workloads that cannot be run were reported.
    pub(crate) async fn shows(on: On, names: &[&str]) {
        let Some(played) = Self::on(on).await else { return };
        for name in names {
            match played.all.get(*name) {
                Some(findings) => assert!(findings.is_empty(), "{name}:\n    {}", findings.join("\n    ")),
                None => say(&format!("NOT PLAYED on the {on:?} server: {name}")),
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
struct Part<'a> {
    name: &'a str,
    workload: &'a Workload,
    expected: Option<&'a Value>,
}

impl Part<'_> {
    fn left(&self, player: &Player<'_>, stage: &Stage) -> Value {
        let kind = if self.workload.object["kind"] == "CronJob" { Kind::CronJob } else { Kind::Job };
        comparable(player.folder(), kind, self.name, stage.zero, &self.workload.leave_out)
    }

    /// Runs it and returns the result, which is the expected one if that is reached in time.
    async fn play(&self, player: &Player<'_>, stage: &Stage, record: bool) -> anyhow::Result<Value> {
        player.play().await?;
        let mut news = player.folder().listen();
        let deadline = stage.clock.now() + SOON;
        loop {
            let left = self.left(player, stage);
            let reached = !record && self.expected == Some(&left);
            let within = if record { stage.clock.now() + QUIET } else { deadline };
            if reached || tokio::time::timeout_at(within, news.changed()).await.is_err() {
                return Ok(left);
            }
        }
    }
}

async fn play_all(on: On) -> anyhow::Result<Option<Played>> {
    let Some((server, flavour)) = on.audited_manager("Jobs and CronJobs by script").await? else { return Ok(None) };
    let record = std::env::var("RECORD").is_ok_and(|it| it == "1") && on == On::Real;
    let mut sets = sets::all()?;
    let setup = Setup::open(server, flavour).await?;
    let (all, results) = play_sets(&sets, &setup, on, flavour, record).await;
    if record {
        for set in &mut sets {
            set.record(&results, flavour)?;
        }
    }
    if all.values().any(|it| !it.is_empty()) {
        setup.show_log();
    }
    // In two of them the server refuses upstream's own status.
    let refused = if flavour == Flavour::Ours { refused(setup.server.audit())? } else { Vec::new() };
    Ok(Some(Played { all, refused }))
}

type Results = (BTreeMap<String, Vec<String>>, Vec<(String, Value)>);

async fn play_sets(sets: &[Set], setup: &Setup, on: On, flavour: Flavour, record: bool) -> Results {
    let stage = &setup.stage;
    let begun = stage.clock.now();
    let all = sets.iter().flat_map(|set| set.topic.workloads.iter().map(move |it| (set, it)));
    let parts = all
        .filter(|(_, (name, workload))| plays(setup, on, name, workload))
        .map(|(set, (name, workload))| Part { name, workload, expected: set.expected(name, flavour) });
    let parts: Vec<Part<'_>> = parts.collect();
    let players: Vec<Player<'_>> = parts.iter().map(|it| Player::new(stage, it.name, it.workload)).collect();
    let acts = parts.iter().zip(&players).map(|(part, player)| part.play(player, stage, record));
    let left = join_all(acts).await;
    let took = stage.clock.now().saturating_duration_since(begun);
    say(&format!("{} workloads in {took:.1?} on the {on:?} server", parts.len()));

    let (mut found, mut results) = (BTreeMap::new(), Vec::new());
    for ((part, player), left) in parts.iter().zip(&players).zip(left) {
        // Nothing has changed while the others were run.
        let last = part.left(player, stage);
        let told = match (left, part.expected) {
            (Err(err), _) => vec![format!("{err:#}")],
            (Ok(left), _) if record => {
                let changed = differences(&left, &last);
                results.push((part.name.to_owned(), last));
                changed
            }
            (Ok(_), Some(expected)) => differences(expected, &last),
            (Ok(_), None) => vec!["nothing is recorded".to_owned()],
        };
        found.insert(part.name.to_owned(), told);
    }
    (found, results)
}

fn plays(setup: &Setup, on: On, name: &str, workload: &Workload) -> bool {
    if !name.contains(&std::env::var("WORKLOADS").unwrap_or_default()) {
        return false;
    }
    let no_collector = (workload.collector && !setup.collector).then_some("no garbage collector");
    let missing = no_collector.or(workload.real.as_deref().filter(|_| on == On::Embedded));
    if let Some(why) = missing {
        say(&format!("NOT PLAYED on the {on:?} server: {name}: {why}"));
    }
    missing.is_none()
}

/// Calls of controllers that the server refused: upstream's rights must be enough, and the status of Jobs must be
/// valid.
fn refused(mut audit: Audit) -> anyhow::Result<Vec<String>> {
    let is_refusal = |it: &&AuditEvent| matches!(it.code(), 401 | 403 | 422) && it.namespace() != OUT_OF_QUOTA;
    let refused = audit.events()?.iter().filter(|it| it.is_controllers()).filter(is_refusal);
    Ok(refused.map(AuditEvent::summary).collect())
}
