//! Events are removed one hour after their last write.
//!
//! There is no background task: each access to the state removes what is due, and an open watch of Events sleeps at
//! most until the next expiry.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use clock::Instant;

use crate::{kinds, store::State};

const LIFE: Duration = Duration::from_secs(3600);

/// Writes in the order of time. An object that was written again has a second entry.
#[derive(Default)]
pub(crate) struct Expiry(VecDeque<Due>);

struct Due {
    at: Instant,
    key: Arc<str>,
    version: String,
}

impl State {
    /// Records the write of an object.
    pub(crate) fn record_expiry(&mut self, table: &str, key: &Arc<str>, version: u64) {
        if table == kinds::EVENTS {
            let due = Due { at: self.clock.now() + LIFE, key: key.clone(), version: version.to_string() };
            self.expiry.0.push_back(due);
        }
    }

    /// When the next Event expires.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.expiry.0.front().map(|it| it.at)
    }

    /// Removes expired Events. Watches get these removals too.
    pub(crate) fn expire(&mut self) {
        if self.expiry.0.is_empty() {
            return;
        }
        let (now, wall) = (self.clock.now(), self.clock.wall());
        while let Some(due) = self.expiry.0.pop_front_if(|it| it.at <= now) {
            let present = self.stored(kinds::EVENTS, &due.key).is_some_and(|it| it.version() == due.version);
            if present {
                // The object exists, so this cannot fail.
                let _ = self.remove(kinds::EVENTS, &due.key, wall);
            }
        }
    }
}
