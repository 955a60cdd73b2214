//! State of each terminating namespace, by uid. The handlers add and remove an entry; a sync only changes it. So no
//! entry remains after its namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Resource, Uid};
use clock::Instant;
use parking_lot::Mutex;

/// Each API server observes in its own watch that a namespace terminates, and admits objects until then. So a proof of
/// emptiness counts only if it was taken at least this long after the deletion was observed. The deletionTimestamp does
/// not shorten the delay, because the clocks may differ.
const SAFETY_DELAY: Duration = Duration::from_secs(5);
/// A proof older than this does not count for the removal of the finalizer: an API group may have been unavailable, or
/// the watch of an API server very late.
const PROOF_VALID_FOR: Duration = Duration::from_secs(30);
/// Each slow pass in a row lengthens the pause after it by this, up to the longest back-off.
const PAUSE_STEP: Duration = Duration::from_secs(15);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Namespaces deleted within this time begin together, so that one proof serves them all.
const BATCH_WINDOW: Duration = Duration::from_secs(1);

/// The namespaces of the initial list are reported within this time of each other. A new leader begins with all of them
/// at once.
const INITIAL_LIST_WINDOW: Duration = Duration::from_millis(100);

/// How a terminating namespace was first observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstObserved {
    /// It was in the initial list.
    InInitialList,
    /// It was deleted while we watched.
    DuringWatch,
}

/// The terminating namespaces.
#[derive(Default)]
pub(crate) struct TerminatingNamespaces(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    namespaces: BTreeMap<Uid, NamespaceState>,
    /// The latest beginning that was given to a namespace.
    last_begin: Option<Instant>,
    /// The schedule of the last initial list.
    initial_list: Option<Schedule>,
}

struct NamespaceState {
    schedule: Schedule,
    /// Kinds whose deletion was requested. They are listed before the next deletion request.
    delete_requested: BTreeSet<Resource>,
    /// Kinds that were empty in a list that was sent at this time.
    empty_at: BTreeMap<Resource, Instant>,
    /// The outcome of the last request for each kind.
    requests: BTreeMap<Resource, KindRequest>,
    passes: u32,
    slow: Option<SlowPasses>,
}

impl NamespaceState {
    fn new(schedule: Schedule) -> Self {
        let (delete_requested, empty_at, requests) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { schedule, delete_requested, empty_at, requests, passes: 0, slow: None }
    }
}

/// The outcome of the last request for a kind. The next pass uses this order: kinds that were late come last, and the
/// oldest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindRequest {
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
    /// It ended before it had requested all kinds that respond in time.
    Cut,
}

/// The passes that were not in time, since the last one that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlowPasses {
    passes: u32,
    /// How many of them were cut.
    pub(crate) cut: u32,
    /// The next pass must not begin earlier.
    pub(crate) paused_until: Instant,
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
        now.checked_sub(PROOF_VALID_FOR).map_or(self.ready, |oldest| oldest.max(self.ready))
    }
}

/// What is logged of a namespace whose sync is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The number of passes.
    pub(crate) passes: u32,
    /// The number of kinds that had to be deleted.
    pub(crate) kinds: usize,
}

impl TerminatingNamespaces {
    /// Records that a namespace terminates. Only the first call for a uid counts.
    pub(crate) fn observe(&self, uid: &Uid, first_observed: FirstObserved, now: Instant) {
        let mut inner = self.0.lock();
        if inner.namespaces.contains_key(uid) {
            return;
        }
        let schedule = match first_observed {
            FirstObserved::InInitialList => initial_list_schedule(inner.initial_list, now),
            FirstObserved::DuringWatch => {
                let begin = batched_begin(inner.last_begin, now);
                Schedule { begin, ready: begin + SAFETY_DELAY }
            }
        };
        match first_observed {
            FirstObserved::InInitialList => inner.initial_list = Some(schedule),
            FirstObserved::DuringWatch => inner.last_begin = Some(schedule.begin),
        }
        inner.namespaces.insert(uid.clone(), NamespaceState::new(schedule));
    }

