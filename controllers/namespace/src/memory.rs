//! State of each terminating namespace, by uid. The handlers add and remove an entry; a sync only changes it. So no
//! entry remains after its namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Resource, Uid};
use clock::Instant;
use parking_lot::Mutex;

/// Each API server learns from its own watch that a namespace terminates, and admits objects until then. So a proof of
/// emptiness counts only if it was taken at least this long after the deletion was observed. The deletionTimestamp does
/// not shorten the delay, because the clocks may differ.
const SAFETY_DELAY: Duration = Duration::from_secs(5);
/// A proof older than this does not count for the removal of the finalizer: an API group may have been unavailable, or
/// the watch of an API server very late.
const PROOF: Duration = Duration::from_secs(30);
/// Each slow pass in a row lengthens the pause after it by this, up to the longest back-off.
const REST: Duration = Duration::from_secs(15);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Namespaces deleted within this time begin together, so that one proof serves them all.
const GATHER: Duration = Duration::from_secs(1);

/// The namespaces of the initial list are reported within this time of each other. A new leader begins with all of them
/// at once.
const SET: Duration = Duration::from_millis(100);

/// How a terminating namespace was first observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It was in the initial list.
    Present,
    /// It was deleted while we watched.
    News,
}

/// The terminating namespaces.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    namespaces: BTreeMap<Uid, Terminating>,
    /// The latest beginning that was given to a namespace.
    last_begin: Option<Instant>,
    /// The schedule of the last initial list.
    set: Option<Schedule>,
}

struct Terminating {
    schedule: Schedule,
    /// Kinds whose deletion was requested. They are listed before the next deletion request.
    asked: BTreeSet<Resource>,
    /// Kinds that were empty in a list that was sent at this time.
    emptied: BTreeMap<Resource, Instant>,
    /// How the last request for each kind went.
    turns: BTreeMap<Resource, Turn>,
    passes: u32,
    slow: Option<Slow>,
}

impl Terminating {
    fn new(schedule: Schedule) -> Self {
        let (asked, emptied, turns) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { schedule, asked, emptied, turns, passes: 0, slow: None }
    }
}

/// How the last request for a kind went. The next pass uses this order: kinds that were late come last, and the oldest
/// comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// The response came too late.
    pub(crate) late: bool,
    pub(crate) begun: Instant,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassEnd {
    InTime,
    /// It needed more than the usual time of a pass, or a kind did not respond in time.
    Slow,
    /// It ended before it had asked all kinds that respond in time.
    Cut,
}

/// The passes that were not in time, since the last one that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slow {
    passes: u32,
    /// How many of them were cut.
    pub(crate) cut: u32,
    /// The next pass must not begin earlier.
    pub(crate) rests_until: Instant,
}

/// When the steps for a namespace may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// From here on content is deleted. Older proofs do not count.
    pub(crate) begin: Instant,
    /// From here on the finalizer may be removed. Only proofs taken later count for that.
    pub(crate) ready: Instant,
}

impl Schedule {
    /// True if a pass that begins `now` may only delete content.
    pub(crate) fn is_early(self, now: Instant) -> bool {
        now < self.ready
    }

    /// The oldest proof that counts in a pass that begins `now`. Namespaces that wait for the same kinds share proofs,
    /// so many deletions do not need many lists.
    pub(crate) fn since(self, now: Instant) -> Instant {
        if self.is_early(now) {
            return self.begin;
        }
        now.checked_sub(PROOF).map_or(self.ready, |oldest| oldest.max(self.ready))
    }
}

/// What is logged of a namespace whose sync is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Story {
    /// The number of passes.
    pub(crate) passes: u32,
    /// The number of kinds that had to be deleted.
    pub(crate) kinds: usize,
}

