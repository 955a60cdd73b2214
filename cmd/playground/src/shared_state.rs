use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::observed::Observed;

/// The state that the samples share. Each change notifies the view.
pub(crate) struct SharedState {
    known: Mutex<Known>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) observed: Observed,
    /// Samples whose objects are all created.
    pub(crate) created: BTreeSet<&'static str>,
    /// Samples whose objects or steps failed, and why.
    pub(crate) failed: BTreeMap<&'static str, String>,
    /// How many steps of a sample are done.
    pub(crate) steps: BTreeMap<&'static str, usize>,
    /// Samples with a step in progress.
    pub(crate) busy: BTreeSet<&'static str>,
    /// How many times each fault happened.
    pub(crate) faults: BTreeMap<&'static str, u32>,
    /// New lines for the view, which takes them.
    pub(crate) lines: Vec<String>,
}

impl SharedState {
    pub(crate) fn new() -> Self {
        Self { known: Mutex::default(), changes: watch::Sender::new(0) }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let answer = change(&mut self.known.lock());
        self.changes.send_modify(|it| *it = it.wrapping_add(1));
        answer
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut Known) -> T) -> T {
        read(&mut self.known.lock())
    }

    pub(crate) fn add_line(&self, line: impl Into<String>) {
        self.change(|it| it.lines.push(line.into()));
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
