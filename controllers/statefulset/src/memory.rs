//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::collections::{BTreeSet, HashMap};

use api::{Uid, Version};
use parking_lot::Mutex;

use crate::rules::notices::Notice;

/// The memory of all sets. An entry is removed when its set is deleted.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<Uid, Entry>>);

#[derive(Default)]
struct Entry {
    /// The template of this generation is that of the newest revision, which had this version.
    newest: Option<(i64, Version)>,
    /// The last notices.
    notices: BTreeSet<Notice>,
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

    /// Replaces the notices of a set. Returns those that are new.
    pub(crate) fn set_notices(&self, set: &Uid, notices: BTreeSet<Notice>) -> Vec<Notice> {
        let mut sets = self.0.lock();
        if notices.is_empty() && !sets.contains_key(set) {
            return Vec::new();
        }
        let entry = sets.entry(set.clone()).or_default();
        let new = notices.difference(&entry.notices).cloned().collect();
        entry.notices = notices;
        new
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
        assert_eq!(memory.set_notices(&set, BTreeSet::new()).len(), 0);
        assert_eq!(memory.0.lock().len(), 0, "a set without notices has no entry");
        assert_eq!(memory.set_notices(&set, quota("a")).len(), 1);
        assert_eq!(memory.set_notices(&set, quota("a")).len(), 0);
        assert_eq!(memory.set_notices(&set, quota("b")).len(), 1);
        assert_eq!(memory.set_notices(&set, BTreeSet::new()).len(), 0);
        assert_eq!(memory.set_notices(&set, quota("b")).len(), 1, "it is over, and begins again");
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
