//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::{collections::HashMap, sync::Arc};

use api::{Pod, Uid, Version};
use clock::Timestamp;
use parking_lot::Mutex;
use workload::NoticeLog;

use crate::rules::notices::Notice;

/// A deletion that the cache does not show after this time, in seconds, is read from the server. A restored etcd may have
/// the pod again.
const LONGEST_LAG: i64 = 300;

/// A deletion of a pod.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deletion {
    /// The server has confirmed it.
    Sent {
        /// When.
        since: Timestamp,
    },
    /// Its outcome is unknown.
    Unknown,
}

/// The memory of all sets. An entry is removed when its set is deleted.
#[derive(Default)]
pub(crate) struct Memory {
    /// The states that were reported.
    pub(crate) notices: NoticeLog<Notice>,
    /// The template of this generation is that of the newest revision, which had this version.
    newest: Mutex<HashMap<Uid, (i64, Version)>>,
    /// The pods of each set for which a deletion was sent, as long as the cache may show them as they were.
    deleted: Mutex<HashMap<Uid, HashMap<Uid, Deletion>>>,
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

    /// Records a deletion, or one whose outcome is unknown.
    pub(crate) fn record_deletion(&self, set: &Uid, pod: Uid, deletion: Deletion) {
        self.deleted.lock().entry(set.clone()).or_default().insert(pod, deletion);
    }

    /// Records that the server has the pod as it was before a deletion with an unknown outcome.
    pub(crate) fn forget_deletion(&self, set: &Uid, pod: &Uid) {
        if let Some(deleted) = self.deleted.lock().get_mut(set) {
            deleted.remove(pod);
        }
    }

    /// Marks the deleted pods as terminating if the cache does not show that yet. Otherwise a new template would take
    /// down further pods. Returns those whose deletion has an unknown outcome, or is not shown for minutes.
    pub(crate) fn mark_deleted(&self, set: &Uid, pods: &mut [Arc<Pod>], now: Timestamp) -> Vec<Arc<Pod>> {
        let mut unknown = Vec::new();
        let mut all = self.deleted.lock();
        let Some(mut before) = all.remove(set) else { return unknown };
        let mut left = HashMap::new();
        for pod in pods.iter_mut().filter(|it| it.meta.deletion.is_none()) {
            let Some((uid, deletion)) = before.remove_entry(&pod.meta.uid) else { continue };
            match deletion {
                Deletion::Sent { since } if since.as_second().saturating_add(LONGEST_LAG) > now.as_second() => {
                    Arc::make_mut(pod).meta.deletion = Some(since.as_second());
                }
                _ => unknown.push(pod.clone()),
            }
            left.insert(uid, deletion);
        }
        if !left.is_empty() {
            all.insert(set.clone(), left);
        }
        unknown
    }

    /// Removes a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        self.newest.lock().remove(set);
        self.deleted.lock().remove(set);
        self.notices.remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_deleted_pod_is_shown_as_terminating_until_the_cache_shows_that() {
        let (memory, set) = (Memory::default(), Uid::new("u"));
        let pods = || testing::pods(&["0 old ready", "1 old ready", "2 old ready"]);
        let uid = |index: usize| pods()[index].meta.uid.clone();
        let at = |second| Timestamp::from_second(second).unwrap();
        memory.record_deletion(&set, uid(1), Deletion::Sent { since: at(100) });
        memory.record_deletion(&set, uid(2), Deletion::Unknown);
        let shown = |pods: &[Arc<Pod>]| pods.iter().map(|it| it.meta.deletion).collect::<Vec<_>>();
        let mut lagging = pods();
        let unknown = memory.mark_deleted(&set, &mut lagging, at(101));
        assert_eq!((shown(&lagging), unknown), (vec![None, Some(100), None], vec![lagging[2].clone()]));

        memory.forget_deletion(&set, &uid(2));
        let mut lagging = pods();
        assert_eq!(memory.mark_deleted(&set, &mut lagging, at(399)), []);
        assert_eq!(shown(&lagging), [None, Some(100), None]);
        // For too long.
        let mut lagging = pods();
        assert_eq!(memory.mark_deleted(&set, &mut lagging, at(400)), [lagging[1].clone()]);
        assert_eq!(shown(&lagging), [None; 3]);
        // The cache shows that it is gone.
        memory.mark_deleted(&set, &mut pods()[..1], at(102));
        let mut all = pods();
        memory.mark_deleted(&set, &mut all, at(103));
        assert_eq!(shown(&all), [None; 3]);
    }

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
