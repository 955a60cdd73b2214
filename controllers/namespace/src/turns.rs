//! Limits how many slow namespaces are synced at a time, in the order of their requests.

use std::time::Duration;

use api::Uid;
use clock::Instant;
use parking_lot::Mutex;

/// The retry interval of a waiting namespace. Of five turns of 75 s, one ends in each such interval.
pub(crate) const TURN: Duration = Duration::from_secs(15);
/// A waiting namespace that has not asked for this long is removed: it is deleted, or it was synced without a turn.
const ABSENT: Duration = Duration::from_secs(40);

/// The free turns, and the namespaces that wait for one.
pub(crate) struct Turns(Mutex<Inner>);

struct Inner {
    free: usize,
    line: Vec<Waiting>,
}

struct Waiting {
    uid: Uid,
    asked: Instant,
}

/// A turn. Dropping it frees the turn.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Allows `count` turns at a time.
    pub(crate) fn new(count: usize) -> Self {
        Self(Mutex::new(Inner { free: count, line: Vec::new() }))
    }

    /// Returns a turn, unless namespaces that wait longer come first. Then `uid` is added to the waiting list, and
    /// keeps its position if it asks again every [`TURN`].
    pub(crate) fn take(&self, uid: &Uid, now: Instant) -> Option<Turn<'_>> {
        let mut inner = self.0.lock();
        let Inner { free, line } = &mut *inner;
        line.retain(|it| it.uid == *uid || now.saturating_duration_since(it.asked) < ABSENT);
        let place = line.iter().position(|it| it.uid == *uid);
        if place.unwrap_or(line.len()) < *free {
            line.retain(|it| it.uid != *uid);
            *free -= 1;
            return Some(Turn(self));
        }
        match place.and_then(|it| line.get_mut(it)) {
            Some(waiting) => waiting.asked = now,
            None => line.push(Waiting { uid: uid.clone(), asked: now }),
        }
        None
    }
}

impl Drop for Turn<'_> {
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
    fn who_waits_longest_is_next() {
        let (turns, now) = (Turns::new(2), Clock::system().now());
        let first = turns.take(&uid(1), now);
        let second = turns.take(&uid(2), now);
        assert!(first.is_some() && second.is_some());
        assert!(turns.take(&uid(3), now).is_none());
        assert!(turns.take(&uid(4), now).is_none());
        drop(first);
        assert!(turns.take(&uid(1), now).is_none(), "who had a turn stands behind those who wait");
        assert!(turns.take(&uid(4), now).is_none(), "nor does anybody overtake");
        let third = turns.take(&uid(3), now + TURN);
        assert!(third.is_some());
        drop(second);
        assert!(turns.take(&uid(1), now + TURN).is_none());
        assert!(turns.take(&uid(4), now + TURN).is_some());
    }

    #[test]
    fn who_does_not_ask_any_more_keeps_nobody_waiting() {
        let (turns, now) = (Turns::new(1), Clock::system().now());
        let turn = turns.take(&uid(1), now);
        assert!(turns.take(&uid(2), now).is_none());
        assert!(turns.take(&uid(3), now + 30 * SEC).is_none());
        drop(turn);
        assert!(turns.take(&uid(3), now + 39 * SEC).is_none(), "it is the turn of the one before");
        assert!(turns.take(&uid(3), now + 40 * SEC).is_some());
        assert!(turns.0.lock().line.is_empty());
    }
}
