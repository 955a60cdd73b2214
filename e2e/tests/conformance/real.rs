//! All cases on a real API server: compared with the recordings, or recorded.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clock::Clock;
use e2e::{
    ControlPlane, Options, assets_or_skip,
    conformance::{Case, Entry, RealServer, Recorded, Time, differences, run},
    report,
};
use futures::{StreamExt, stream};

use super::{TOPICS, embedded, topics};

/// How many cases run at once.
const AT_ONCE: usize = 6;

const SCENARIO: &str = "conformance: the recorded answers are those of a real API server";

#[test]
fn the_real_server_answers_as_recorded() {
    let running = std::env::var_os("CONFORMANCE_SERVER").map(PathBuf::from);
    if running.is_none() && assets_or_skip(SCENARIO).is_none() {
        return;
    }
    let wanted = wanted();
    let record = std::env::var("RECORD").is_ok_and(|it| it == "1");
    let answers = answers(&wanted, running.as_deref(), record);
    let mut wrong = Vec::new();
    for (topic, _) in TOPICS {
        let here: Vec<_> = answers.iter().filter(|(it, ..)| it == topic).collect();
        let mut recordings = topics::recordings(topic);
        for (_, case, answer) in &here {
            match (answer, recordings.0.get(&case.name)) {
                (Err(err), _) => wrong.push(format!("{topic}.txt:{}: {}: {err:#}", case.line, case.name)),
                (Ok(entries), _) if record => {
                    let recorded = Recorded { fingerprint: case.fingerprint, entries: entries.clone() };
                    recordings.0.insert(case.name.clone(), recorded);
                }
                (Ok(_), None) => wrong.push(format!("{topic}.txt:{}: {}: not recorded", case.line, case.name)),
                (Ok(entries), Some(recorded)) => {
                    let found = differences(&recorded.entries, entries, Time::Machine);
                    if !found.is_empty() {
                        wrong.push(format!("{topic}.txt:{}: {}:\n{}", case.line, case.name, found.join("\n")));
                    }
                }
            }
        }
        if record && !here.is_empty() {
            let file = topics::folder().join(format!("{topic}.recorded.txt"));
            recordings.write(&file, &topics::read(topic)).unwrap();
        }
    }
    let done = if record { "recorded from" } else { "compared with" };
    report(&format!("conformance: {} cases {done} a real API server", answers.len()));
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), answers.len(), wrong.join("\n\n"));
}

/// Topic and case, selected by `CASES`: all, or those of a topic, or those whose name contains it.
fn wanted() -> Vec<(&'static str, Case)> {
    let filter = std::env::var("CASES").unwrap_or_default();
    let all = TOPICS.iter().flat_map(|(topic, _)| topics::read(topic).into_iter().map(move |case| (*topic, case)));
    all.filter(|(topic, case)| *topic == filter || case.name.contains(&filter)).collect()
}

type Answers = Vec<(&'static str, Case, anyhow::Result<Vec<Entry>>)>;

fn answers(wanted: &[(&'static str, Case)], running: Option<&Path>, record: bool) -> Answers {
    let mut answers = Answers::new();
    let (embedded, real): (Vec<_>, Vec<_>) = wanted.iter().cloned().partition(|(_, it)| it.embedded_only.is_some());
    if record {
        // For cases where we differ on purpose, the response of the embedded server is recorded, and must be reviewed.
        answers.extend(embedded.into_iter().map(|(topic, case)| {
            let answer = embedded::answers(&case);
            (topic, case, answer)
        }));
    }
    let (alone, together): (Vec<_>, Vec<_>) = real.into_iter().partition(|(_, it)| it.compacts());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        if !together.is_empty() {
            let server = match running {
                Some(kubeconfig) => RealServer::running(kubeconfig).await,
                None => own().await,
            };
            answers.extend(run_all(&server.unwrap(), together, AT_ONCE).await);
        }
        // These cases would disturb others, so they run alone.
        if !alone.is_empty() && assets_or_skip(SCENARIO).is_some() {
            answers.extend(run_all(&own().await.unwrap(), alone, 1).await);
        }
    });
    answers
}

async fn own() -> anyhow::Result<RealServer> {
    let Some(assets) = assets_or_skip(SCENARIO) else { anyhow::bail!("no binaries") };
    RealServer::of(ControlPlane::start(assets, Options::default()).await?).await
}

async fn run_all(server: &RealServer, cases: Vec<(&'static str, Case)>, at_once: usize) -> Answers {
    let now = Clock::system().wall().as_nanosecond();
    let mut rng = fastrand::Rng::with_seed(u64::try_from(now).unwrap_or_default());
    let mut taken = BTreeSet::new();
    let mut word = move || loop {
        let word: String = std::iter::once('x').chain((0..7).map(|_| rng.lowercase())).collect();
        if taken.insert(word.clone()) {
            return word;
        }
    };
    let cases: Vec<_> = cases.into_iter().map(|(topic, case)| (topic, case, word())).collect();
    let running = cases.into_iter().map(async |(topic, case, word)| {
        let answer = run(&case, server, &word).await;
        (topic, case, answer)
    });
    stream::iter(running).buffered(at_once).collect().await
}
