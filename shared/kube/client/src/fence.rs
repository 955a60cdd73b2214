use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::{BootInstant, Clock};
use parking_lot::Mutex;

/// No write starts when less than this remains of the term, because its bytes need time to be sent.
const MIN_REMAINING: Duration = Duration::from_millis(300);

/// The margin between the end of a server-side timeout and the end of the lease.
const LEASE_MARGIN: Duration = Duration::from_secs(1);

/// The server starts to count a timeout when the request arrives, and storing also takes time. This is half of
/// [`LEASE_MARGIN`]; a successor uses the other half for its proof of the caches.
const DELAY: Duration = Duration::from_millis(500);

/// The shortest server-side timeout. Its parameter has whole seconds, and 0 means the server's default.
pub(crate) const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The period in which this process may write. Controllers and their recorders share it.
///
/// It is valid for the renew deadline after the last successful renewal was *sent*, on the boot-time clock, which
/// includes suspension. A term that is over never becomes valid again. Without leader election it has no end.
#[derive(Clone)]
pub struct Term {
    inner: Arc<Inner>,
    /// Set for a [part](Term::part) of a term, and true when this part was ended before the term.
    part_ended: Option<Arc<AtomicBool>>,
}

struct Inner {
    clock: Clock,
    phase: Mutex<Phase>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    NotBegun,
    Endless,
    Renewed { sent: BootInstant, limits: TermLimits },
    Over,
}

/// How long a term lasts after one renewal.
#[derive(Debug, Clone, Copy)]
pub struct TermLimits {
    /// The leader stops writing when this time has passed after it sent the last renewal.
    pub renew_deadline: Duration,
    /// A standby may acquire the lease when this time has passed after it observed the last renewal.
    pub lease_duration: Duration,
}

impl TermLimits {
    /// How long after a renewal was sent the creates of its leader may still be stored. The server may store them after
    /// the end of the term, see [`Term::server_timeout`].
    ///
    /// This does not apply to a create that was sent while timeouts are paused, see `CreateTimeouts`. Such a create
    /// ends with the server's own limit, one minute by default.
    #[must_use]
    pub fn last_write(&self) -> Duration {
        // The last create may be sent until the end of the term, and its timeout is at least one second.
        let of_the_last_create = self.renew_deadline + MIN_TIMEOUT;
        self.lease_duration.saturating_sub(LEASE_MARGIN).max(of_the_last_create) + DELAY
    }
}