impl Memory {
    /// Records that a namespace terminates. Only the first call for a uid counts.
    pub(crate) fn observe(&self, uid: &Uid, sight: Sight, now: Instant) {
        let mut inner = self.0.lock();
        if inner.namespaces.contains_key(uid) {
            return;
        }
        let schedule = match sight {
            Sight::Present => of_a_set(inner.set, now),
            Sight::News => {
                let begin = gather(inner.last_begin, now);
                Schedule { begin, ready: begin + SAFETY_DELAY }
            }
        };
        match sight {
            Sight::Present => inner.set = Some(schedule),
            Sight::News => inner.last_begin = Some(schedule.begin),
        }
        inner.namespaces.insert(uid.clone(), Terminating::new(schedule));
    }

    /// Removes a deleted namespace. True if no other remains.
    pub(crate) fn forget(&self, uid: &Uid) -> bool {
        let mut inner = self.0.lock();
        inner.namespaces.remove(uid).is_some() && inner.namespaces.is_empty()
    }

    /// True until the namespace was observed deleted. It must be checked before each deletion by name: a new namespace
    /// of the same name must not lose its objects.
    pub(crate) fn holds(&self, uid: &Uid) -> bool {
        self.0.lock().namespaces.contains_key(uid)
    }

    /// The number of terminating namespaces.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().namespaces.len()
    }

    /// The schedule of a namespace; `None` before it was observed terminating, and after it was observed deleted.
    pub(crate) fn schedule(&self, uid: &Uid) -> Option<Schedule> {
        self.0.lock().namespaces.get(uid).map(|it| it.schedule)
    }

    /// The record of a namespace whose last pass was not in time; `None` for any other.
    pub(crate) fn slow(&self, uid: &Uid) -> Option<Slow> {
        self.0.lock().namespaces.get(uid)?.slow
    }

    /// True if the deletion of this kind was requested before.
    pub(crate) fn has_asked(&self, uid: &Uid, kind: &Resource) -> bool {
        self.0.lock().namespaces.get(uid).is_some_and(|it| it.asked.contains(kind))
    }

    /// True if a list that was sent at `since` or later showed no object of this kind.
    pub(crate) fn is_empty_since(&self, uid: &Uid, kind: &Resource, since: Instant) -> bool {
        let inner = self.0.lock();
        let emptied = inner.namespaces.get(uid).and_then(|it| it.emptied.get(kind));
        emptied.is_some_and(|at| *at >= since)
    }

    /// How the last request for this kind went.
    pub(crate) fn last_turn(&self, uid: &Uid, kind: &Resource) -> Option<Turn> {
        self.0.lock().namespaces.get(uid).and_then(|it| it.turns.get(kind).copied())
    }

    /// The summary for the log.
    pub(crate) fn story(&self, uid: &Uid) -> Story {
        let inner = self.0.lock();
        let story = inner.namespaces.get(uid).map(|it| Story { passes: it.passes, kinds: it.asked.len() });
        story.unwrap_or_default()
    }

    /// Counts the start of a pass.
    pub(crate) fn begins_pass(&self, uid: &Uid) {
        self.with(uid, |it| it.passes += 1);
    }

    /// Records how a pass ended `now`.
    pub(crate) fn end_pass(&self, uid: &Uid, end: PassEnd, now: Instant) {
        self.with(uid, |it| {
            let (passes, cut) = it.slow.map_or((0, 0), |it| (it.passes, it.cut));
            let (passes, cut) = (passes.saturating_add(1), cut.saturating_add(u32::from(end == PassEnd::Cut)));
            it.slow = (end != PassEnd::InTime).then(|| Slow { passes, cut, rests_until: now + rest(passes) });
        });
    }

    /// Records that the deletion of this kind was requested.
    pub(crate) fn asks(&self, uid: &Uid, kind: &Resource) {
        self.with(uid, |it| {
            it.asked.insert(kind.clone());
        });
    }

    /// Records that a list sent at `at` showed no object of this kind.
    pub(crate) fn shows_empty(&self, uid: &Uid, kind: &Resource, at: Instant) {
        self.with(uid, |it| {
            it.emptied.insert(kind.clone(), at);
        });
    }

    /// Records how the request for this kind went.
    pub(crate) fn record_turn(&self, uid: &Uid, kind: &Resource, turn: Turn) {
        self.with(uid, |it| {
            it.turns.insert(kind.clone(), turn);
        });
    }

    /// Removes kinds that are not `served` any more. Otherwise custom resources that come and go would fill the memory.
    pub(crate) fn retain_kinds(&self, uid: &Uid, served: &BTreeSet<&Resource>) {
        self.with(uid, |it| {
            it.asked.retain(|kind| served.contains(kind));
            it.emptied.retain(|kind, _| served.contains(kind));
            it.turns.retain(|kind, _| served.contains(kind));
        });
    }

    fn with(&self, uid: &Uid, change: impl FnOnce(&mut Terminating)) {
        if let Some(terminating) = self.0.lock().namespaces.get_mut(uid) {
            change(terminating);
        }
    }
}

