//! All graphs, played once for all scenarios.

use std::{collections::BTreeMap, time::Duration};

use clock::Clock;
use e2e::{
    AuditEvent, Flavour,
    graphs::{Board, Graph, Player, Stage},
    say,
    workloads::differences,
};
use futures::{StreamExt, stream};
use serde_json::Value;
use tasks::Scope;
use tokio::sync::{Mutex, OnceCell};

use crate::{
    scene::{self, Scene},
    sets::{self, Set},
    support::On,
};

/// Nothing more comes when nothing has come for so long.
const QUIET: Duration = Duration::from_secs(6);
/// Before it is looked whether all is quiet, and at the latest.
const SOON: Duration = Duration::from_secs(45);
/// So many at a time: each has a namespace or two.
const AT_ONCE: usize = 24;

/// What came of it.
pub(crate) struct Played {
    /// Of each play: where it differs from what is expected.
    all: BTreeMap<String, Vec<String>>,
    /// Calls of the collector that the server refused for who it was.
    pub(crate) refused: Vec<String>,
}

impl Played {
    /// Plays all, unless that was done. `None` where they cannot be played.
    pub(crate) async fn on(on: On) -> Option<&'static Self> {
        static REAL: OnceCell<Option<Played>> = OnceCell::const_new();
        static EMBEDDED: OnceCell<Option<Played>> = OnceCell::const_new();
        // One after the other: both are busy.
        static TURN: Mutex<()> = Mutex::const_new(());
        let played = match on {
            On::Real => &REAL,
            On::Embedded => &EMBEDDED,
        };
        let play = async || {
            let _turn = TURN.lock().await;
            play_all(on).await
        };
        played.get_or_try_init(play).await.unwrap().as_ref()
    }

    /// All plays of these graphs ended as recorded; those that cannot be played were told of.
    pub(crate) async fn shows(on: On, graphs: &[&str]) {
        let Some(played) = Self::on(on).await else { return };
        for graph in graphs {
            let of_graph = |play: &str| play.split_once('.').is_some_and(|(it, _)| it == *graph);
            let mut plays = played.all.iter().filter(|(play, _)| of_graph(play)).peekable();
            if plays.peek().is_none() {
                say(&format!("NOT PLAYED on the {on:?} server: {graph}"));
            }
            for (play, findings) in plays {
                assert!(findings.is_empty(), "{play}:\n    {}", findings.join("\n    "));
            }
        }
    }

    /// Everything that was found.
    pub(crate) fn findings(&self) -> Vec<String> {
        let found = self.all.iter().filter(|(_, it)| !it.is_empty());
        found.map(|(name, it)| format!("{name}:\n    {}", it.join("\n    "))).collect()
    }
}

/// One play and what is expected of it.
struct Part<'a> {
    name: String,
    player: Player<'a>,
    expected: Option<&'a Value>,
}

impl Part<'_> {
    /// Plays it; returns when what is expected has come, or does not come.
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
    let Some((server, flavour)) = scene::server(on, "owner graphs").await? else { return Ok(None) };
    let record = std::env::var("RECORD").is_ok_and(|it| it == "1") && on == On::Real;
    scene::define_graphs(&server.admin().await?).await?;
    let scene = Scene::with(server, flavour).await?;
    let scope = Scope::new();
    let board = Board::start(&scene.admin, &scope.spawner());
    let stage = Stage { admin: scene.admin.clone(), board, clock: Clock::system() };
    let mut sets = sets::all()?;
    let (all, results) = play_sets(&sets, &stage, on, flavour, record).await;
    if record {
        for set in &mut sets {
            for (play, left) in &results {
                set.keep(play.clone(), left.clone(), flavour);
            }
            set.write()?;
        }
    }
    if all.values().any(|it| !it.is_empty()) {
        scene.manager.show_log();
    }
    let refused = scene.server.audit().events()?.iter().filter(|it| is_refusal(it)).map(told).collect();
    Ok(Some(Played { all, refused }))
}

type Results = (BTreeMap<String, Vec<String>>, Vec<(String, Value)>);

async fn play_sets(sets: &[Set], stage: &Stage, on: On, flavour: Flavour, record: bool) -> Results {
    let begun = stage.clock.now();
    let graphs = sets.iter().flat_map(|set| set.topic.graphs.iter().map(move |(name, graph)| (set, name, graph)));
    let graphs = graphs.filter(|(_, name, graph)| plays(on, name, graph));
    let mut parts = Vec::new();
    for (set, name, graph) in graphs {
        for policy in &graph.policies {
            let play = sets::play(name, *policy);
            let expected = set.expected(&play, graph, flavour).filter(|_| !record);
            parts.push(Part { name: play, player: Player::new(stage, name, graph, *policy), expected });
        }
    }
    let acts = parts.iter().map(|it| it.play(stage));
    let ended: Vec<anyhow::Result<()>> = stream::iter(acts).buffered(AT_ONCE).collect().await;
    let took = stage.clock.now().saturating_duration_since(begun);
    say(&format!("{} plays of owner graphs in {took:.1?} on the {on:?} server", parts.len()));
    quiet(stage).await;

    let (mut found, mut results) = (BTreeMap::new(), Vec::new());
    for (part, ended) in parts.iter().zip(ended) {
        // Nothing more has come since.
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

/// Waits until nothing has happened for a while: what must stay has had its time to go.
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

fn plays(on: On, name: &str, graph: &Graph) -> bool {
    if !name.contains(&std::env::var("GRAPHS").unwrap_or_default()) {
        return false;
    }
    let missing = graph.real.as_deref().filter(|_| on == On::Embedded);
    if let Some(why) = missing {
        say(&format!("NOT PLAYED on the {on:?} server: {name}: {why}"));
    }
    missing.is_none()
}

/// A collector that may not do what it should.
fn is_refusal(event: &AuditEvent) -> bool {
    event.user().starts_with("system:serviceaccount:kube-system:") && matches!(event.code(), 401 | 403)
}

fn told(event: &AuditEvent) -> String {
    format!("{}: {} {} {}", event.user(), event.verb, event.uri, event.code())
}
