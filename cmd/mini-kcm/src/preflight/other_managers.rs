use std::time::Duration;

use clock::Timestamp;
use serde_json::Value;

/// The field managers of controller managers, which are the first word of their User-Agent. A manager inside another
/// program has that program's name and is not found.
const FIELD_MANAGERS: [&str; 2] = ["kube-controller-manager", OUR_FIELD_MANAGER];
/// Our own field manager.
const OUR_FIELD_MANAGER: &str = "mini-kcm";
/// A Lease that was renewed within this time is held, with any tolerated clock difference.
const LEASE_TIMEOUT: Duration = Duration::from_secs(60);
/// An older write proves nothing about the present.
const RECENT: Duration = Duration::from_secs(600);
/// Write times are truncated to seconds, and the server's clock is known to one second.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

/// A controller manager that holds a Lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leader {
    /// The name of its Lease.
    pub(super) lease: String,
    /// The holder of the Lease.
    pub(super) holder: String,
    /// The time when it acquired the Lease.
    since: Timestamp,
}

/// A write of another manager to a subresource that only this controller writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ForeignWrite {
    /// The controller whose work it was.
    pub(super) controller: &'static str,
    /// Namespace and name of the object.
    pub(super) object: String,
    /// The field manager of the write.
    pub(super) manager: String,
    /// The time of the write.
    pub(super) at: Timestamp,
}

impl ForeignWrite {
    /// Certainly later than this time of the server.
    pub(super) fn is_after(&self, since: Timestamp) -> bool {
        since.checked_add(CLOCK_TOLERANCE).is_ok_and(|surely| self.at > surely)
    }

    /// It says something about the present.
    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        now.duration_since(self.at).unsigned_abs() <= RECENT
    }
}

/// The controller managers among the holders of these Leases.
#[must_use]
pub(super) fn leaders(leases: &Value, now: Timestamp) -> Vec<Leader> {
    let items = leases["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut leaders: Vec<Leader> = items.iter().filter_map(|lease| leader(lease, now)).collect();
    leaders.sort();
    leaders
}

fn leader(lease: &Value, now: Timestamp) -> Option<Leader> {
    let time = |field: &str| lease["spec"][field].as_str().and_then(|it| it.parse::<Timestamp>().ok());
    let name = lease["metadata"]["name"].as_str()?;
    let holder = lease["spec"]["holderIdentity"].as_str().filter(|it| !it.is_empty())?;
    let renewed = time("renewTime")?;
    let written_by_one =
        fields(lease).iter().any(|it| FIELD_MANAGERS.contains(&it["manager"].as_str().unwrap_or_default()));
    let held = now.duration_since(renewed).unsigned_abs() <= LEASE_TIMEOUT;
    let since = time("acquireTime").unwrap_or(renewed);
    (held && written_by_one).then(|| Leader { lease: name.to_owned(), holder: holder.to_owned(), since })
}

/// The time from which another manager's writes show that it does the same work; `None` when they do not show it.
/// `term_begun_at` is the start of our term, `ours` is the name of our Lease.
#[must_use]
pub(super) fn since(term_begun_at: Option<Timestamp>, ours: Option<&str>, leaders: &[Leader]) -> Option<Timestamp> {
    if term_begun_at.is_some() {
        return term_begun_at;
    }
    // The holder of our Lease is allowed to do this work, and this process is its standby.
    if leaders.iter().any(|it| Some(&*it.lease) == ours) {
        return None;
    }
    // A manager may have had other flags before its term.
    leaders.iter().map(|it| it.since).min()
}

/// Recent writes of managers other than ours, from `since` on, to a subresource that only this controller writes.
#[must_use]
pub(super) fn foreign_writes(
    controller: &'static str,
    objects: &Value,
    subresource: &str,
    (since, now): (Timestamp, Timestamp),
) -> Vec<ForeignWrite> {
    let items = objects["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |object: &Value| -> Vec<ForeignWrite> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let name = match (text("namespace"), text("name")) {
            (namespace, name) if namespace.is_empty() => name,
            (namespace, name) => format!("{namespace}/{name}"),
        };
        let written = fields(object).iter().filter(|it| it["subresource"].as_str().unwrap_or_default() == subresource);
        written
            .filter_map(|it| {
                let manager =
                    it["manager"].as_str().filter(|it| FIELD_MANAGERS.contains(it) && *it != OUR_FIELD_MANAGER)?;
                let at: Timestamp = it["time"].as_str()?.parse().ok()?;
                let (object, manager) = (name.clone(), manager.to_owned());
                let write = ForeignWrite { controller, object, manager, at };
                (write.is_after(since) && write.is_recent(now)).then_some(write)
            })
            .collect()
    };
    let mut found: Vec<ForeignWrite> = items.iter().flat_map(of).collect();
    found.sort();
    found
}

