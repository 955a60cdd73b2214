use std::time::Duration;

/// After a write, changes of counters are collected for this time.
const BATCH: Duration = Duration::from_millis(250);

/// How a new status differs from the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusChange {
    /// Not at all.
    None,
    /// In counters that change in quick succession. No user waits for them.
    Counters,
    /// In something for which users wait: the end of a change, a condition, an observed generation.
    Urgent,
}

/// When a new status must be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusWrite {
    /// It is stored already.
    Never,
    /// At once.
    Now,
    /// After this time, together with further changes.
    After(Duration),
}

impl StatusChange {
    /// When to store the new status. `since_last` is the time since this process has last stored it.
    #[must_use]
    pub fn write(self, since_last: Option<Duration>) -> StatusWrite {
        let left = since_last.and_then(|it| BATCH.checked_sub(it)).filter(|it| !it.is_zero());
        match (self, left) {
            (Self::None, _) => StatusWrite::Never,
            (Self::Counters, Some(left)) => StatusWrite::After(left),
            _ => StatusWrite::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_collected_and_nothing_else_waits() {
        let millis = Duration::from_millis;
        let write = |change: StatusChange, since: u64| change.write(Some(millis(since)));
        assert_eq!(write(StatusChange::Counters, 50), StatusWrite::After(millis(200)));
        assert_eq!(write(StatusChange::Counters, 250), StatusWrite::Now);
        assert_eq!(StatusChange::Counters.write(None), StatusWrite::Now, "the first write of this process");
        assert_eq!(write(StatusChange::Urgent, 50), StatusWrite::Now);
        assert_eq!(write(StatusChange::None, 50), StatusWrite::Never);
    }
}
