use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::Uid;
use parking_lot::Mutex;

/// The states that were reported to users, by the uid of the owner. Each is reported once, and again after it was over.
///
/// The delete handler of the owner must call [`NoticeLog::remove`].
#[derive(Debug)]
pub struct NoticeLog<N>(Mutex<HashMap<Uid, BTreeMap<N, i64>>>);

/// The states of an owner that hold now.
#[derive(Debug, PartialEq, Eq)]
pub struct Notices<N> {
    /// Those that did not hold before.
    pub new: Vec<N>,
    /// All of them, with the time at which each was first seen, in seconds since the epoch.
    pub all: BTreeMap<N, i64>,
}

impl<N> Default for NoticeLog<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<N: Ord + Clone> NoticeLog<N> {
    /// Replaces the states of an owner. `now` is in seconds since the epoch.
    pub fn replace(&self, owner: &Uid, notices: BTreeSet<N>, now: i64) -> Notices<N> {
        let mut owners = self.0.lock();
        let before = owners.remove(owner).unwrap_or_default();
        let new = notices.iter().filter(|it| !before.contains_key(*it)).cloned().collect();
        let first_seen = |it: N| (before.get(&it).copied().unwrap_or(now), it);
        let all: BTreeMap<N, i64> = notices.into_iter().map(first_seen).map(|(at, it)| (it, at)).collect();
        if !all.is_empty() {
            owners.insert(owner.clone(), all.clone());
        }
        Notices { new, all }
    }

    /// Removes a deleted owner.
    pub fn remove(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_new_once_until_it_is_over() {
        let (log, owner) = (NoticeLog::default(), Uid::new("u"));
        let replace = |notice: &[&'static str], now: i64| {
            let Notices { new, all } = log.replace(&owner, notice.iter().copied().collect(), now);
            (new, all.into_values().min())
        };
        assert_eq!(replace(&[], 1), (vec![], None));
        assert_eq!(replace(&["a"], 2), (vec!["a"], Some(2)));
        assert_eq!(replace(&["a", "b"], 3), (vec!["b"], Some(2)), "since it was first seen");
        assert_eq!(replace(&["b"], 4), (vec![], Some(3)));
        assert_eq!(replace(&[], 5), (vec![], None));
        assert!(log.0.lock().is_empty(), "an owner without notices has no entry");
        assert_eq!(replace(&["b"], 6), (vec!["b"], Some(6)), "it begins again");
        log.remove(&owner);
        assert!(log.0.lock().is_empty());
    }
}
