use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::Hash,
};

use clock::Instant;

/// Removed entries are cleaned out of the heap when there are more of them than this, and more than valid ones.
const FEW: usize = 64;

/// Keys with one deadline each. If a key was inserted with several deadlines, the earliest counts.
///
/// A heap with lazy deletion: an entry is valid as long as the table has its ticket. The entry at the top of the heap
/// is always valid.
pub(crate) struct Delayed<K> {
    heap: BinaryHeap<Reverse<Entry<K>>>,
    deadlines: HashMap<K, (Instant, u64)>,
    tickets: u64,
}

struct Entry<K> {
    at: Instant,
    /// Keys with the same deadline keep the order in which they were inserted.
    ticket: u64,
    key: K,
}

impl<K: Eq + Hash + Clone> Delayed<K> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), deadlines: HashMap::new(), tickets: 0 }
    }

    /// Delays `key` until `at`, unless it has an earlier deadline.
    pub(crate) fn insert(&mut self, key: K, at: Instant) {
        if self.deadlines.get(&key).is_some_and(|(known, _)| *known <= at) {
            return;
        }
        self.tickets += 1;
        self.deadlines.insert(key.clone(), (at, self.tickets));
        // The entry that this one replaces has a later deadline, so the top of the heap stays valid.
        self.heap.push(Reverse(Entry { at, ticket: self.tickets, key }));
        if self.heap.len() > 2 * self.deadlines.len() + FEW {
            let deadlines = &self.deadlines;
            self.heap.retain(|Reverse(it)| is_valid(deadlines, it));
        }
    }

    /// Removes `key` and its deadline.
    pub(crate) fn remove(&mut self, key: &K) {
        if self.deadlines.remove(key).is_some() {
            self.drop_invalid();
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(it)| it.at)
    }

    /// Removes and returns the next key whose deadline has passed.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        if self.next_deadline()? > now {
            return None;
        }
        let Reverse(due) = self.heap.pop()?;
        self.deadlines.remove(&due.key);
        self.drop_invalid();
        Some(due.key)
    }

    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.deadlines.clear();
    }

    /// Removes invalid entries from the top of the heap.
    fn drop_invalid(&mut self) {
        while self.heap.peek().is_some_and(|Reverse(it)| !is_valid(&self.deadlines, it)) {
            self.heap.pop();
        }
    }
}

fn is_valid<K: Eq + Hash>(deadlines: &HashMap<K, (Instant, u64)>, entry: &Entry<K>) -> bool {
    deadlines.get(&entry.key).is_some_and(|(_, ticket)| *ticket == entry.ticket)
}

impl<K> Ord for Entry<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.ticket).cmp(&(other.at, other.ticket))
    }
}

impl<K> PartialOrd for Entry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> PartialEq for Entry<K> {
    fn eq(&self, other: &Self) -> bool {
        self.ticket == other.ticket
    }
}

impl<K> Eq for Entry<K> {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::Clock;

    use super::*;

    #[test]
    fn removed_entries_do_not_accumulate() {
        let now = Clock::system().now();
        let mut delayed = Delayed::new();
        for earlier in (0..10_000u64).rev() {
            delayed.insert("a", now + Duration::from_secs(earlier));
        }
        assert!(delayed.heap.len() <= 2 + FEW, "{}", delayed.heap.len());
        assert_eq!(delayed.pop(now), Some("a"));
        assert_eq!(delayed.next_deadline(), None);
    }
}
