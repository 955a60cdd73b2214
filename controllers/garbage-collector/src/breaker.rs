//! `--gc-max-deletes-per-minute`: never more deletes within any minute, whoever asks for them. A machine without tasks.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use clock::Instant;

use crate::graph::{Coordinates, Item};

/// What the bound is over, sliding.
const MINUTE: Duration = Duration::from_secs(60);
/// Whoever waits looks again after this, however many are ahead: they may have stepped aside.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// So many of those that wait are named in the log.
const EXAMPLES: usize = 3;

/// Counts deletes and holds back those that are too many.
///
/// A delete counts from before it is sent until a minute after its answer: whenever within that time the server did it, no
/// minute of the server's sees too many.
pub(crate) struct Breaker {
    /// `None`: no bound.
    limit: Option<usize>,
    in_flight: usize,
    /// When those that are answered were.
    answered: VecDeque<Instant>,
    /// Each waits for a slot of its own, by its number in the line.
    held: HashMap<Item, u64>,
    /// The numbers of those that come for their slot. Who could not be judged when he came is not among them until he comes
    /// again: others go before him.
    line: BTreeSet<u64>,
    numbers: u64,
    /// Some of them by name, since the last report.
    examples: Vec<String>,
    reported: Option<Instant>,
}

/// What people are told, once a minute while something is held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) held: usize,
    pub(crate) examples: Vec<String>,
}

impl Breaker {
    /// With so many deletes a minute at most; zero: no bound.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: usize::try_from(limit).ok().filter(|it| *it > 0),
            in_flight: 0,
            answered: VecDeque::new(),
            held: HashMap::new(),
            line: BTreeSet::new(),
            numbers: 0,
            examples: Vec::new(),
            reported: None,
        }
    }

    /// Lets this item be deleted now, to be followed by [`Breaker::answered`], or says when to ask again. Those that were
    /// held go first, and one that comes before its slot is free keeps its place.
    pub(crate) fn take(&mut self, item: &Item, named: &Coordinates, now: Instant) -> Result<(), Duration> {
        let Some(limit) = self.limit else { return Ok(()) };
        while self.answered.front().is_some_and(|it| *it + MINUTE <= now) {
            self.answered.pop_front();
        }
        let free = limit.saturating_sub(self.in_flight + self.answered.len());
        let number = self.held.get(item).copied();
        self.line.extend(number);
        let others_first = if number.is_some() { 0 } else { self.line.len() };
        if free > others_first {
            self.forget(item);
            self.in_flight += 1;
            return Ok(());
        }
        let ahead = match number {
            Some(number) => self.line.range(..number).count(),
            None => self.line_up(item, named),
        };
        Err(self.wait(limit, ahead.saturating_sub(free), now))
    }

    /// A delete that was taken has had its answer.
    pub(crate) fn answered(&mut self, now: Instant) {
        if self.limit.is_some() {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.answered.push_back(now);
        }
    }

    /// A delete that was taken was not done, by the server's own word.
    pub(crate) fn not_done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// This item does not come for its slot now. It keeps its place in the line for when it does.
    pub(crate) fn steps_aside(&mut self, item: &Item) {
        if let Some(number) = self.held.get(item) {
            self.line.remove(number);
        }
    }

    /// This item is not to be deleted any more, or not now.
    pub(crate) fn forget(&mut self, item: &Item) {
        if let Some(number) = self.held.remove(item) {
            self.line.remove(&number);
        }
    }

    /// How many wait for a slot.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn holds(&self, item: &Item) -> bool {
        self.held.contains_key(item)
    }

    /// What is held back, if it is time to tell.
    pub(crate) fn report(&mut self, now: Instant) -> Option<Report> {
        let recently = self.reported.is_some_and(|it| now.saturating_duration_since(it) < MINUTE);
        if self.held.is_empty() || recently {
            return None;
        }
        self.reported = Some(now);
        Some(Report { held: self.held.len(), examples: std::mem::take(&mut self.examples) })
    }

    /// Puts an item at the end of the line. How many are ahead of it.
    fn line_up(&mut self, item: &Item, named: &Coordinates) -> usize {
        let ahead = self.line.len();
        self.numbers += 1;
        self.held.insert(item.clone(), self.numbers);
        self.line.insert(self.numbers);
        if self.examples.len() < EXAMPLES {
            self.examples.push(named.to_string());
        }
        ahead
    }

    /// How long until there is a slot for one more, behind so many: each gets its own, so that not all of them come for the
    /// first. Those of later rounds come free as much later as calls take, so whoever waits for one may have to come again.
    fn wait(&self, limit: usize, ahead: usize, now: Instant) -> Duration {
        let (rounds, place) = (ahead / limit, ahead % limit);
        // Slots of calls in flight come free after all others.
        let free_at = self.answered.get(place).map_or(now, |it| *it) + MINUTE;
        let rounds = MINUTE.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        let wait = free_at.saturating_duration_since(now).saturating_add(rounds);
        wait.clamp(Duration::from_millis(1), LOOK_AGAIN)
    }
}

#[cfg(test)]
mod tests;