    /// Removes a deleted namespace. True if no other remains.
    pub(crate) fn remove(&self, uid: &Uid) -> bool {
        let mut inner = self.0.lock();
        inner.namespaces.remove(uid).is_some() && inner.namespaces.is_empty()
    }

    /// True until the namespace was observed deleted. It must be checked before each deletion by name: a new namespace
    /// of the same name must not lose its objects.
    pub(crate) fn contains(&self, uid: &Uid) -> bool {
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
    pub(crate) fn slow_passes(&self, uid: &Uid) -> Option<SlowPasses> {
        self.0.lock().namespaces.get(uid)?.slow
    }

    /// True if the deletion of this kind was requested before.
    pub(crate) fn has_requested_delete(&self, uid: &Uid, kind: &Resource) -> bool {
        self.0.lock().namespaces.get(uid).is_some_and(|it| it.delete_requested.contains(kind))
    }

    /// True if a list that was sent at `since` or later showed no object of this kind.
    pub(crate) fn is_empty_since(&self, uid: &Uid, kind: &Resource, since: Instant) -> bool {
        let inner = self.0.lock();
        let empty_at = inner.namespaces.get(uid).and_then(|it| it.empty_at.get(kind));
        empty_at.is_some_and(|at| *at >= since)
    }

    /// The outcome of the last request for this kind.
    pub(crate) fn last_request(&self, uid: &Uid, kind: &Resource) -> Option<KindRequest> {
        self.0.lock().namespaces.get(uid).and_then(|it| it.requests.get(kind).copied())
    }

    /// The summary for the log.
    pub(crate) fn summary(&self, uid: &Uid) -> Summary {
        let inner = self.0.lock();
        let summary =
            inner.namespaces.get(uid).map(|it| Summary { passes: it.passes, kinds: it.delete_requested.len() });
        summary.unwrap_or_default()
    }

    /// Counts the start of a pass.
    pub(crate) fn begin_pass(&self, uid: &Uid) {
        self.update(uid, |it| it.passes += 1);
    }

    /// Records how a pass ended `now`.
    pub(crate) fn end_pass(&self, uid: &Uid, end: PassEnd, now: Instant) {
        self.update(uid, |it| {
            let (passes, cut) = it.slow.map_or((0, 0), |it| (it.passes, it.cut));
            let (passes, cut) = (passes.saturating_add(1), cut.saturating_add(u32::from(end == PassEnd::Cut)));
            it.slow =
                (end != PassEnd::InTime).then(|| SlowPasses { passes, cut, paused_until: now + pause_after(passes) });
        });
    }

    /// Records that the deletion of this kind was requested.
    pub(crate) fn record_delete_request(&self, uid: &Uid, kind: &Resource) {
        self.update(uid, |it| {
            it.delete_requested.insert(kind.clone());
        });
    }

    /// Records that a list sent at `at` showed no object of this kind.
    pub(crate) fn record_empty(&self, uid: &Uid, kind: &Resource, at: Instant) {
        self.update(uid, |it| {
            it.empty_at.insert(kind.clone(), at);
        });
    }

    /// Records the outcome of the request for this kind.
    pub(crate) fn record_request(&self, uid: &Uid, kind: &Resource, request: KindRequest) {
        self.update(uid, |it| {
            it.requests.insert(kind.clone(), request);
        });
    }

    /// Removes kinds that are not `served` any more. Otherwise short-lived custom resources would fill the memory.
    pub(crate) fn retain_kinds(&self, uid: &Uid, served: &BTreeSet<&Resource>) {
        self.update(uid, |it| {
            it.delete_requested.retain(|kind| served.contains(kind));
            it.empty_at.retain(|kind, _| served.contains(kind));
            it.requests.retain(|kind, _| served.contains(kind));
        });
    }

    fn update(&self, uid: &Uid, change: impl FnOnce(&mut NamespaceState)) {
        if let Some(terminating) = self.0.lock().namespaces.get_mut(uid) {
            change(terminating);
        }
    }
}

/// The first of many deletions begins at once. Those of the following second begin together at its end.
fn batched_begin(last_begin: Option<Instant>, now: Instant) -> Instant {
    match last_begin {
        Some(last) if last >= now => last,
        Some(last) if last + BATCH_WINDOW > now => last + BATCH_WINDOW,
        _ => now,
    }
}

/// All namespaces of an initial list begin at once and may be finalized together, each only after its delay.
fn initial_list_schedule(initial_list: Option<Schedule>, now: Instant) -> Schedule {
    match initial_list {
        Some(initial_list) if now < initial_list.begin + INITIAL_LIST_WINDOW => initial_list,
        _ => Schedule { begin: now, ready: now + INITIAL_LIST_WINDOW + SAFETY_DELAY },
    }
}

/// The pause after this many slow passes in a row. The back-off of the queue alone is not enough: if another event
/// enqueues the namespace once, its retry becomes due during that long pass and follows it at once, again and again.
fn pause_after(passes: u32) -> Duration {
    PAUSE_STEP.saturating_mul(passes).min(MAX_PAUSE)
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
    fn one_namespace_begins_at_once_and_may_be_finalized_after_the_safety_delay() {
        let (terminating, now) = (TerminatingNamespaces::default(), Clock::system().now());
        terminating.observe(&uid(1), FirstObserved::DuringWatch, now);
        assert_eq!(terminating.schedule(&uid(1)), Some(Schedule { begin: now, ready: now + 5 * SEC }));
        terminating.observe(&uid(1), FirstObserved::DuringWatch, now + SEC);
        assert_eq!(terminating.schedule(&uid(1)).unwrap().begin, now, "only the first observation counts");
        assert_eq!(terminating.schedule(&uid(2)), None);
    }

    #[test]
    fn proofs_count_from_the_begin_then_from_the_end_of_the_delay_then_for_half_a_minute() {
        let begin = Clock::system().now() + 1000 * SEC;
        let schedule = Schedule { begin, ready: begin + 5 * SEC };
        let cases = [
            ("at the start", 0, 0),
            ("too early to finalize", 4, 0),
            ("the delay is over", 5, 5),
            ("namespaces deleted together share proofs", 35, 5),
            ("proofs expire", 36, 6),
            ("a waiting namespace gets new proofs", 600, 570),
        ];
        for (name, now, want) in cases {
            assert_eq!(schedule.since(begin + now * SEC), begin + want * SEC, "{name}");
            assert_eq!(schedule.is_early(begin + now * SEC), now < 5, "{name}");
        }
    }

    #[test]
    fn many_deletions_begin_together_once_a_second() {
        let start = Clock::system().now();
        let terminating = TerminatingNamespaces::default();
        let begins: Vec<u128> = (0..300)
            .map(|number| {
                terminating.observe(&uid(number), FirstObserved::DuringWatch, start + number * 10 * MS);
                let begin = terminating.schedule(&uid(number)).unwrap().begin;
                assert!(begin >= start + number * 10 * MS, "no start before the observation");
                begin.duration_since(start).as_millis()
            })
            .collect();
        let distinct: BTreeSet<u128> = begins.into_iter().collect();
        assert_eq!(distinct.into_iter().collect::<Vec<_>>(), [0, 1000, 2000, 3000]);
        let later = start + 10 * SEC;
        terminating.observe(&uid(1000), FirstObserved::DuringWatch, later);
        assert_eq!(terminating.schedule(&uid(1000)).unwrap().begin, later);
    }

    #[test]
    fn an_initial_list_begins_at_once_with_the_delay_for_each() {
        let (terminating, start) = (TerminatingNamespaces::default(), Clock::system().now());
        for number in 0..99 {
            let seen = start + number * MS;
            terminating.observe(&uid(number), FirstObserved::InInitialList, seen);
            let schedule = terminating.schedule(&uid(number)).unwrap();
            assert_eq!(schedule.begin, start, "{number}");
            assert!(schedule.ready >= seen + SAFETY_DELAY, "{number}");
            assert_eq!(schedule.ready, start + INITIAL_LIST_WINDOW + SAFETY_DELAY, "one proof for all");
        }
        let later = start + 200 * MS;
        terminating.observe(&uid(1000), FirstObserved::InInitialList, later);
        terminating.observe(&uid(1001), FirstObserved::DuringWatch, later);
        for number in [1000, 1001] {
            assert_eq!(
                terminating.schedule(&uid(number)).unwrap().begin,
                later,
                "{number}: later deletions have their own batch"
            );
        }
    }

    #[test]
    fn a_slow_namespace_pauses_longer_each_time_until_it_is_in_time() {
        let (terminating, now) = (TerminatingNamespaces::default(), Clock::system().now());
        terminating.observe(&uid(1), FirstObserved::DuringWatch, now);
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
            terminating.end_pass(&uid(1), end, now);
            let slow = terminating.slow_passes(&uid(1)).map(|it| (it.paused_until, it.cut));
            assert_eq!(slow, want.map(|(secs, cut)| (now + secs * SEC, cut)));
        }
    }

