//! The only crate that reads the time.
//!
//! There are three clocks: wall time for people ([`Clock::wall`]), monotonic time of this process ([`Clock::now`]), and
//! time since boot, which also counts suspensions ([`Clock::boot`]). Other crates take a [`Clock`] as a value, so that
//! a simulation runs with a virtual one on tokio's paused time.

mod drift;

use std::{
    ops::{Add, Sub},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::SignedDuration;

pub use drift::Drift;
pub use jiff::Timestamp;
pub use tokio::time::Instant;

/// An instant on the clock that also counts the time while the machine is suspended (`CLOCK_BOOTTIME`).
///
/// Lease terms are measured with it: a process must detect that its lease expired during a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Milliseconds since boot, for atomics.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The inverse of [`BootInstant::as_millis`].
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for BootInstant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

/// A source of time, cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Virtual(Arc<Virtual>),
}

#[derive(Debug)]
struct Virtual {
    /// Wall time at `start`.
    epoch: Timestamp,
    start: Instant,
    /// What suspensions have added so far, in milliseconds.
    suspended: AtomicU64,
    /// What jumps have added to the wall time so far, in seconds.
    jumped: AtomicI64,
}

impl Clock {
    /// The machine's clocks.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that follows tokio's time, which tests pause and advance: `epoch` is the wall time now.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn virtual_from(epoch: Timestamp) -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the place")]
        let start = Instant::now();
        Self(Source::Virtual(Arc::new(Virtual {
            epoch,
            start,
            suspended: AtomicU64::new(0),
            jumped: AtomicI64::new(0),
        })))
    }

    /// Simulates a suspension of `pause`: wall and boot time advance, the timers of the process do not. It has no
    /// effect on the system clock.
    pub fn suspend(&self, pause: Duration) {
        if let Source::Virtual(it) = &self.0 {
            let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            it.suspended.fetch_add(millis, Ordering::SeqCst);
        }
    }

    /// Simulates that an operator sets the wall clock forward, or back with a negative number. It has no effect on the
    /// system clock.
    pub fn jump(&self, seconds: i64) {
        if let Source::Virtual(it) = &self.0 {
            it.jumped.fetch_add(seconds, Ordering::SeqCst);
        }
    }

    /// Wall time, for output that people and other programs read. It jumps when an operator sets the clock.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "this is the place")]
            Source::System => Timestamp::now(),
            Source::Virtual(it) => {
                let jumped = SignedDuration::from_secs(it.jumped.load(Ordering::SeqCst));
                it.epoch.checked_add(it.elapsed()).and_then(|at| at.checked_add(jumped)).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Monotonic time, for delays and durations. Stops while the machine is suspended.
    #[must_use]
    pub fn now(&self) -> Instant {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the place; tokio's instant is virtual where time is paused"
        )]
        Instant::now()
    }

    /// Time since boot, suspension included.
    #[must_use]
    pub fn boot(&self) -> BootInstant {
        match &self.0 {
            Source::System => {
                let it = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let secs = u64::try_from(it.tv_sec).unwrap_or(0);
                let nanos = u32::try_from(it.tv_nsec).unwrap_or(0);
                BootInstant(Duration::new(secs, nanos))
            }
            // Far from zero, so that subtracting a lease duration never saturates.
            Source::Virtual(it) => BootInstant(Duration::from_secs(1_000_000) + it.elapsed()),
        }
    }
}

impl Virtual {
    fn elapsed(&self) -> Duration {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the place; tokio's instant is virtual where time is paused"
        )]
        let run = Instant::now().saturating_duration_since(self.start);
        run + Duration::from_millis(self.suspended.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_clocks_follow_tokio_and_suspension_counts_for_boot_and_wall_only() {
        let epoch = Timestamp::from_second(1_800_000_000).unwrap();
        let clock = Clock::virtual_from(epoch);
        let (now, boot) = (clock.now(), clock.boot());
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.suspend(Duration::from_secs(20));
        assert_eq!(clock.now() - now, Duration::from_secs(3));
        assert_eq!(clock.boot().saturating_since(boot), Duration::from_secs(23));
        assert_eq!(clock.wall(), epoch + Duration::from_secs(23));
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_changes_the_wall_time_only() {
        let epoch = Timestamp::from_second(1_800_000_000).unwrap();
        let clock = Clock::virtual_from(epoch);
        let (now, boot) = (clock.now(), clock.boot());
        clock.jump(3600);
        assert_eq!(clock.wall(), epoch + Duration::from_secs(3600));
        clock.jump(-7200);
        assert_eq!(clock.wall(), epoch - Duration::from_secs(3600));
        assert_eq!((clock.now(), clock.boot()), (now, boot));
    }

    #[test]
    fn boot_instants_convert_to_milliseconds_and_never_underflow() {
        let at = BootInstant::from_millis(1_500);
        assert_eq!(at.as_millis(), 1_500);
        assert_eq!((at - Duration::from_secs(9)).as_millis(), 0);
        assert_eq!(at.saturating_since(at + Duration::from_secs(1)), Duration::ZERO);
    }
}