/// The first of many deletions begins at once. Those of the following second begin together at its end.
fn gather(last_begin: Option<Instant>, now: Instant) -> Instant {
    match last_begin {
        Some(last) if last >= now => last,
        Some(last) if last + GATHER > now => last + GATHER,
        _ => now,
    }
}

/// All namespaces of an initial list begin at once and may be finalized together, each only after its delay.
fn of_a_set(set: Option<Schedule>, now: Instant) -> Schedule {
    match set {
        Some(set) if now < set.begin + SET => set,
        _ => Schedule { begin: now, ready: now + SET + SAFETY_DELAY },
    }
}

/// The pause after this many slow passes in a row. The back-off of the queue alone is not enough: if another event
/// enqueues the namespace once, its retry becomes due during that long pass and follows it at once, again and again.
fn rest(passes: u32) -> Duration {
    REST.saturating_mul(passes).min(LONGEST_REST)
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
        memory.observe(&uid(1), Sight::News, now);
        assert_eq!(memory.schedule(&uid(1)), Some(Schedule { begin: now, ready: now + 5 * SEC }));
        memory.observe(&uid(1), Sight::News, now + SEC);
        assert_eq!(memory.schedule(&uid(1)).unwrap().begin, now, "only the first sight counts");
        assert_eq!(memory.schedule(&uid(2)), None);
    }

    #[test]
    fn proofs_count_from_the_beginning_then_from_the_end_of_the_delay_then_for_half_a_minute() {
        let begin = Clock::system().now() + 1000 * SEC;
        let schedule = Schedule { begin, ready: begin + 5 * SEC };
        let cases = [
            ("at once", 0, 0),
            ("still too early to let it go", 4, 0),
            ("the delay is over", 5, 5),
            ("proofs of the flood are shared", 35, 5),
            ("they grow old", 36, 6),
            ("a namespace that waits gets new ones", 600, 570),
        ];
        for (name, now, want) in cases {
            assert_eq!(schedule.since(begin + now * SEC), begin + want * SEC, "{name}");
            assert_eq!(schedule.is_early(begin + now * SEC), now < 5, "{name}");
        }
    }

    #[test]
    fn a_flood_begins_together_once_a_second() {
        let start = Clock::system().now();
        let memory = Memory::default();
        let begins: Vec<u128> = (0..300)
            .map(|number| {
                memory.observe(&uid(number), Sight::News, start + number * 10 * MS);
                let begin = memory.schedule(&uid(number)).unwrap().begin;
                assert!(begin >= start + number * 10 * MS, "nobody begins before it was seen");
                begin.duration_since(start).as_millis()
            })
            .collect();
        let distinct: BTreeSet<u128> = begins.into_iter().collect();
        assert_eq!(distinct.into_iter().collect::<Vec<_>>(), [0, 1000, 2000, 3000]);
        let later = start + 10 * SEC;
        memory.observe(&uid(1000), Sight::News, later);
        assert_eq!(memory.schedule(&uid(1000)).unwrap().begin, later);
    }

    #[test]
    fn a_first_set_begins_at_once_and_keeps_the_delay_for_each() {
        let (memory, start) = (Memory::default(), Clock::system().now());
        for number in 0..99 {
            let seen = start + number * MS;
            memory.observe(&uid(number), Sight::Present, seen);
            let schedule = memory.schedule(&uid(number)).unwrap();
            assert_eq!(schedule.begin, start, "{number}");
            assert!(schedule.ready >= seen + SAFETY_DELAY, "{number}");
            assert_eq!(schedule.ready, start + SET + SAFETY_DELAY, "one proof serves them all");
        }
        let later = start + 200 * MS;
        memory.observe(&uid(1000), Sight::Present, later);
        memory.observe(&uid(1001), Sight::News, later);
        for number in [1000, 1001] {
            assert_eq!(memory.schedule(&uid(number)).unwrap().begin, later, "{number}: news gathers by itself");
        }
    }

    #[test]
    fn a_slow_namespace_rests_longer_each_time_until_it_is_slow_no_more() {
        let (memory, now) = (Memory::default(), Clock::system().now());
        memory.observe(&uid(1), Sight::News, now);
        for (end, want) in [
            (PassEnd::InTime, None),
            (PassEnd::Cut, Some((15, 1))),
            (PassEnd::Slow, Some((30, 1))),
            (PassEnd::Cut, Some((45, 2))),
            (PassEnd::Slow, Some((60, 2))),
            (PassEnd::Slow, Some((60, 2))),
            (PassEnd::InTime, None),
            (PassEnd::Slow, Some((15, 0))),
        ] {
            memory.end_pass(&uid(1), end, now);
            let slow = memory.slow(&uid(1)).map(|it| (it.rests_until, it.cut));
            assert_eq!(slow, want.map(|(secs, cut)| (now + secs * SEC, cut)));
        }
    }

    #[test]
    fn nothing_is_remembered_of_kinds_that_are_served_no_more() {
        let (memory, now) = (Memory::default(), Clock::system().now());
        let kinds = ["pods", "widgets"].map(|it| Resource::namespaced("", "v1", it, "Any"));
        memory.observe(&uid(1), Sight::News, now);
        for kind in &kinds {
            memory.asks(&uid(1), kind);
            memory.shows_empty(&uid(1), kind, now);
            memory.record_turn(&uid(1), kind, Turn { late: true, begun: now });
        }
        memory.retain_kinds(&uid(1), &BTreeSet::from([&kinds[0]]));
        for (kind, want) in kinds.iter().zip([true, false]) {
            let known = [
                memory.has_asked(&uid(1), kind),
                memory.is_empty_since(&uid(1), kind, now),
                memory.last_turn(&uid(1), kind).is_some(),
            ];
            assert_eq!(known, [want; 3], "{kind}");
        }
    }

    #[test]
    fn nothing_is_remembered_of_what_is_gone() {
        let (memory, now) = (Memory::default(), Clock::system().now());
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        memory.observe(&uid(1), Sight::News, now);
        memory.observe(&uid(2), Sight::News, now);
        memory.asks(&uid(1), &pods);
        memory.shows_empty(&uid(1), &pods, now);
        memory.end_pass(&uid(1), PassEnd::Slow, now);
        memory.record_turn(&uid(1), &pods, Turn { late: true, begun: now });
        assert!(memory.has_asked(&uid(1), &pods) && memory.slow(&uid(1)).is_some());
        assert_eq!(memory.last_turn(&uid(1), &pods), Some(Turn { late: true, begun: now }));
        assert!(memory.is_empty_since(&uid(1), &pods, now) && !memory.is_empty_since(&uid(1), &pods, now + MS));

        assert!(!memory.forget(&uid(1)), "another one is left");
        memory.asks(&uid(1), &pods);
        assert!(!memory.holds(&uid(1)) && !memory.has_asked(&uid(1), &pods));
        assert_eq!((memory.slow(&uid(1)), memory.last_turn(&uid(1), &pods)), (None, None));
        assert!(memory.forget(&uid(2)));
        assert!(!memory.forget(&uid(2)), "nor is it told twice");
    }
}
