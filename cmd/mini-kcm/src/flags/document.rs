//! Generates `docs/flags.md` from the table, and checks the committed file.

use std::{fmt::Write, fs, path::Path};

use super::{Effect, Flag, GROUPS, History, Kind};

const HEAD: &str = include_str!("document.md");

fn document() -> String {
    let mut text = HEAD.to_owned();
    for group in GROUPS {
        write!(text, "\n### {}\n\n| flag | default | releases | here |\n|---|---|---|---|\n", group.name).unwrap();
        for flag in group.flags() {
            let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
            writeln!(text, "| `--{}` {} | {default} | {} | {} |", flag.name, kind(flag), releases(flag), effect(flag))
                .unwrap();
        }
    }
    text
}

fn kind(flag: &Flag) -> &'static str {
    if flag.kind == Kind::Bool { "bool" } else { flag.kind.name() }
}

fn releases(flag: &Flag) -> &'static str {
    match flag.history {
        History::Both => "1.36, 1.37",
        History::Deprecated => "1.36, 1.37, deprecated",
        History::Until136 => "1.36",
        History::Since137 => "1.37",
        History::Ours => "only mini-kcm",
    }
}

fn effect(flag: &Flag) -> String {
    match flag.effect {
        Effect::Implemented => format!("accepted: {}", flag.help),
        Effect::Ignored(why) => format!("accepted and ignored: {why}"),
        Effect::Refused(why) => format!("refused unless it is the default: {why}"),
    }
}

#[test]
fn document_matches_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("docs/flags.md");
    let document = document();
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        fs::write(&path, &document).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let first = document.lines().zip(there.lines()).find(|(want, is)| want != is);
    assert!(
        there == document,
        "docs/flags.md differs from the table (first difference: {first:?}); write it anew with\n    \
         WRITE_DOCUMENTS=1 cargo test -p mini-kcm --lib document_matches_the_table"
    );
}
