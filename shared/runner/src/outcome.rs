use std::{error::Error, fmt::Write as _, time::Duration};

/// How a sync ends when it does not fail. A failure always means "again, with back-off". There is no fifth way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until something changes.
    Done,
    /// Look again after this time.
    After(Duration),
    /// The cache must first show our own writes: look again after this time, or when woken. Neither success nor failure.
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
