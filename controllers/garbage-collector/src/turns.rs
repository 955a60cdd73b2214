//! Turns to ask for owners of one type, and to wait for whoever asks: types that do not answer keep their share of the
//! workers and no more.
//!
//! As long as a type answers nobody notices: whoever finds all turns taken waits a moment for one. Where they have been
//! taken for longer than that he is put off, and his worker does something else.
//!
//! Several types may fall silent together, so there is a second bound, over all of them: whoever has had no answer for a
//! moment waits on only if he is one of so many, and others give up. From then on the type is known to be slow, and is asked
//! only by those that may wait, until it has answered in time again. The rest of the workers never waits for longer than that
//! moment, however many types there are.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use api::Resource;
use clock::{Clock, Instant};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One type has this part of the workers.
const SHARE: usize = 4;
/// All types that are slow have this part of the workers together.
const SLOW_SHARE: usize = 2;
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
    /// Leave to wait for longer than a moment.
    slow: Arc<Semaphore>,
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
    /// The last turn that ended or gave up had no answer in time.
    is_slow: bool,
    /// When the last of those that were put off comes again.
    last: Option<Instant>,
}

/// Leave to ask, as long as it is held.
struct Turn {
    of: Arc<Type>,
    since: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Turns {
    /// With so many workers.
    pub(crate) fn new(workers: usize, clock: Clock) -> Self {
        let slow = Arc::new(Semaphore::new((workers / SLOW_SHARE).max(1)));
        Self { of_each: (workers / SHARE).max(1), slow, clock, types: Mutex::default() }
    }

    /// What `answer` brings, in a turn to ask for objects of this type; or how long whoever wants it is put off. It may be
    /// given up half way.
    pub(crate) async fn ask<T>(&self, of: &Resource, answer: impl Future<Output = T>) -> Result<T, Duration> {
        let of = self.of(of);
        let mut leave = self.leave_for(&of)?;
        let turn = self.take(of).await?;
        if leave.is_none() {
            // It may have turned out to be slow meanwhile.
            leave = self.leave_for(&turn.of)?;
        }
        let mut answer = pin!(answer);
        if leave.is_none() {
            if let Ok(answer) = tokio::time::timeout(SOON, answer.as_mut()).await {
                return Ok(answer);
            }
            turn.of.state.lock().is_slow = true;
            leave = Some(self.may_wait(&turn.of)?);
        }
        let answer = answer.await;
        let took = self.clock.now().saturating_duration_since(turn.since);
        turn.of.state.lock().is_slow = took > SOON;
        drop(leave);
        Ok(answer)
    }

    fn leave_for(&self, of: &Type) -> Result<Option<OwnedSemaphorePermit>, Duration> {
        let is_slow = of.state.lock().is_slow;
        if is_slow { self.may_wait(of).map(Some) } else { Ok(None) }
    }

    fn may_wait(&self, of: &Type) -> Result<OwnedSemaphorePermit, Duration> {
        self.slow.clone().try_acquire_owned().map_err(|_| of.state.lock().put_off(self.clock.now()))
    }

    async fn take(&self, of: Arc<Type>) -> Result<Turn, Duration> {
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

    fn pods() -> Resource {
        Resource::namespaced("", "v1", "pods", "Pod")
    }

    async fn take(turns: &Turns, of: &Resource) -> Result<Turn, Duration> {
        turns.take(turns.of(of)).await
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
            while let Ok(turn) = take(&turns, &widgets()).await {
                taken.push(turn);
            }
            assert_eq!(taken.len(), of_each, "{workers}");
            assert!(take(&turns, &pods()).await.is_ok(), "others have their own");
            taken.pop();
            assert!(take(&turns, &widgets()).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_finds_none_waits_for_a_type_that_answers() {
        let (turns, clock) = turns(4);
        let turn = take(&turns, &widgets()).await.ok();
        let (came, widgets) = (clock.now(), widgets());
        let (next, ()) = tokio::join!(take(&turns, &widgets), async {
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
        let _turn = take(&turns, &widgets()).await.ok();
        assert_eq!(take(&turns, &widgets()).await.err(), Some(1_000 * MS), "after a moment, as it may answer");
        assert_eq!(clock.now() - came, 1_000 * MS);
        for late in 1..4 {
            assert_eq!(take(&turns, &widgets()).await.err(), Some(1_000 * MS + late * 5 * MS));
        }
        assert_eq!(clock.now() - came, 1_000 * MS, "at once, as it did not");
        tokio::time::sleep(5_000 * MS).await;
        assert_eq!(take(&turns, &widgets()).await.err(), Some(1_000 * MS), "nobody is before him");
    }

    /// So many ask for each of so many types, of which none ever answers. How many were put off.
    async fn silence(turns: &Arc<Turns>, types: u32, of_each: u32) -> (usize, Vec<tokio::task::JoinHandle<()>>) {
        let put_off = Arc::new(Mutex::new(0));
        let mut asking = Vec::new();
        for number in 0..types * of_each {
            let of = Resource::namespaced("example.com", "v1", &format!("r{}", number % types), "R");
            let (turns, put_off) = (turns.clone(), put_off.clone());
            asking.push(tokio::spawn(async move {
                if turns.ask(&of, std::future::pending::<()>()).await.is_err() {
                    *put_off.lock() += 1;
                }
            }));
        }
        tokio::time::sleep(SOON + MS).await;
        let count = *put_off.lock();
        (count, asking)
    }

    #[tokio::test(start_paused = true)]
    async fn types_that_fall_silent_together_have_half_of_the_workers_and_at_least_one() {
        for (workers, types, of_each, waiting) in
            [(20, 1, 5, 5), (20, 2, 5, 10), (20, 4, 5, 10), (20, 20, 1, 10), (1, 1, 1, 1)]
        {
            let (turns, clock) = turns(workers);
            let turns = Arc::new(turns);
            let (put_off, asking) = silence(&turns, types, of_each).await;
            let all = usize::try_from(types * of_each).unwrap();
            assert_eq!(all - put_off, waiting, "{workers} workers, {types} types");
            // Whoever comes for one of them now is not heard at all; others are.
            let came = clock.now();
            if waiting == (workers / 2).max(1) {
                let of = Resource::namespaced("example.com", "v1", "r0", "R");
                assert!(turns.ask(&of, std::future::pending::<()>()).await.is_err());
            }
            assert_eq!(turns.ask(&pods(), std::future::ready(7)).await, Ok(7));
            assert_eq!(clock.now(), came);
            asking.iter().for_each(|it| it.abort());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_type_is_asked_again_as_there_is_room_and_is_as_all_when_it_answers_in_time() {
        let (turns, clock) = turns(20);
        let turns = Arc::new(turns);
        let (_, asking) = silence(&turns, 4, 5).await;
        let slow: Vec<Resource> =
            (0..4).map(|it| Resource::namespaced("example.com", "v1", &format!("r{it}"), "R")).collect();
        let late = async || tokio::time::sleep(2 * SOON).await;
        let last = &slow[3];
        assert!(turns.ask(last, late()).await.is_err());
        asking.iter().for_each(|it| it.abort());
        tokio::task::yield_now().await;
        // There is room: it gets its answer, late as it is.
        assert_eq!((turns.ask(last, late()).await, turns.of(last).state.lock().is_slow), (Ok(()), true));
        let (_, asking) = silence(&turns, 2, 5).await;
        assert!(turns.ask(last, late()).await.is_err(), "the others took the room");
        asking.iter().for_each(|it| it.abort());
        tokio::task::yield_now().await;
        assert_eq!((turns.ask(last, async {}).await, turns.of(last).state.lock().is_slow), (Ok(()), false));
        let _asking = silence(&turns, 2, 5).await;
        let came = clock.now();
        assert!(turns.ask(last, late()).await.is_err());
        assert_eq!(clock.now() - came, SOON, "it was asked, and given up");
    }

    #[tokio::test(start_paused = true)]
    async fn types_of_whom_nobody_asks_leave_no_trace() {
        let (turns, _) = turns(20);
        for number in 0..500 {
            let of = Resource::namespaced("example.com", "v1", &format!("r{number}"), "R");
            drop(take(&turns, &of).await.ok());
        }
        assert!(turns.types.lock().len() <= TYPES + 1);
    }
}
