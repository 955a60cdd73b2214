//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::{Uid, Version};
use parking_lot::Mutex;

use crate::rules::notices::Notice;

/// The memory of all sets. An entry is removed when its set is deleted.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<Uid, SetMemory>>);

/// What is to be reported about a set.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// The notices that hold since this sync.
    pub(crate) new: Vec<Notice>,
    /// Since when the set is blocked, in seconds since the epoch.
    pub(crate) blocked_since: Option<i64>,
}

#[derive(Default)]
struct SetMemory {
    /// The template of this generation is that of the newest revision, which had this version.
    newest: Option<(i64, Version)>,
    /// The notices that hold, each with the time at which it was first seen.
    notices: BTreeMap<Notice, i64>,
}

impl Memory {
    /// Whether the newest revision is known to have the template of this generation.
    pub(crate) fn is_newest(&self, set: &Uid, generation: i64, revision: &Version) -> bool {
        let sets = self.0.lock();
        let known = sets.get(set).and_then(|it| it.newest.as_ref());
        known.is_some_and(|(at, version)| *at == generation && version == revision)
    }

    /// Records that the newest revision has the template of this generation.
    pub(crate) fn set_newest(&self, set: &Uid, generation: i64, revision: Version) {
        self.0.lock().entry(set.clone()).or_default().newest = Some((generation, revision));
    }

    /// Replaces the notices of a set. `now` is in seconds since the epoch.
    pub(crate) fn set_notices(&self, set: &Uid, notices: BTreeSet<Notice>, now: i64) -> Report {
        let mut sets = self.0.lock();
        if notices.is_empty() && !sets.contains_key(set) {
            return Report::default();
        }
        let entry = sets.entry(set.clone()).or_default();
        let new = notices.iter().filter(|it| !entry.notices.contains_key(*it)).cloned().collect();
        let first_seen = |it: &Notice| entry.notices.get(it).copied().unwrap_or(now);
        entry.notices = notices.into_iter().map(|it| (first_seen(&it), it)).map(|(at, it)| (it, at)).collect();
        let blocked_since = entry.notices.iter().filter_map(|(notice, at)| notice.blocked_since(*at)).min();
        Report { new, blocked_since }
    }

    /// Removes a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        self.0.lock().remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_new_once_until_it_changes() {
        let (memory, set) = (Memory::default(), Uid::new("u"));
        let quota = |pod: &str| BTreeSet::from([Notice::QuotaExceeded { pod: pod.to_owned() }]);
        let set_notices = |notices: BTreeSet<Notice>, now: i64| {
            let Report { new, blocked_since } = memory.set_notices(&set, notices, now);
            (new.len(), blocked_since)
        };
        assert_eq!(set_notices(BTreeSet::new(), 1), (0, None));
        assert_eq!(memory.0.lock().len(), 0, "a set without notices has no entry");
        assert_eq!(set_notices(quota("a"), 2), (1, Some(2)));
        assert_eq!(set_notices(quota("a"), 3), (0, Some(2)), "since it was first seen");
        assert_eq!(set_notices(quota("b"), 4), (1, Some(4)));
        assert_eq!(set_notices(BTreeSet::new(), 5), (0, None));
        assert_eq!(set_notices(quota("b"), 6), (1, Some(6)), "it is over, and begins again");
        memory.remove(&set);
        assert_eq!(memory.0.lock().len(), 0);
    }

    #[test]
    fn the_newest_revision_is_known_for_one_generation_and_version() {
        let (memory, set) = (Memory::default(), Uid::new("u"));
        memory.set_newest(&set, 1, Version::from(5));
        assert!(memory.is_newest(&set, 1, &Version::from(5)));
        assert!(!memory.is_newest(&set, 2, &Version::from(5)) && !memory.is_newest(&set, 1, &Version::from(6)));
    }
}
