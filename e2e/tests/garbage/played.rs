//! All graphs, run once for all scenarios.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Clock;
use e2e::{
    AuditEvent, Flavour,
    graphs::{Board, Player, Stage},
    plays::differences,
    say,
};
use futures::{StreamExt, stream};
use serde_json::Value;
use tasks::Scope;

use crate::{
    sets::{self, Set},
    setup::{self, Setup},
    support::{On, Once},
};

/// After this time without a change no further change is expected.
const QUIET: Duration = Duration::from_secs(6);
/// The time limit for the expected results.
const SOON: Duration = Duration::from_secs(45);
/// How many plays run at once; each has one or two namespaces.
const AT_ONCE: usize = 24;

/// The results of all plays.
#[derive(Default)]
pub(crate) struct Played {
    /// For each play: the differences from the expected result.
    all: BTreeMap<String, Vec<String>>,
    /// Graphs that were not run, for a reason that was printed.
    left_out: BTreeSet<String>,
    /// Calls of the collector that the server refused as unauthorized or forbidden.
    pub(crate) refused: Vec<String>,
}

impl Played {
    /// Runs all plays, once per server. `None` if they cannot be run.
    pub(crate) async fn on(on: On) -> Option<&'static Self> {
        static PLAYED: Once<Option<Played>> = Once::new();
        PLAYED.on(on, async || play_all(on).await).await.unwrap().as_ref()
    }

    /// Asserts that all plays of these graphs ended as recorded. Plays that cannot be run were reported.
    pub(crate) async fn shows(on: On, graphs: &[&str]) {
        let Some(played) = Self::on(on).await else { return };
        if let Err(why) = played.shown(graphs) {
            panic!("{why}");
        }
    }

    /// An error if a play of these graphs differs or does not exist.
    fn shown(&self, graphs: &[&str]) -> Result<(), String> {
        for graph in graphs {
            let of_graph = |play: &str| play.split_once('.').is_some_and(|(it, _)| it == *graph);
            let plays: Vec<_> = self.all.iter().filter(|(play, _)| of_graph(play)).collect();
            if plays.is_empty() && !self.left_out.contains(*graph) {
                return Err(format!("no play of a graph {graph} among {} plays", self.all.len()));
            }
            if let Some((play, findings)) = plays.into_iter().find(|(_, findings)| !findings.is_empty()) {
                return Err(format!("{play}:\n    {}", findings.join("\n    ")));
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

/// One play with its expected result.
struct Part<'a> {
    name: String,
    player: Player<'a>,
    expected: Option<&'a Value>,
}

impl Part<'_> {
    /// Runs it; returns when the expected result is reached, or after the time limit.
    async fn play(&self, stage: &Stage) -> anyhow::Result<()> {
        self.player.play().await?;
        let Some(expected) = self.expected else { return Ok(()) };
        let mut news = stage.board.listen();
        let deadline = stage.clock.now() + SOON;
        loop {
            news.borrow_and_update();
            let reached = self.player.left() == *expected;
            if reached || tokio::time::timeout_at(deadline, news.changed()).await.is_err() {
                return Ok(());
            }
        }
    }
}

async fn play_all(on: On) -> anyhow::Result<Option<Played>> {
    let Some((server, flavour)) = on.audited_manager("owner graphs").await? else { return Ok(None) };
    let record = std::env::var("RECORD").is_ok_and(|it| it == "1") && on == On::Real;
    setup::define_graphs(&server.admin().await?).await?;
    let setup = Setup::with(server, flavour).await?;
    let scope = Scope::new();
    let board = Board::start(&setup.admin, &scope.spawner());
    let stage = Stage { admin: setup.admin.clone(), board, clock: Clock::system() };
    let mut sets = sets::all()?;
    let left_out = left_out(&sets, on);
    let (all, results) = play_sets(&sets, &left_out, &stage, flavour, record).await;
    if record {
        for set in &mut sets {
            set.record(&results, flavour)?;
        }
    }
    if all.values().any(|it| !it.is_empty()) {
        setup.manager.show_log();
    }
    let mut audit = setup.server.audit();
    let refused = audit.events()?.iter().filter(|it| it.is_controllers() && matches!(it.code(), 401 | 403));
    let refused = refused.map(AuditEvent::summary).collect();
    Ok(Some(Played { all, left_out, refused }))
}

type Results = (BTreeMap<String, Vec<String>>, Vec<(String, Value)>);

async fn play_sets(
    sets: &[Set],
    left_out: &BTreeSet<String>,
    stage: &Stage,
    flavour: Flavour,
    record: bool,
) -> Results {
    let begun = stage.clock.now();
    let graphs = sets.iter().flat_map(|set| set.topic.graphs.iter().map(move |(name, graph)| (set, name, graph)));
    let graphs = graphs.filter(|(_, name, _)| !left_out.contains(*name));
    let mut parts = Vec::new();
    for (set, name, graph) in graphs {
        for (play, policy) in graph.plays(name) {
            let expected = set.expected(&play, flavour).filter(|_| !record);
            parts.push(Part { name: play, player: Player::new(stage, name, graph, policy), expected });
        }
    }
    let acts = parts.iter().map(|it| it.play(stage));
    let ended: Vec<anyhow::Result<()>> = stream::iter(acts).buffered(AT_ONCE).collect().await;
    let took = stage.clock.now().saturating_duration_since(begun);
    say(&format!("{} plays of owner graphs in {took:.1?}", parts.len()));
    quiet(stage).await;

    let (mut found, mut results) = (BTreeMap::new(), Vec::new());
    for (part, ended) in parts.iter().zip(ended) {
        // Nothing has changed since then.
        let left = part.player.left();
        let told = match (ended, part.expected) {
            (Err(err), _) => vec![format!("{err:#}")],
            (Ok(()), _) if record => {
                results.push((part.name.clone(), left));
                Vec::new()
            }
            (Ok(()), Some(expected)) => differences(expected, &left),
            (Ok(()), None) => vec!["nothing is recorded".to_owned()],
        };
        found.insert(part.name.clone(), told);
    }
    (found, results)
}

/// Waits until nothing has changed for a while, so that an object that must remain had time to be deleted wrongly.
async fn quiet(stage: &Stage) {
    let deadline = stage.clock.now() + SOON;
    let mut news = stage.board.listen();
    while stage.clock.now() < deadline {
        news.borrow_and_update();
        if tokio::time::timeout(QUIET, news.changed()).await.is_err() {
            return;
        }
    }
}

/// The graphs that are not run here, each reported with the reason.
fn left_out(sets: &[Set], on: On) -> BTreeSet<String> {
    let wanted = std::env::var("GRAPHS").unwrap_or_default();
    let mut names = BTreeSet::new();
    for (name, graph) in sets.iter().flat_map(|set| &set.topic.graphs) {
        let missing = graph.real.as_deref().filter(|_| on == On::Embedded);
        let unwanted = (!name.contains(&wanted)).then_some("GRAPHS asks for others");
        if let Some(why) = missing.or(unwanted) {
            say(&format!("NOT PLAYED on the {on:?} server: {name}: {why}"));
            names.insert(name.clone());
        }
    }
    names
}

#[test]
fn what_was_not_played_shows_nothing() {
    let played = |all: &[(&str, &[&str])], left_out: &[&str]| Played {
        all: all
            .iter()
            .map(|(play, found)| ((*play).to_owned(), found.iter().map(|it| (*it).to_owned()).collect()))
            .collect(),
        left_out: left_out.iter().map(|it| (*it).to_owned()).collect(),
        refused: Vec::new(),
    };
    let none = Played::default();
    assert_eq!(none.shown(&["a"]), Err("no play of a graph a among 0 plays".to_owned()));
    assert_eq!(none.findings(), ["there are no graphs"]);
    let good = played(&[("a.background", &[]), ("a.orphan", &[])], &["b"]);
    assert_eq!((good.shown(&["a"]), good.shown(&["a", "b"]), good.findings().len()), (Ok(()), Ok(()), 0));
    assert!(good.shown(&["a", "c"]).is_err(), "an unknown graph is an error");
    let bad = played(&[("a.background", &[]), ("a.orphan", &["one is left"])], &[]);
    assert_eq!(bad.shown(&["a"]), Err("a.orphan:\n    one is left".to_owned()));
    assert_eq!(bad.findings().len(), 1);
}
