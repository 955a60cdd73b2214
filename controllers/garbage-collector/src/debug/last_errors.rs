//! The last errors of failed passes, for the debug pages only. No decision uses them.

use std::{collections::HashMap, error::Error, hash::Hash};

use api::Uid;
use parking_lot::Mutex;

use crate::graph::Item;

/// Errors by attempt. The next successful pass removes an entry; every failed item is retried.
#[derive(Default)]
pub(crate) struct FailedAttempts {
    pub(crate) deletes: LastErrors<Item>,
    pub(crate) orphans: LastErrors<Uid>,
}

/// The text of the last error of each key whose last pass failed.
pub(crate) struct LastErrors<K>(Mutex<HashMap<K, String>>);

impl<K> Default for LastErrors<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> LastErrors<K> {
    /// Records the result of a pass and returns it.
    pub(crate) fn record<T, E: Error>(&self, key: &K, result: Result<T, E>) -> Result<T, E> {
        let mut last = self.0.lock();
        match &result {
            Ok(_) => drop(last.remove(key)),
            Err(err) => drop(last.insert(key.clone(), client::error_chain(err))),
        }
        drop(last);
        result
    }

    pub(crate) fn get(&self, key: &K) -> Option<String> {
        self.0.lock().get(key).cloned()
    }
}
