//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{Pod, Uid, Version};
use clock::{Instant, Timestamp};
use parking_lot::Mutex;
use workload::NoticeLog;

use crate::rules::notices::Notice;

/// If the cache does not show a confirmed deletion within this time, the pod is read from the server. A restored etcd may
/// have it again.
pub(crate) const LONGEST_LAG: Duration = Duration::from_secs(300);

/// A deletion of a pod.
#[derive(Debug, Clone, Copy)]
struct Deletion {
    /// When it was sent, in seconds.
    since: i64,
    /// If the cache does not show it until then, the pod is read from the server.
    check_at: Instant,
}

/// The memory of all sets. An entry is removed when its set is deleted.
#[derive(Default)]
pub(crate) struct Memory {
    /// The states that were reported.
    pub(crate) notices: NoticeLog<Notice>,
    /// The generation whose template the newest revision has, and the resourceVersion of that revision.
    newest: Mutex<HashMap<Uid, (i64, Version)>>,
    /// The pods of each set for which a deletion was sent, until the cache shows the deletion or
    /// [`Memory::forget_deletion`] is called.
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

    /// Records that a DELETE was sent. From `check_at` on, a live read shows its outcome.
    pub(crate) fn record_deletion(&self, set: &Uid, pod: &Uid, sent: Timestamp, check_at: Instant) {
        let mut all = self.deleted.lock();
        let deletion = Deletion { since: sent.as_second(), check_at };
        all.entry(set.clone())
            .or_default()
            .entry(pod.clone())
            .and_modify(|it| it.check_at = check_at)
            .or_insert(deletion);
    }

    /// Forgets a deletion: the server has the pod, and it is not being deleted.
    pub(crate) fn forget_deletion(&self, set: &Uid, pod: &Uid) {
        if let Some(deleted) = self.deleted.lock().get_mut(set) {
            deleted.remove(pod);
        }
    }

    /// Forgets the deletions that the cache shows. Returns the pods that must be read from the server.
    pub(crate) fn due_deletions(&self, set: &Uid, pods: &[Arc<Pod>], now: Instant) -> Vec<Arc<Pod>> {
        let mut all = self.deleted.lock();
        let Some(before) = all.remove(set) else { return Vec::new() };
        let (mut left, mut due) = (HashMap::new(), Vec::new());
        for pod in pods.iter().filter(|it| it.meta.deletion.is_none()) {
            let Some(deletion) = before.get(&pod.meta.uid) else { continue };
            left.insert(pod.meta.uid.clone(), *deletion);
            if deletion.check_at <= now {
                due.push(pod.clone());
            }
        }
        if !left.is_empty() {
            all.insert(set.clone(), left);
        }
        due
    }

    /// Marks the pods as terminating whose deletion the cache does not show. Otherwise a new template would take down
    /// further pods.
    pub(crate) fn mark_deleted(&self, set: &Uid, pods: &mut [Arc<Pod>]) {
        let all = self.deleted.lock();
        let Some(deleted) = all.get(set) else { return };
        for pod in pods {
            if let Some(deletion) = deleted.get(&pod.meta.uid) {
                Arc::make_mut(pod).meta.deletion.get_or_insert(deletion.since);
            }
        }
    }

    /// The times until pods must be read from the server; zero for one that is due.
    pub(crate) fn next_checks(&self, set: &Uid, now: Instant) -> Vec<Duration> {
        let all = self.deleted.lock();
        let deleted = all.get(set).into_iter().flat_map(HashMap::values);
        deleted.map(|it| it.check_at.saturating_duration_since(now)).collect()
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
    use clock::Clock;

    use super::*;
    use crate::testing;

    #[test]
    fn a_deleted_pod_is_shown_as_terminating_until_the_cache_or_the_server_shows_its_state() {
        let (memory, set) = (Memory::default(), Uid::new("u"));
        let pods = || testing::pods(&["0 old ready", "1 old ready", "2 old ready"]);
        let uid = |index: usize| pods()[index].meta.uid.clone();
        let (start, sent) = (Clock::system().now(), Timestamp::from_second(100).unwrap());
        let at = |second| start + Duration::from_secs(second);
        let due = |pods: &[Arc<Pod>], second| memory.due_deletions(&set, pods, at(second));
        let marked = || {
            let mut lagging = pods();
            memory.mark_deleted(&set, &mut lagging);
            lagging.iter().map(|it| it.meta.deletion).collect::<Vec<_>>()
        };
        memory.record_deletion(&set, &uid(1), sent, at(300));
        memory.record_deletion(&set, &uid(2), sent, at(90));
        assert_eq!(due(&pods(), 89), []);
        assert_eq!(marked(), [None, Some(100), Some(100)]);
        assert_eq!(memory.next_checks(&set, at(89)).into_iter().min(), Some(at(1) - start));

        // The outcome of one is read; the other stays as it is.
        assert_eq!(due(&pods(), 90), [pods()[2].clone()]);
        memory.record_deletion(&set, &uid(2), Timestamp::from_second(190).unwrap(), at(390));
        assert_eq!((due(&pods(), 299), marked()), (Vec::new(), vec![None, Some(100), Some(100)]));
        memory.forget_deletion(&set, &uid(2));
        assert_eq!((due(&pods(), 300), marked()), (vec![pods()[1].clone()], vec![None, Some(100), None]));
        assert_eq!(memory.next_checks(&set, at(301)), [Duration::ZERO]);

        // The cache shows that it is terminating, or gone.
        for shown in [vec![testing::pods(&["1 old ready deleting"])[0].clone()], pods()[..1].to_vec()] {
            memory.record_deletion(&set, &uid(1), sent, at(300));
            assert_eq!((due(&shown, 1), marked()), (Vec::new(), vec![None; 3]));
        }
        memory.record_deletion(&set, &uid(1), sent, at(300));
        memory.remove(&set);
        assert_eq!(marked(), [None; 3]);
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
