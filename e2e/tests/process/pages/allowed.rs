//! The list of differences in `docs/differences.md`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::collections::BTreeSet;

/// One difference of a page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    /// The page, and the name of what differs.
    pub(crate) item: String,
    pub(crate) kind: Kind,
}

/// The kind of difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    OnlyOurs,
    OnlyUpstream,
    OtherType,
    OtherLabels,
    OtherBuckets,
    OtherStability,
    OtherValue,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Self::OnlyOurs => "only ours",
            Self::OnlyUpstream => "only upstream",
            Self::OtherType => "other type",
            Self::OtherLabels => "other labels",
            Self::OtherBuckets => "other buckets",
            Self::OtherStability => "other stability",
            Self::OtherValue => "other value",
        }
    }
}

/// A line of the list; `*` at the end of the item matches anything.
struct Line {
    item: String,
    kind: String,
}

impl Line {
    /// A row of a table whose first cell is a page in backquotes.
    fn parse(text: &str) -> Option<Self> {
        let mut cells = text.strip_prefix("| `/")?.split('|').map(str::trim);
        let item = format!("/{}", cells.next()?.strip_suffix('`')?);
        Some(Self { item, kind: cells.next()?.to_owned() }).filter(|it| it.item.contains(' '))
    }

    fn allows(&self, difference: &Difference) -> bool {
        let named = match self.item.strip_suffix('*') {
            Some(beginning) => difference.item.starts_with(beginning),
            None => difference.item == self.item,
        };
        named && self.kind == difference.kind.words()
    }
}

/// Asserts that every difference is listed, and that every listed difference exists.
pub(crate) fn check(found: &BTreeSet<Difference>) {
    let list = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md")).unwrap();
    let lines: Vec<Line> = list.lines().filter_map(Line::parse).collect();
    let unlisted = found.iter().filter(|it| !lines.iter().any(|line| line.allows(it)));
    let unlisted: Vec<String> = unlisted.map(|it| format!("| `{}` | {} |", it.item, it.kind.words())).collect();
    assert!(unlisted.is_empty(), "not in docs/differences.md:\n{}", unlisted.join("\n"));
    let stale = lines.iter().filter(|line| !found.iter().any(|it| line.allows(it)));
    let stale: Vec<String> = stale.map(|it| format!("| `{}` | {} |", it.item, it.kind)).collect();
    assert!(stale.is_empty(), "in docs/differences.md, but no difference any more:\n{}", stale.join("\n"));
}