fn fields(object: &Value) -> &[Value] {
    object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T{time}Z").parse().unwrap()
    }

    #[test]
    fn lease_held_by_a_manager_has_a_leader() {
        let lease = |holder: &str, renewed: &str, manager: &str| {
            json!({ "items": [{
                "metadata": { "name": "l", "managedFields": [{ "manager": manager }] },
                "spec": { "holderIdentity": holder, "renewTime": renewed },
            }] })
        };
        let fresh = "2026-01-01T11:59:50.000001Z";
        for (name, list, want) in [
            ("upstream's", lease("h_1", fresh, "kube-controller-manager"), 1),
            ("one of ours", lease("h_1", fresh, "mini-kcm"), 1),
            ("released", lease("", fresh, "kube-controller-manager"), 0),
            ("expired long ago", lease("h_1", "2026-01-01T11:00:00Z", "kube-controller-manager"), 0),
            ("a scheduler's", lease("h_1", fresh, "kube-scheduler"), 0),
            ("a cloud's", lease("h_1", fresh, "cloud-controller-manager"), 0),
            ("nonsense", json!({ "items": [{}, 7, { "spec": [] }] }), 0),
        ] {
            assert_eq!(leaders(&list, now()).len(), want, "{name}");
        }
    }

    #[test]
    fn foreign_writes_count_from_our_term_or_from_the_other_managers_term() {
        let leader =
            |lease: &str, since: &str| Leader { lease: lease.to_owned(), holder: "h".to_owned(), since: at(since) };
        let both = [leader("ours", "11:00:00"), leader("other", "11:30:00")];
        let term_begun_at = Some(at("11:50:00"));
        for (name, term_begun_at, lease, leaders, want) in [
            ("we lead", term_begun_at, Some("ours"), &both[..], term_begun_at),
            ("we lead without a Lease", term_begun_at, None, &both[1..], term_begun_at),
            ("another leads under our Lease", None, Some("ours"), &both[..], None),
            ("another leads under another Lease", None, Some("ours"), &both[1..], Some(at("11:30:00"))),
            ("no manager leads", None, Some("ours"), &both[..0], None),
        ] {
            assert_eq!(since(term_begun_at, lease, leaders), want, "{name}");
        }
    }

    #[test]
    fn recent_write_of_another_manager_is_foreign() {
        let object = |manager: &str, subresource: &str, time: &str| {
            let entry = json!({ "manager": manager, "subresource": subresource, "time": time });
            json!({ "items": [{ "metadata": { "name": "a", "managedFields": [entry] } }] })
        };
        let fresh = "2026-01-01T11:55:00Z";
        let (early, late) = (at("11:00:00"), at("11:54:59"));
        for (name, list, since, want) in [
            ("upstream's", object("kube-controller-manager", "status", fresh), early, 1),
            ("ours", object("mini-kcm", "status", fresh), early, 0),
            ("a user's", object("kubectl", "status", fresh), early, 0),
            ("elsewhere", object("kube-controller-manager", "", fresh), early, 0),
            ("long ago", object("kube-controller-manager", "status", "2026-01-01T11:00:10Z"), early, 0),
            ("possibly by the previous leader", object("kube-controller-manager", "status", fresh), late, 0),
            ("nothing", json!({}), early, 0),
        ] {
            let found = foreign_writes("namespace-controller", &list, "status", (since, now()));
            assert_eq!(found.len(), want, "{name}");
        }
    }
}
