//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::collections::HashMap;

use api::{Uid, Version};
use parking_lot::Mutex;
use workload::NoticeLog;

use crate::rules::notices::Notice;

/// The memory of all sets. An entry is removed when its set is deleted.
#[derive(Default)]
pub(crate) struct Memory {
    /// The states that were reported.
    pub(crate) notices: NoticeLog<Notice>,
    /// The template of this generation is that of the newest revision, which had this version.
    newest: Mutex<HashMap<Uid, (i64, Version)>>,
}

impl Memory {
    /// Whether the newest revision is known to have the template of this generation.
    pub(crate) fn is_newest(&self, set: &Uid, generation: i64, revision: &Version) -> bool {
        let newest = self.newest.lock();
        newest.get(set).is_some_and(|(at, version)| *at == generation && version == revision)
    }

    /// Records that the newest revision has the template of this generation.
    pub(crate) fn set_newest(&self, set: &Uid, generation: i64, revision: Version) {
        self.newest.lock().insert(set.clone(), (generation, revision));
    }

    /// Removes a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        self.newest.lock().remove(set);
        self.notices.remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_revision_is_known_for_one_generation_and_version() {
        let (memory, set) = (Memory::default(), Uid::new("u"));
        memory.set_newest(&set, 1, Version::from(5));
        assert!(memory.is_newest(&set, 1, &Version::from(5)));
        assert!(!memory.is_newest(&set, 2, &Version::from(5)) && !memory.is_newest(&set, 1, &Version::from(6)));
        memory.remove(&set);
        assert!(!memory.is_newest(&set, 1, &Version::from(5)));
    }
}