impl Term {
    /// A term that has not begun. Writes are refused.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let inner = Arc::new(Inner { clock, phase: Mutex::new(Phase::NotBegun) });
        Self { inner, part_ended: None }
    }

    /// The same term for one controller. It can be ended earlier, so that this controller writes nothing more while the
    /// others go on.
    #[must_use]
    pub fn part(&self) -> Self {
        Self { inner: self.inner.clone(), part_ended: Some(Arc::default()) }
    }

    /// A term without end, for a manager without leader election.
    #[must_use]
    pub fn endless(clock: Clock) -> Self {
        let term = Self::new(clock);
        *term.inner.phase.lock() = Phase::Endless;
        term
    }

    /// Begins or extends the term after a write of the Lease that was sent at `sent` has succeeded. Returns false and
    /// changes nothing if the term is over, or if it lapsed before the response arrived.
    pub fn extend(&self, sent: BootInstant, limits: TermLimits) -> bool {
        let now = self.inner.clock.boot();
        let mut phase = self.inner.phase.lock();
        let lapsed = match *phase {
            Phase::Renewed { sent, limits } => now >= sent + limits.renew_deadline,
            Phase::Over => true,
            Phase::NotBegun | Phase::Endless => false,
        };
        if lapsed || now >= sent + limits.renew_deadline {
            *phase = Phase::Over;
            return false;
        }
        *phase = Phase::Renewed { sent, limits };
        true
    }

    /// Ends the term permanently; a part of a term ends alone.
    pub fn end(&self) {
        match &self.part_ended {
            Some(ended) => ended.store(true, Ordering::Release),
            None => *self.inner.phase.lock() = Phase::Over,
        }
    }

    /// `Over` for a part that was ended.
    fn phase(&self) -> Phase {
        let has_ended = self.part_ended.as_ref().is_some_and(|it| it.load(Ordering::Acquire));
        if has_ended { Phase::Over } else { *self.inner.phase.lock() }
    }

    /// The time that remains: zero before the beginning and after the end, `None` for a term without end.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match self.phase() {
            Phase::Endless => None,
            Phase::NotBegun | Phase::Over => Some(Duration::ZERO),
            Phase::Renewed { sent, limits } => {
                Some((sent + limits.renew_deadline).saturating_since(self.inner.clock.boot()))
            }
        }
    }

    /// True while a write that has started may still be sent.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.remaining().is_none_or(|remaining| !remaining.is_zero())
    }

    /// True while a write may start.
    #[must_use]
    pub fn may_start_write(&self) -> bool {
        self.remaining().is_none_or(|remaining| remaining >= MIN_REMAINING)
    }

    /// Until when creates that were sent in this term so far may still be stored, see [`TermLimits::last_write`]. `None`
    /// when this is not known: the term has no end or is over.
    #[must_use]
    pub fn last_write(&self) -> Option<BootInstant> {
        match self.phase() {
            Phase::Renewed { sent, limits } => Some(sent + limits.last_write()),
            Phase::Endless | Phase::NotBegun | Phase::Over => None,
        }
    }

    /// The server-side timeout of a create: the remaining time of the *lease* minus one second, so that the server ends
    /// the request before another process can be the leader. `None` for a term without end.
    ///
    /// The remaining time of the term would be too short: with an unreachable webhook of 10 s and
    /// `failurePolicy: Ignore` every create would fail.
    #[must_use]
    pub fn server_timeout(&self) -> Option<Duration> {
        match self.phase() {
            Phase::Endless => None,
            Phase::NotBegun | Phase::Over => Some(Duration::ZERO),
            Phase::Renewed { sent, limits } => {
                let lease_end = sent + limits.lease_duration;
                Some((lease_end - LEASE_MARGIN).saturating_since(self.inner.clock.boot()))
            }
        }
    }
}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Term").field(&self.phase()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TermLimits =
        TermLimits { renew_deadline: Duration::from_secs(10), lease_duration: Duration::from_secs(15) };

    fn term() -> (Clock, Term) {
        let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
        (clock.clone(), Term::new(clock))
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_before_the_term_begins_or_in_its_last_300_ms() {
        let (clock, term) = term();
        assert!(!term.may_start_write() && !term.is_valid());
        assert!(term.extend(clock.boot(), LIMITS));
        assert!(term.may_start_write());
        tokio::time::advance(Duration::from_millis(9_701)).await;
        assert!(term.is_valid() && !term.may_start_write());
        tokio::time::advance(Duration::from_millis(299)).await;
        assert!(!term.is_valid());
    }

    #[tokio::test(start_paused = true)]
    async fn term_counts_from_when_the_renewal_was_sent() {
        let (clock, term) = term();
        let sent = clock.boot();
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(term.extend(sent, LIMITS));
        assert_eq!(term.remaining(), Some(Duration::from_secs(6)));
        assert_eq!(term.server_timeout(), Some(Duration::from_secs(10)));
    }

    #[test]
    fn last_write_is_bounded_by_the_lease_and_by_the_last_bytes() {
        let cases = [
            ("the defaults: a second before the lease ends", 10_000, 15_000, 14_500),
            ("the last bytes are sent late in the lease", 10_000, 11_000, 11_500),
            ("both end together", 10_000, 12_000, 11_500),
            ("a lease shorter than its margin", 400, 500, 1_900),
        ];
        for (name, renew_deadline, lease_duration, want) in cases {
            let [renew_deadline, lease_duration, want] =
                [renew_deadline, lease_duration, want].map(Duration::from_millis);
            assert_eq!(TermLimits { renew_deadline, lease_duration }.last_write(), want, "{name}");
        }
    }

    /// Each create uses its whole timeout and is delayed by half a second.
    #[tokio::test(start_paused = true)]
    async fn no_create_is_stored_after_the_last_write() {
        for (renew_deadline, lease_duration) in [(10_000, 15_000), (10_000, 11_000), (2_000, 4_000), (1_300, 1_500)] {
            let [renew_deadline, lease_duration] = [renew_deadline, lease_duration].map(Duration::from_millis);
            let limits = TermLimits { renew_deadline, lease_duration };
            let (clock, term) = term();
            let sent = clock.boot();
            assert!(term.extend(sent, limits));
            while term.may_start_write() {
                let timeout = term.server_timeout().unwrap().max(MIN_TIMEOUT);
                let arrives = clock.boot() + Duration::from_millis(500);
                let stored = (arrives + timeout).saturating_since(sent);
                assert!(stored <= limits.last_write(), "{limits:?}: {stored:?}");
                tokio::time::advance(Duration::from_millis(50)).await;
            }
            // A create that was allowed just now may be sent until the end of the term.
            while term.is_valid() {
                let stored = (clock.boot() + MIN_TIMEOUT).saturating_since(sent);
                assert!(stored <= limits.last_write(), "{limits:?}: {stored:?}");
                tokio::time::advance(Duration::from_millis(50)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lapsed_term_is_never_valid_again() {
        let (clock, term) = term();
        assert!(term.extend(clock.boot(), LIMITS));
        clock.suspend(Duration::from_secs(20));
        assert!(!term.is_valid());
        assert!(!term.extend(clock.boot(), LIMITS), "a late response does not extend a lapsed term");
        assert!(!term.may_start_write());
    }

    #[tokio::test(start_paused = true)]
    async fn part_of_a_term_ends_alone_or_with_the_term() {
        let (clock, term) = term();
        let (first, second) = (term.part(), term.part());
        assert!(!first.may_start_write(), "the term has not begun");
        assert!(term.extend(clock.boot(), LIMITS));
        assert!(first.may_start_write() && first.remaining() == term.remaining());
        first.end();
        assert!(!first.may_start_write() && !first.is_valid() && first.server_timeout() == Some(Duration::ZERO));
        assert!(term.extend(clock.boot(), LIMITS));
        assert!(!first.is_valid() && second.may_start_write() && term.may_start_write());
        term.end();
        assert!(!second.is_valid());
    }

    #[tokio::test(start_paused = true)]
    async fn endless_term_has_no_limits_until_it_is_ended() {
        let term = Term::endless(Clock::virtual_from(clock::Timestamp::UNIX_EPOCH));
        assert!(term.may_start_write() && term.server_timeout().is_none() && term.remaining().is_none());
        term.end();
        assert!(!term.may_start_write() && !term.is_valid());
    }
}
