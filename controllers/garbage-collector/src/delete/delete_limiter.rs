//! `--gc-max-deletes-per-minute`: limits the deletes of all workers within any minute. It has no tasks of its own.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use clock::Instant;

use crate::graph::{Coordinates, Item};

/// The sliding window of the limit.
const MINUTE: Duration = Duration::from_secs(60);
/// A waiting item retries after this at most, even if many items are ahead, because those may no longer need their
/// slots.
const MAX_RETRY: Duration = Duration::from_secs(600);
/// The number of waiting items that the log names.
const EXAMPLES: usize = 3;

/// Counts deletes and delays those above the limit.
///
/// A delete counts from before its request until a minute after its response. So at any time of execution within that
/// interval, no minute of the server has too many.
pub(crate) struct DeleteLimiter {
    /// `None`: no limit.
    limit: Option<usize>,
    in_flight: usize,
    /// The times of the responses in the last minute.
    responses: VecDeque<Instant>,
    /// Items that wait for a slot, with their position numbers.
    held: HashMap<Item, u64>,
    /// The numbers of the items that compete for a slot now. The number of an item that could not be checked is removed
    /// until its next pass, so that others can use the slot.
    contenders: BTreeSet<u64>,
    last_number: u64,
    /// Names of some waiting items since the last report.
    examples: Vec<String>,
    reported: Option<Instant>,
}

/// The content of the log line that is written once a minute while items wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) held: usize,
    pub(crate) examples: Vec<String>,
}

impl DeleteLimiter {
    /// Allows `limit` deletes a minute; zero means no limit.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: usize::try_from(limit).ok().filter(|it| *it > 0),
            in_flight: 0,
            responses: VecDeque::new(),
            held: HashMap::new(),
            contenders: BTreeSet::new(),
            last_number: 0,
            examples: Vec::new(),
            reported: None,
        }
    }

    /// Takes a slot for this item, or returns when to retry. After a delete, [`DeleteLimiter::record_response`] must be
    /// called.
    /// Items that wait already come first, and an item that retries too early keeps its position.
    pub(crate) fn take(&mut self, item: &Item, named: &Coordinates, now: Instant) -> Result<(), Duration> {
        let Some(limit) = self.limit else { return Ok(()) };
        while self.responses.front().is_some_and(|it| *it + MINUTE <= now) {
            self.responses.pop_front();
        }
        let free = limit.saturating_sub(self.in_flight + self.responses.len());
        let number = self.held.get(item).copied();
        self.contenders.extend(number);
        let others_first = if number.is_some() { 0 } else { self.contenders.len() };
        if free > others_first {
            self.remove(item);
            self.in_flight += 1;
            return Ok(());
        }
        let ahead = match number {
            Some(number) => self.contenders.range(..number).count(),
            None => self.add_waiting(item, named),
        };
        Err(self.retry_after(limit, ahead.saturating_sub(free), now))
    }

    /// Records the response of a delete that had a slot.
    pub(crate) fn record_response(&mut self, now: Instant) {
        if self.limit.is_some() {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.responses.push_back(now);
        }
    }

    /// Frees a slot whose delete did not happen: it was not sent, or the server refused it.
    pub(crate) fn cancel(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The item does not need a slot now. It keeps its position for later.
    pub(crate) fn suspend(&mut self, item: &Item) {
        if let Some(number) = self.held.get(item) {
            self.contenders.remove(number);
        }
    }

    /// The item needs no slot any more, or not now: it loses its position.
    pub(crate) fn remove(&mut self, item: &Item) {
        if let Some(number) = self.held.remove(item) {
            self.contenders.remove(&number);
        }
    }

    /// The number of items that wait for a slot.
    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_held(&self, item: &Item) -> bool {
        self.held.contains_key(item)
    }

    /// The report of waiting items, if one is due.
    pub(crate) fn report(&mut self, now: Instant) -> Option<Report> {
        let recently = self.reported.is_some_and(|it| now.saturating_duration_since(it) < MINUTE);
        if self.held.is_empty() || recently {
            return None;
        }
        self.reported = Some(now);
        Some(Report { held: self.held.len(), examples: std::mem::take(&mut self.examples) })
    }

    /// Appends an item to the waiting list. Returns the number of items ahead of it.
    fn add_waiting(&mut self, item: &Item, named: &Coordinates) -> usize {
        let ahead = self.contenders.len();
        self.last_number += 1;
        self.held.insert(item.clone(), self.last_number);
        self.contenders.insert(self.last_number);
        if self.examples.len() < EXAMPLES {
            self.examples.push(named.to_string());
        }
        ahead
    }

    /// The time until an item with `ahead` items before it gets a slot. Each item gets a time of its own, so that they
    /// do not all retry for the first slot. Slots of later rounds become free later by the duration of the requests, so
    /// such an item may have to retry once more.
    fn retry_after(&self, limit: usize, ahead: usize, now: Instant) -> Duration {
        let (rounds, place) = (ahead / limit, ahead % limit);
        // The slots of requests in flight become free after all others.
        let free_at = self.responses.get(place).map_or(now, |it| *it) + MINUTE;
        let rounds = MINUTE.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        let retry_after = free_at.saturating_duration_since(now).saturating_add(rounds);
        retry_after.clamp(Duration::from_millis(1), MAX_RETRY)
    }
}

#[cfg(test)]
mod tests;
