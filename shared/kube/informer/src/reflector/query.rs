//! The query strings of list and watch requests.

use std::fmt::Write as _;

use api::{Version, uri};

/// Objects per page of a list.
const PAGE: u32 = 500;

/// True for the versions that mean "any state": from these the server replays its objects instead of resuming.
pub(super) fn is_any_version(version: &Version) -> bool {
    version.is_empty() || *version == Version::new("0")
}

pub(super) fn set_query(version: &Version, seconds: u64) -> String {
    let mut query = format!(
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={seconds}"
    );
    add_version(&mut query, version);
    query
}

pub(super) fn watch_query(version: &Version, seconds: u64) -> String {
    let mut query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}");
    add_version(&mut query, version);
    query
}

pub(super) fn list_query(version: &Version, paged: bool, next: &str) -> String {
    let mut query = String::new();
    if paged {
        // Writing into a string cannot fail.
        let _ = write!(query, "limit={PAGE}");
    }
    if next.is_empty() {
        add_version(&mut query, version);
    } else {
        // The continue token contains the version; sending both is an error.
        let _ = write!(query, "&continue={}", uri::value(next));
    }
    query
}

fn add_version(query: &mut String, version: &Version) {
    if !version.is_empty() {
        let separator = if query.is_empty() { "" } else { "&" };
        let _ = write!(query, "{separator}resourceVersion={}", uri::value(&version.to_string()));
    }
}
