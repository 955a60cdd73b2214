//! Values over time: a process may use any of the last minutes.

use std::time::Duration;

use clock::Instant;

/// More than the maximum staleness of a controller: a frozen watch, a hung call, and an expiring Lease.
pub(crate) const LAG: Duration = Duration::from_secs(200);

/// The values of something, each with the time since which it is set.
#[derive(Clone)]
pub(crate) struct History<T>(Vec<(Instant, T)>);

impl<T> Default for History<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> History<T> {
    pub(crate) fn record(&mut self, value: T, now: Instant) {
        if self.0.last().is_none_or(|it| it.1 != value) {
            self.0.push((now, value));
        }
    }

    pub(crate) fn last(&self) -> Option<&T> {
        self.0.last().map(|it| &it.1)
    }

    /// The values that a process may use now.
    pub(crate) fn recent(&self, now: Instant) -> impl Iterator<Item = &T> {
        let ends = self.0.iter().skip(1).map(|it| Some(it.0)).chain([None]);
        let all = self.0.iter().zip(ends);
        all.filter(move |(_, end)| end.is_none_or(|end| end + LAG >= now)).map(|((_, value), _)| value)
    }
}

/// Whether a process may not know yet what happened then.
pub(crate) fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|it| it + LAG >= now)
}
