//! Records our writes until a watch shows them.
//!
//! An item is often queued again before the watch shows our last write. A second pass would see the old state and write
//! again. So nothing is written for the same state of an object twice within a time limit.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use api::{Uid, Version};
use clock::Instant;
use parking_lot::Mutex;

/// If a watch has not shown a write by then, it is stalled, or the write changed nothing: the object is checked again.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The states that our writes have replaced.
#[derive(Default)]
pub(crate) struct PendingWrites(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    replaced: HashMap<Uid, (Version, Instant)>,
    /// Ordered by time.
    order: VecDeque<(Instant, Uid)>,
}

impl PendingWrites {
    /// Records that a write replaced this state of an object.
    pub(crate) fn record(&self, object: &Uid, shown: &Version, now: Instant) {
        let mut inner = self.0.lock();
        let Inner { replaced, order } = &mut *inner;
        while let Some((at, _)) = order.front()
            && now.saturating_duration_since(*at) >= MAX_WAIT
        {
            // A later write may have replaced the entry.
            if let Some((at, object)) = order.pop_front()
                && replaced.get(&object).is_some_and(|it| it.1 == at)
            {
                replaced.remove(&object);
            }
        }
        replaced.insert(object.clone(), (shown.clone(), now));
        order.push_back((now, object.clone()));
    }

    /// The longest time to wait for a newer state of an object that is shown in state `shown`; `None` if there is
    /// nothing to wait for.
    pub(crate) fn remaining_wait(&self, object: &Uid, shown: &Version, now: Instant) -> Option<Duration> {
        let inner = self.0.lock();
        let (replaced, at) = inner.replaced.get(object)?;
        let left = MAX_WAIT.saturating_sub(now.saturating_duration_since(*at));
        (replaced == shown && !left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    #[test]
    fn a_replaced_state_is_waited_out_up_to_a_limit() {
        let (acted, now) = (PendingWrites::default(), Clock::system().now());
        let (a, b) = (Uid::new("a"), Uid::new("b"));
        let (first, second) = (Version::from(1), Version::from(2));
        acted.record(&a, &first, now);
        assert_eq!(acted.remaining_wait(&a, &first, now + 10 * SEC), Some(20 * SEC));
        assert_eq!(acted.remaining_wait(&a, &second, now), None, "it is shown in another state");
        assert_eq!(acted.remaining_wait(&b, &first, now), None, "another object");
        assert_eq!(acted.remaining_wait(&a, &first, now + 30 * SEC), None);
        acted.record(&a, &second, now + 20 * SEC);
        acted.record(&b, &first, now + 40 * SEC);
        assert_eq!(
            acted.remaining_wait(&a, &second, now + 40 * SEC),
            Some(10 * SEC),
            "the first has expired, the second has not"
        );
        acted.record(&b, &second, now + 60 * SEC);
        let inner = acted.0.lock();
        assert_eq!((inner.replaced.len(), inner.order.len()), (1, 2), "expired entries are removed");
    }
}
