//! What is remembered of each namespace that terminates, by uid. The handlers begin and end an entry; a sync only adds
//! to it, so nothing outlives its namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Resource, Uid};
use clock::Instant;
use parking_lot::Mutex;

/// Each API server learns from a watch of its own that a namespace terminates, and until then lets objects in. No proof of
/// emptiness counts that was taken earlier after the deletion than this.
const SAFETY_DELAY: Duration = Duration::from_secs(5);
/// A deletion this old by the server's clock needs no such delay any more, however far the clocks are apart.
const LONG_AGO: Duration = Duration::from_secs(60);
/// Namespaces that are deleted within so long of each other are worked on together, so that one proof serves them all.
const GATHER: Duration = Duration::from_secs(1);

/// The terminating namespaces.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    namespaces: BTreeMap<Uid, Terminating>,
    /// The latest instant that was given to anybody as a beginning.
    last_begin: Option<Instant>,
}

struct Terminating {
    schedule: Schedule,
    /// Kinds whose deletion was asked for: from then on we look before we ask again.
    asked: BTreeSet<Resource>,
    /// Kinds of which a list begun at that instant showed nothing.
    emptied: BTreeMap<Resource, Instant>,
    passes: u32,
    slow: bool,
}

/// From when on what may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Content is deleted; what was known before does not count.
    pub(crate) begin: Instant,
    /// The namespace may go; only proofs taken from here on count for that.
    pub(crate) ready: Instant,
}

/// What is worth telling of a namespace that is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Story {
    /// How many passes it took.
    pub(crate) passes: u32,
    /// How many kinds had to be deleted.
    pub(crate) kinds: usize,
}

impl Memory {
    /// A namespace was seen terminating, `age` after its deletion by the server's clock. Returns when to begin with it if
    /// that is the first sight.
    pub(crate) fn observe(&self, uid: &Uid, age: Duration, now: Instant) -> Option<Instant> {
        let mut inner = self.0.lock();
        if inner.namespaces.contains_key(uid) {
            return None;
        }
        let begin = gather(inner.last_begin, now);
        inner.last_begin = Some(begin);
        let ready = if age >= LONG_AGO { begin } else { begin + SAFETY_DELAY };
        let terminating = Terminating {
            schedule: Schedule { begin, ready },
            asked: BTreeSet::new(),
            emptied: BTreeMap::new(),
            passes: 0,
            slow: false,
        };
        inner.namespaces.insert(uid.clone(), terminating);
        Some(begin)
    }

    /// The namespace is gone. True when no other is left.
    pub(crate) fn forget(&self, uid: &Uid) -> bool {
        let mut inner = self.0.lock();
        inner.namespaces.remove(uid).is_some() && inner.namespaces.is_empty()
    }

    /// True as long as the namespace has not been seen gone. Asked before everything that destroys by name: a successor
    /// of the same name must not lose what is its own.
    pub(crate) fn holds(&self, uid: &Uid) -> bool {
        self.0.lock().namespaces.contains_key(uid)
    }

    /// How many namespaces terminate.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().namespaces.len()
    }

    /// When the namespace may be worked on and let go; `None` before it was seen terminating and after it was seen gone.
    pub(crate) fn schedule(&self, uid: &Uid) -> Option<Schedule> {
        self.0.lock().namespaces.get(uid).map(|it| it.schedule)
    }

    /// True for a namespace that once did not get its answers in time.
    pub(crate) fn is_slow(&self, uid: &Uid) -> bool {
        self.0.lock().namespaces.get(uid).is_some_and(|it| it.slow)
    }

    /// True when the deletion of this kind has been asked for before.
    pub(crate) fn has_asked(&self, uid: &Uid, kind: &Resource) -> bool {
        self.0.lock().namespaces.get(uid).is_some_and(|it| it.asked.contains(kind))
    }

    /// True when a list begun at `since` or later showed nothing of this kind.
    pub(crate) fn is_empty_since(&self, uid: &Uid, kind: &Resource, since: Instant) -> bool {
        let inner = self.0.lock();
        let emptied = inner.namespaces.get(uid).and_then(|it| it.emptied.get(kind));
        emptied.is_some_and(|at| *at >= since)
    }

    /// What to tell of it.
    pub(crate) fn story(&self, uid: &Uid) -> Story {
        let inner = self.0.lock();
        let story = inner.namespaces.get(uid).map(|it| Story { passes: it.passes, kinds: it.asked.len() });
        story.unwrap_or_default()
    }

    /// One more pass begins.
    pub(crate) fn passes(&self, uid: &Uid) {
        self.with(uid, |it| it.passes += 1);
    }

    /// Not everything was answered in time.
    pub(crate) fn is_late(&self, uid: &Uid) {
        self.with(uid, |it| it.slow = true);
    }

    /// The deletion of this kind was asked for.
    pub(crate) fn asks(&self, uid: &Uid, kind: &Resource) {
        self.with(uid, |it| {
            it.asked.insert(kind.clone());
        });
    }

    /// A list begun `at` that instant showed nothing of this kind.
    pub(crate) fn shows_empty(&self, uid: &Uid, kind: &Resource, at: Instant) {
        self.with(uid, |it| {
            it.emptied.insert(kind.clone(), at);
        });
    }

    fn with(&self, uid: &Uid, change: impl FnOnce(&mut Terminating)) {
        if let Some(terminating) = self.0.lock().namespaces.get_mut(uid) {
            change(terminating);
        }
    }
}

