use std::time::Duration;

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
