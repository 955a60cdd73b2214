//! Checks that versions are in the right order, which the normalised responses do not show.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::Value;

/// The versions of one case. Other clients write to the same server, so only rules that hold in spite of that are
/// checked.
#[derive(Debug, Default)]
pub(super) struct VersionOrder(BTreeSet<u64>);

impl VersionOrder {
    pub(super) fn record(&mut self, version: Option<u64>) {
        self.0.extend(version);
    }

    /// Checks a response: a list is not older than its items, and a written object is newer than all earlier versions.
    pub(super) fn check_response(&mut self, method: &str, body: &Value) -> anyhow::Result<()> {
        let own = version(body);
        let items: Vec<u64> = body["items"].as_array().into_iter().flatten().filter_map(version).collect();
        if let (Some(own), Some(newest)) = (own, items.iter().max()) {
            ensure!(own >= *newest, "a list of version {own} has an object of version {newest}");
        }
        if let (false, Some(own), Some(last)) = (method == "GET", own, self.0.last()) {
            // A write that changes nothing returns the existing version.
            ensure!(self.0.contains(&own) || own > *last, "a write gave version {own} after {last}");
        }
        self.0.extend(own.into_iter().chain(items));
        Ok(())
    }
}

/// The versions of one watch: after its initial objects they ascend.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WatchVersions {
    initial: bool,
    highest: u64,
}

impl WatchVersions {
    /// `path` is that of the request.
    pub(super) fn of(path: &str) -> Self {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let from = query.split('&').find_map(|it| it.strip_prefix("resourceVersion=")).unwrap_or_default();
        let from: u64 = from.parse().unwrap_or_default();
        let initial = from == 0 || query.contains("sendInitialEvents=true");
        Self { initial, highest: if initial { 0 } else { from } }
    }

    /// Checks an event and returns its version.
    pub(super) fn check_event(&mut self, event: &Value) -> anyhow::Result<Option<u64>> {
        let row = &event["object"]["rows"][0]["object"];
        let Some(version) = version(row).or_else(|| version(&event["object"])) else { return Ok(None) };
        let Self { initial, highest } = *self;
        match event["type"].as_str() {
            Some("BOOKMARK") => ensure!(version >= highest, "a bookmark of version {version} after {highest}"),
            Some("ADDED") if initial => {}
            _ => ensure!(version > highest, "an event of version {version} after {highest}"),
        }
        // The initial objects are in another order, and they come first.
        self.initial = initial && event["type"] == "ADDED";
        self.highest = highest.max(version);
        Ok(Some(version))
    }
}

fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok().filter(|it| *it > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str) -> Value {
        json!({ "metadata": { "resourceVersion": version } })
    }

    #[test]
    fn write_gets_a_newer_version_or_keeps_it() {
        let mut order = VersionOrder::default();
        order.check_response("POST", &object("5")).unwrap();
        order.check_response("PUT", &object("9")).unwrap();
        order.check_response("PATCH", &object("5")).unwrap();
        order.check_response("GET", &object("7")).unwrap();
        order.check_response("PUT", &object("8")).unwrap_err();
    }

    #[test]
    fn list_is_not_older_than_its_items() {
        let list = |own: &str| json!({ "metadata": { "resourceVersion": own }, "items": [object("5"), object("4")] });
        VersionOrder::default().check_response("GET", &list("5")).unwrap();
        VersionOrder::default().check_response("GET", &list("4")).unwrap_err();
    }

    #[test]
    fn watch_versions_ascend_after_the_initial_set() {
        let event = |kind: &str, version: &str| json!({ "type": kind, "object": object(version) });
        let all = |path: &str, events: &[(&str, &str)]| {
            let mut order = WatchVersions::of(path);
            events.iter().all(|(kind, version)| order.check_event(&event(kind, version)).is_ok())
        };
        let (added, bookmark) = ("ADDED", "BOOKMARK");
        assert!(all("/a?watch=1", &[(added, "7"), (added, "5"), (bookmark, "7"), (added, "8"), ("DELETED", "9")]));
        assert!(all("/a?watch=1", &[(added, "7"), (added, "5"), ("MODIFIED", "8"), (added, "9")]));
        assert!(!all("/a?watch=1", &[(added, "7"), ("MODIFIED", "6")]));
        assert!(!all("/a?watch=1", &[(added, "7"), (bookmark, "6")]));
        assert!(!all("/a?watch=1", &[(added, "5"), (bookmark, "7"), (added, "7")]));
        assert!(!all("/a?watch=1&resourceVersion=5", &[(added, "5")]));
        assert!(!all("/a?watch=1&resourceVersion=5", &[(added, "7"), (added, "6")]));
        assert!(all("/a?resourceVersion=5&sendInitialEvents=true", &[(added, "4"), (added, "3"), (bookmark, "5")]));
    }
}
