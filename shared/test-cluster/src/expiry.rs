//! Events vanish an hour after they were written last.
//!
//! Nothing runs for this: whoever takes up the state looks at what is due, and an open watch of Events sleeps no longer
//! than until the next one is.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use clock::Instant;

use crate::{kinds, store::State};

const LIFE: Duration = Duration::from_secs(3600);

/// What was written when, in the order of time. What was written again is in here again.
#[derive(Default)]
pub(crate) struct Expiry(VecDeque<Due>);

struct Due {
    at: Instant,
    key: Arc<str>,
    version: String,
}

impl State {
    /// Notes that an object was written.
    pub(crate) fn note_expiry(&mut self, table: &str, key: &Arc<str>, version: u64) {
        if table == kinds::EVENTS {
            let due = Due { at: self.clock.now() + LIFE, key: key.clone(), version: version.to_string() };
            self.expiry.0.push_back(due);
        }
    }

    /// When the next Event is due.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.expiry.0.front().map(|it| it.at)
    }

    /// Removes what is due. Watches are told as of any removal.
    pub(crate) fn expire(&mut self) {
        if self.expiry.0.is_empty() {
            return;
        }
        let (now, wall) = (self.clock.now(), self.clock.wall());
        while let Some(due) = self.expiry.0.pop_front_if(|it| it.at <= now) {
            let present = self.stored(kinds::EVENTS, &due.key).is_some_and(|it| it.version() == due.version);
            if present {
                // It is there, so there is no failure.
                let _ = self.remove(kinds::EVENTS, &due.key, wall);
            }
        }
    }
}
