//! The files of cases and their recordings.

use std::path::PathBuf;

use e2e::conformance::{Case, Recordings, Time, differences, parse};

use super::embedded;

/// The tests of one file of cases. `fn <name>();` defines the test that runs the case of this name on the embedded
/// server and compares the responses with the recorded ones.
macro_rules! cases {
    ($topic:literal: $(fn $name:ident();)*) => {
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                crate::conformance::topics::check($topic, stringify!($name));
            }
        )*
    };
}
pub(crate) use cases;

/// The folder of cases and recordings.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance")
}

/// The cases of a topic.
pub(crate) fn read(topic: &str) -> Vec<Case> {
    let file = format!("{topic}.txt");
    let text = std::fs::read_to_string(folder().join(&file)).unwrap_or_else(|err| panic!("{file}: {err}"));
    parse(&file, &text).unwrap_or_else(|err| panic!("{err:#}"))
}

pub(crate) fn recordings(topic: &str) -> Recordings {
    Recordings::read(&folder().join(format!("{topic}.recorded.txt"))).unwrap_or_else(|err| panic!("{err:#}"))
}

/// Runs a case on the embedded server.
pub(crate) fn check(topic: &str, name: &str) {
    let cases = read(topic);
    let Some(case) = cases.iter().find(|it| it.name == name) else { panic!("{topic}.txt has no case {name}") };
    let answered = embedded::answers(case).unwrap_or_else(|err| panic!("{topic}.txt: {name}: {err:#}"));
    let recordings = recordings(topic);
    let Some(recorded) = recordings.0.get(name) else {
        let answers = answered.iter().map(|it| format!("> {}\n{}\n", it.title, it.lines.join("\n")));
        panic!("{name} is not recorded; the embedded server answers\n{}", answers.collect::<String>());
    };
    assert_eq!(
        recorded.fingerprint, case.fingerprint,
        "{name} has changed since it was recorded: RECORD=1 CASES={name} cargo test -p e2e --test scenarios conformance"
    );
    let found = differences(&recorded.entries, &answered, Time::Virtual);
    assert!(found.is_empty(), "{topic}.txt:{}: {name} differs from the real server:\n{}", case.line, found.join("\n"));
}
