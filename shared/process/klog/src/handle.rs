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

/// At process exit, how long to wait for a reader that does not read.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// What can be changed while the process runs. Cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    verbosity: AtomicU32,
    /// `None` for a detached handle.
    filter: Option<reload::Handle<Filter, Registry>>,
    streams: Vec<Stream>,
    /// How many dropped lines [`Handle::newly_dropped`] has returned so far.
    reported: AtomicU64,
}

impl Handle {
    pub(crate) fn new(verbosity: Verbosity, filter: reload::Handle<Filter, Registry>, streams: Vec<Stream>) -> Self {
        Self(Arc::new(Inner {
            verbosity: AtomicU32::new(verbosity),
            filter: Some(filter),
            streams,
            reported: AtomicU64::new(0),
        }))
    }

    /// A handle without a log, for a manager in a simulation. It only stores the verbosity.
    #[must_use]
    pub fn detached() -> Self {
        Self(Arc::new(Inner {
            verbosity: AtomicU32::new(0),
            filter: None,
            streams: Vec::new(),
            reported: AtomicU64::new(0),
        }))
    }

    /// The present `-v`.
    #[must_use]
    pub fn verbosity(&self) -> Verbosity {
        self.0.verbosity.load(Ordering::SeqCst)
    }

    /// Changes `-v` for every line from now on. (`--vmodule` does not change, as in upstream's `/debug/flags/v`.)
    pub fn set_verbosity(&self, verbosity: Verbosity) {
        self.0.verbosity.store(verbosity, Ordering::SeqCst);
        if let Some(filter) = &self.0.filter {
            // Fails when the subscriber is dropped: then nothing is written at any verbosity.
            let _ = filter.modify(|it| it.verbosity = verbosity);
        }
    }

    /// How many lines were dropped since the last call, because the reader did not read them in time.
    #[must_use]
    pub fn newly_dropped(&self) -> u64 {
        let dropped = self.0.streams.iter().map(Stream::dropped).sum();
        let reported = self.0.reported.fetch_max(dropped, Ordering::SeqCst);
        u64::saturating_sub(dropped, reported)
    }

    /// Calls `last` to log the last lines of the process and waits until all lines are written, at most two seconds. A
    /// reader that does not read must not block the exit for longer.
    pub fn end(&self, last: impl FnOnce()) {
        self.0.streams.iter().for_each(Stream::end);
        last();
        self.0.streams.iter().for_each(|it| it.flush(FLUSH_LIMIT));
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("verbosity", &self.verbosity()).finish_non_exhaustive()
    }
}