    #[test]
    fn unserved_kinds_are_removed() {
        let (terminating, now) = (TerminatingNamespaces::default(), Clock::system().now());
        let kinds = ["pods", "widgets"].map(|it| Resource::namespaced("", "v1", it, "Any"));
        terminating.observe(&uid(1), FirstObserved::DuringWatch, now);
        for kind in &kinds {
            terminating.record_delete_request(&uid(1), kind);
            terminating.record_empty(&uid(1), kind, now);
            terminating.record_request(&uid(1), kind, KindRequest { late: true, begun: now });
        }
        terminating.retain_kinds(&uid(1), &BTreeSet::from([&kinds[0]]));
        for (kind, want) in kinds.iter().zip([true, false]) {
            let known = [
                terminating.has_requested_delete(&uid(1), kind),
                terminating.is_empty_since(&uid(1), kind, now),
                terminating.last_request(&uid(1), kind).is_some(),
            ];
            assert_eq!(known, [want; 3], "{kind}");
        }
    }

    #[test]
    fn deleted_namespaces_are_removed() {
        let (terminating, now) = (TerminatingNamespaces::default(), Clock::system().now());
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        terminating.observe(&uid(1), FirstObserved::DuringWatch, now);
        terminating.observe(&uid(2), FirstObserved::DuringWatch, now);
        terminating.record_delete_request(&uid(1), &pods);
        terminating.record_empty(&uid(1), &pods, now);
        terminating.end_pass(&uid(1), PassEnd::Slow, now);
        terminating.record_request(&uid(1), &pods, KindRequest { late: true, begun: now });
        assert!(terminating.has_requested_delete(&uid(1), &pods) && terminating.slow_passes(&uid(1)).is_some());
        assert_eq!(terminating.last_request(&uid(1), &pods), Some(KindRequest { late: true, begun: now }));
        assert!(
            terminating.is_empty_since(&uid(1), &pods, now) && !terminating.is_empty_since(&uid(1), &pods, now + MS)
        );

        assert!(!terminating.remove(&uid(1)), "another namespace remains");
        terminating.record_delete_request(&uid(1), &pods);
        assert!(!terminating.contains(&uid(1)) && !terminating.has_requested_delete(&uid(1), &pods));
        assert_eq!((terminating.slow_passes(&uid(1)), terminating.last_request(&uid(1), &pods)), (None, None));
        assert!(terminating.remove(&uid(2)));
        assert!(!terminating.remove(&uid(2)), "a second removal has no effect");
    }
}
