//! The embedded API server responds like a real one.
//!
//! There is one test for each case of `e2e/conformance/<topic>.txt`, with the same name: it runs on the embedded
//! server, in process, and is compared with `<topic>.recorded.txt`. `the_real_server_answers_as_recorded` runs all of
//! them on a real server, if there is one. `e2e/conformance/README.md` explains how cases are written and recorded.

mod embedded;
mod published;
mod real;
mod topics;

/// The files of cases, each with a module that lists its tests.
macro_rules! topics {
    ($($topic:ident)*) => {
        $(mod $topic;)*
        /// The topics, and the names of their tests.
        pub(crate) const TOPICS: &[(&str, &[&str])] = &[$((stringify!($topic), $topic::NAMES)),*];
    };
}

topics! {
    basics
    reading
    watching
    compaction
    encodings
    writing
    kinds
    admission
    jobs
    events
    patching
    deleting
    subresources
    namespaces
    discovery
    tables
    custom
}

#[test]
fn every_case_has_its_test_and_its_recording() {
    let mut wrong = Vec::new();
    let mut all = std::collections::BTreeSet::new();
    for (topic, tests) in TOPICS {
        let cases = topics::read(topic);
        let recordings = topics::recordings(topic);
        for case in &cases {
            let name = &case.name;
            if !tests.contains(&name.as_str()) {
                wrong.push(format!("tests/conformance/{topic}.rs lacks\n    fn {name}();"));
            }
            if recordings.0.get(name).is_none_or(|it| it.fingerprint != case.fingerprint) {
                wrong.push(format!("{topic}.recorded.txt lacks {name}, or has another version of it"));
            }
            if !all.insert(name.clone()) {
                wrong.push(format!("{topic}.txt: {name} occurs twice"));
            }
        }
        let known = |name: &str| cases.iter().any(|it| it.name == name);
        wrong.extend(tests.iter().filter(|it| !known(it)).map(|it| format!("{topic}.txt has no case {it}")));
        let stale = recordings.0.keys().filter(|it| !known(it));
        wrong.extend(stale.map(|it| format!("{topic}.recorded.txt has {it}, which is no case")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_of_cases_is_a_topic() {
    for entry in std::fs::read_dir(topics::folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(topic) = name.strip_suffix(".txt") else { continue };
        let topic = topic.trim_end_matches(".recorded");
        assert!(TOPICS.iter().any(|(it, _)| *it == topic), "{name} is no topic of tests/conformance/mod.rs");
    }
}

/// The behaviours in section 20 of the specification of the API server.
const ACCEPTANCE: std::ops::RangeInclusive<u32> = 1..=122;

/// Most behaviours are cases; those of kubectl are separate tests.
#[test]
fn every_behaviour_of_the_specification_has_a_case() {
    let cases: Vec<String> = TOPICS.iter().flat_map(|(topic, _)| topics::read(topic)).map(|case| case.name).collect();
    assert!(cases.len() >= 300, "{} cases", cases.len());
    let kubectl =
        include_str!("../process/kubectl.rs").lines().filter_map(|line| line.split_once("fn ")).map(|(_, name)| name);
    let names = cases.iter().map(String::as_str).chain(kubectl);
    let numbers: std::collections::BTreeSet<u32> = names.flat_map(acceptance_numbers).collect();
    let wanted: std::collections::BTreeSet<u32> = ACCEPTANCE.collect();
    let missing: Vec<&u32> = wanted.difference(&numbers).collect();
    let unknown: Vec<&u32> = numbers.difference(&wanted).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "without a case: {missing:?}; not in the specification: {unknown:?}"
    );
}

/// `acceptance_api_025_026_words` has two.
fn acceptance_numbers(name: &str) -> impl Iterator<Item = u32> {
    let numbers = name.strip_prefix("acceptance_api_").unwrap_or_default();
    numbers.split('_').map_while(|it| it.parse().ok())
}
