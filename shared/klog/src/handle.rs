use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tracing_subscriber::{Registry, reload};

use crate::{Verbosity, filter::Filter, stream::Stream};

/// How long the end of the process waits for a reader that is stuck.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// What can be changed while the process runs. Cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    verbosity: AtomicU32,
    /// None where there is no log.
    filter: Option<reload::Handle<Filter, Registry>>,
    streams: Vec<Stream>,
    /// How many dropped lines were asked for.
    told: AtomicU64,
}

impl Handle {
    pub(crate) fn new(verbosity: Verbosity, filter: reload::Handle<Filter, Registry>, streams: Vec<Stream>) -> Self {
        Self(Arc::new(Inner {
            verbosity: AtomicU32::new(verbosity),
            filter: Some(filter),
            streams,
            told: AtomicU64::new(0),
        }))
    }

    /// For a manager without a log of its own, as in a simulation: it remembers what it is told.
    #[must_use]
    pub fn detached() -> Self {
        Self(Arc::new(Inner {
            verbosity: AtomicU32::new(0),
            filter: None,
            streams: Vec::new(),
            told: AtomicU64::new(0),
        }))
    }

    /// `-v`, as it is now.
    #[must_use]
    pub fn verbosity(&self) -> Verbosity {
        self.0.verbosity.load(Ordering::SeqCst)
    }

    /// Changes `-v` for every line from now on. (`--vmodule` stays as it was, as upstream.)
    pub fn set_verbosity(&self, verbosity: Verbosity) {
        self.0.verbosity.store(verbosity, Ordering::SeqCst);
        if let Some(filter) = &self.0.filter {
            // Fails when the subscriber is gone: then nothing is written at any verbosity.
            let _ = filter.modify(|it| it.verbosity = verbosity);
        }
    }

    /// How many lines were dropped, because nobody took them, since this was asked last.
    #[must_use]
    pub fn newly_dropped(&self) -> u64 {
        let dropped = self.0.streams.iter().map(Stream::dropped).sum();
        let told = self.0.told.fetch_max(dropped, Ordering::SeqCst);
        u64::saturating_sub(dropped, told)
    }

    /// Lets `last` say the last words of the process and waits until all is written, at most two seconds: for a reader that
    /// is stuck there is no more that can be done.
    pub fn end(&self, last: impl FnOnce()) {
        self.0.streams.iter().for_each(Stream::end);
        last();
        self.0.streams.iter().for_each(|it| it.flush(LAST_WAIT));
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("verbosity", &self.verbosity()).finish_non_exhaustive()
    }
}
