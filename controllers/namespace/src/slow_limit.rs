//! Limits how many slow namespaces are synced at a time, in the order of their requests.

use std::time::Duration;

use api::Uid;
use clock::Instant;
use parking_lot::Mutex;

/// The retry interval of a waiting namespace. Of five passes of 75 s, one ends in each such interval.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(15);
/// A waiting namespace without a request for this long is removed: it is deleted, or it was synced without a permit.
const EXPIRE_AFTER: Duration = Duration::from_secs(40);

/// The number of free permits, and the namespaces that wait for one.
pub(crate) struct SlowLimit(Mutex<Inner>);

struct Inner {
    free: usize,
    queue: Vec<Waiter>,
}

struct Waiter {
    uid: Uid,
    last_request: Instant,
}

/// A permit for one slow pass. Dropping it frees the permit.
pub(crate) struct SlowPermit<'a>(&'a SlowLimit);

impl SlowLimit {
    /// Allows `count` slow passes at a time.
    pub(crate) fn new(count: usize) -> Self {
        Self(Mutex::new(Inner { free: count, queue: Vec::new() }))
    }

    /// Returns a permit, unless namespaces that wait longer come first. Then `uid` is added to the waiting list, and
    /// keeps its position if it requests again every [`RETRY_AFTER`].
    pub(crate) fn try_acquire(&self, uid: &Uid, now: Instant) -> Option<SlowPermit<'_>> {
        let mut inner = self.0.lock();
        let Inner { free, queue } = &mut *inner;
        queue.retain(|it| it.uid == *uid || now.saturating_duration_since(it.last_request) < EXPIRE_AFTER);
        let place = queue.iter().position(|it| it.uid == *uid);
        if place.unwrap_or(queue.len()) < *free {
            queue.retain(|it| it.uid != *uid);
            *free -= 1;
            return Some(SlowPermit(self));
        }
        match place.and_then(|it| queue.get_mut(it)) {
            Some(waiting) => waiting.last_request = now,
            None => queue.push(Waiter { uid: uid.clone(), last_request: now }),
        }
        None
    }
}

impl Drop for SlowPermit<'_> {
    fn drop(&mut self) {
        self.0.0.lock().free += 1;
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn uid(number: u32) -> Uid {
        Uid::new(&format!("uid-{number}"))
    }

    #[test]
    fn the_longest_waiting_namespace_is_next() {
        let (limit, now) = (SlowLimit::new(2), Clock::system().now());
        let first = limit.try_acquire(&uid(1), now);
        let second = limit.try_acquire(&uid(2), now);
        assert!(first.is_some() && second.is_some());
        assert!(limit.try_acquire(&uid(3), now).is_none());
        assert!(limit.try_acquire(&uid(4), now).is_none());
        drop(first);
        assert!(limit.try_acquire(&uid(1), now).is_none(), "a key that ran waits behind the others");
        assert!(limit.try_acquire(&uid(4), now).is_none(), "a later key does not overtake");
        let third = limit.try_acquire(&uid(3), now + RETRY_AFTER);
        assert!(third.is_some());
        drop(second);
        assert!(limit.try_acquire(&uid(1), now + RETRY_AFTER).is_none());
        assert!(limit.try_acquire(&uid(4), now + RETRY_AFTER).is_some());
    }

    #[test]
    fn an_expired_waiting_namespace_blocks_no_other() {
        let (limit, now) = (SlowLimit::new(1), Clock::system().now());
        let permit = limit.try_acquire(&uid(1), now);
        assert!(limit.try_acquire(&uid(2), now).is_none());
        assert!(limit.try_acquire(&uid(3), now + 30 * SEC).is_none());
        drop(permit);
        assert!(limit.try_acquire(&uid(3), now + 39 * SEC).is_none(), "the key before it is next");
        assert!(limit.try_acquire(&uid(3), now + 40 * SEC).is_some());
        assert!(limit.0.lock().queue.is_empty());
    }
}