/// The first of a flood begins at once; those that follow within a second begin together at that second's end.
fn gather(last_begin: Option<Instant>, now: Instant) -> Instant {
    match last_begin {
        Some(last) if last >= now => last,
        Some(last) if last + GATHER > now => last + GATHER,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use api::Resource;
    use clock::Clock;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SEC: Duration = Duration::from_secs(1);

    fn uid(number: u32) -> Uid {
        Uid::new(&format!("uid-{number}"))
    }

    #[test]
    fn one_namespace_begins_at_once_and_may_go_after_the_safety_delay() {
        let (memory, now) = (Memory::default(), Clock::system().now());
        assert_eq!(memory.observe(&uid(1), Duration::ZERO, now), Some(now));
        assert_eq!(memory.schedule(&uid(1)), Some(Schedule { begin: now, ready: now + 5 * SEC }));
        assert_eq!(memory.observe(&uid(1), Duration::ZERO, now + SEC), None, "only the first sight counts");
        assert_eq!(memory.schedule(&uid(2)), None);
    }

    #[test]
    fn after_a_restart_only_deletions_of_long_ago_skip_the_delay() {
        let now = Clock::system().now();
        for (age, delay) in [(0, 5), (6, 5), (59, 5), (60, 0), (100_000, 0)] {
            let memory = Memory::default();
            memory.observe(&uid(1), Duration::from_secs(age), now);
            assert_eq!(memory.schedule(&uid(1)).unwrap().ready, now + delay * SEC, "{age} s ago");
        }
    }

    #[test]
    fn a_flood_begins_together_once_a_second() {
        let start = Clock::system().now();
        let memory = Memory::default();
        let begins: Vec<u128> = (0..300)
            .map(|number| {
                let begin = memory.observe(&uid(number), Duration::ZERO, start + number * 10 * MS).unwrap();
                assert!(begin >= start + number * 10 * MS, "nobody begins before it was seen");
                begin.duration_since(start).as_millis()
            })
            .collect();
        let distinct: BTreeSet<u128> = begins.into_iter().collect();
        assert_eq!(distinct.into_iter().collect::<Vec<_>>(), [0, 1000, 2000, 3000]);
        let later = start + 10 * SEC;
        assert_eq!(memory.observe(&uid(1000), Duration::ZERO, later), Some(later));
    }

    #[test]
    fn nothing_is_remembered_of_what_is_gone() {
        let (memory, now) = (Memory::default(), Clock::system().now());
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        memory.observe(&uid(1), Duration::ZERO, now);
        memory.observe(&uid(2), Duration::ZERO, now);
        memory.asks(&uid(1), &pods);
        memory.shows_empty(&uid(1), &pods, now);
        memory.is_late(&uid(1));
        assert!(memory.has_asked(&uid(1), &pods) && memory.is_slow(&uid(1)));
        assert!(memory.is_empty_since(&uid(1), &pods, now) && !memory.is_empty_since(&uid(1), &pods, now + MS));

        assert!(!memory.forget(&uid(1)), "another one is left");
        memory.asks(&uid(1), &pods);
        assert!(!memory.holds(&uid(1)) && !memory.has_asked(&uid(1), &pods) && !memory.is_slow(&uid(1)));
        assert!(memory.forget(&uid(2)));
        assert!(!memory.forget(&uid(2)), "nor is it told twice");
    }
}
