use std::{error::Error, fmt::Write as _, time::Duration};

/// How a successful sync ends. A failed sync is always retried with back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Done,
    /// Sync again after this time.
    After(Duration),
    /// The cache must first show our own writes. Sync again after this time, or when the informer enqueues the key.
    /// Counts as neither success nor failure.
    Parked(Duration),
}

/// An error and all its causes in one line.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing into a string cannot fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
