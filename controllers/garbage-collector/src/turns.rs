//! Turns to ask for owners of one type, and to wait for whoever asks: a type that does not answer keeps its share of
//! the workers and no more.
//!
//! As long as a type answers nobody notices: whoever finds all turns taken waits a moment for one. Where they have been
//! taken for longer than that he is put off, and his worker does something else.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::Resource;
use clock::{Clock, Instant};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One type has this part of the workers.
const SHARE: usize = 4;
/// A type whose first turn has been taken for so long does not answer for now. Calls that wait for our own budget do.
const SOON: Duration = Duration::from_secs(1);
/// Whoever is put off comes again after this time, and after those before him.
const PAUSE: Duration = Duration::from_secs(1);
/// So far apart: looking whether there is a turn must not cost more than what it is for.
const APART: Duration = Duration::from_millis(5);
/// Beyond so many types, those of whom nobody asks are cleared away.
const TYPES: usize = 64;

/// The turns of all types.
pub(crate) struct Turns {
    of_each: usize,
    clock: Clock,
    types: Mutex<BTreeMap<Resource, Arc<Type>>>,
}

struct Type {
    free: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when each turn is taken.
    taken: Vec<Instant>,
    /// When the last of those that were put off comes again.
    last: Option<Instant>,
}

/// Leave to ask, as long as it is held.
pub(crate) struct Turn {
    of: Arc<Type>,
    since: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Turns {
    /// With so many workers.
    pub(crate) fn new(workers: usize, clock: Clock) -> Self {
        Self { of_each: (workers / SHARE).max(1), clock, types: Mutex::default() }
    }

    /// A turn to ask for objects of this type, or how long whoever wants it is put off.
    pub(crate) async fn take(&self, of: &Resource) -> Result<Turn, Duration> {
        let of = self.of(of);
        let first = of.state.lock().taken.iter().min().copied();
        let soon = first.unwrap_or_else(|| self.clock.now()) + SOON;
        // Where that is over this looks once. Nobody closes it.
        let permit = tokio::time::timeout_at(soon, of.free.clone().acquire_owned()).await.ok().and_then(Result::ok);
        let now = self.clock.now();
        let mut state = of.state.lock();
        let Some(permit) = permit else { return Err(state.put_off(now)) };
        state.taken.push(now);
        drop(state);
        Ok(Turn { of, since: now, _permit: permit })
    }

    fn of(&self, of: &Resource) -> Arc<Type> {
        let mut types = self.types.lock();
        if types.len() > TYPES {
            types.retain(|_, it| Arc::strong_count(it) > 1);
        }
        let new = || Arc::new(Type { free: Arc::new(Semaphore::new(self.of_each)), state: Mutex::default() });
        types.entry(of.clone()).or_insert_with(new).clone()
    }
}

impl State {
    fn put_off(&mut self, now: Instant) -> Duration {
        let soonest = now + PAUSE;
        let next = self.last.map_or(soonest, |it| soonest.max(it + APART));
        self.last = Some(next);
        next.saturating_duration_since(now)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let taken = &mut self.of.state.lock().taken;
        if let Some(at) = taken.iter().position(|it| *it == self.since) {
            taken.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn widgets() -> Resource {
        Resource::namespaced("example.com", "v1", "widgets", "Widget")
    }

    fn turns(workers: usize) -> (Turns, Clock) {
        let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
        (Turns::new(workers, clock.clone()), clock)
    }

    #[tokio::test(start_paused = true)]
    async fn a_type_has_a_quarter_of_the_workers_and_at_least_one() {
        for (workers, of_each) in [(20, 5), (7, 1), (1, 1)] {
            let (turns, _) = turns(workers);
            let mut taken = Vec::new();
            while let Ok(turn) = turns.take(&widgets()).await {
                taken.push(turn);
            }
            assert_eq!(taken.len(), of_each, "{workers}");
            assert!(turns.take(&Resource::namespaced("", "v1", "pods", "Pod")).await.is_ok(), "others have their own");
            taken.pop();
            assert!(turns.take(&widgets()).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_finds_none_waits_for_a_type_that_answers() {
        let (turns, clock) = turns(4);
        let turn = turns.take(&widgets()).await.ok();
        let (came, widgets) = (clock.now(), widgets());
        let (next, ()) = tokio::join!(turns.take(&widgets), async {
            tokio::time::sleep(999 * MS).await;
            drop(turn);
        });
        assert!(next.is_ok());
        assert_eq!(clock.now() - came, 999 * MS);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_finds_none_is_put_off_one_after_the_other_where_a_type_does_not_answer() {
        let (turns, clock) = turns(4);
        let came = clock.now();
        let _turn = turns.take(&widgets()).await.ok();
        assert_eq!(turns.take(&widgets()).await.err(), Some(1_000 * MS), "after a moment, as it may answer");
        assert_eq!(clock.now() - came, 1_000 * MS);
        for late in 1..4 {
            assert_eq!(turns.take(&widgets()).await.err(), Some(1_000 * MS + late * 5 * MS));
        }
        assert_eq!(clock.now() - came, 1_000 * MS, "at once, as it did not");
        tokio::time::sleep(5_000 * MS).await;
        assert_eq!(turns.take(&widgets()).await.err(), Some(1_000 * MS), "nobody is before him");
    }

    #[tokio::test(start_paused = true)]
    async fn types_of_whom_nobody_asks_leave_no_trace() {
        let (turns, _) = turns(20);
        for number in 0..500 {
            let of = Resource::namespaced("example.com", "v1", &format!("r{number}"), "R");
            drop(turns.take(&of).await.ok());
        }
        assert!(turns.types.lock().len() <= TYPES + 1);
    }
}
