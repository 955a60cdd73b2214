//! What the last passes failed of, for people: nothing rests on it.

use std::{collections::HashMap, error::Error, hash::Hash};

use api::Uid;
use parking_lot::Mutex;

use crate::graph::Item;

/// By attempt. An entry goes with the next pass that does not fail, and whatever failed has another one.
#[derive(Default)]
pub(crate) struct Failed {
    pub(crate) deletes: LastErrors<Item>,
    pub(crate) orphans: LastErrors<Uid>,
}

/// The words of the last error of each key whose last pass failed.
pub(crate) struct LastErrors<K>(Mutex<HashMap<K, String>>);

impl<K> Default for LastErrors<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> LastErrors<K> {
    /// Takes note of how a pass ended.
    pub(crate) fn note<T, E: Error>(&self, key: &K, ended: Result<T, E>) -> Result<T, E> {
        let mut last = self.0.lock();
        match &ended {
            Ok(_) => drop(last.remove(key)),
            Err(err) => drop(last.insert(key.clone(), runner::error_chain(err))),
        }
        drop(last);
        ended
    }

    pub(crate) fn of(&self, key: &K) -> Option<String> {
        self.0.lock().get(key).cloned()
    }
}
