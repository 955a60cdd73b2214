use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::seen::Seen;

/// What is known while the samples play. Whoever changes it wakes the view.
pub(crate) struct Stage {
    known: Mutex<Known>,
    news: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) seen: Seen,
    /// Samples whose objects are all there.
    pub(crate) created: BTreeSet<&'static str>,
    /// Samples that the user could not play, and why.
    pub(crate) failed: BTreeMap<&'static str, String>,
    /// How many steps of a sample were done.
    pub(crate) steps: BTreeMap<&'static str, usize>,
    /// A step of it is under way.
    pub(crate) busy: BTreeSet<&'static str>,
    /// How often each fault struck.
    pub(crate) faults: BTreeMap<&'static str, u32>,
    /// For the view, which takes them.
    pub(crate) lines: Vec<String>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { known: Mutex::default(), news: watch::Sender::new(0) }
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let answer = change(&mut self.known.lock());
        self.news.send_modify(|it| *it = it.wrapping_add(1));
        answer
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock())
    }

    pub(crate) fn say(&self, line: impl Into<String>) {
        self.change(|it| it.lines.push(line.into()));
    }

    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}
