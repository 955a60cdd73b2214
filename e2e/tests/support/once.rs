//! Work that is done once on each server for several scenarios.

use tokio::sync::OnceCell;

use super::On;

/// The results, one for each kind of server.
pub(crate) struct Once<T> {
    real: OnceCell<T>,
    embedded: OnceCell<T>,
}

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self { real: OnceCell::const_new(), embedded: OnceCell::const_new() }
    }

    /// Runs `run` unless it was run before, and returns its result.
    pub(crate) async fn on(&self, on: On, run: impl AsyncFnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
        let done = match on {
            On::Real => &self.real,
            On::Embedded => &self.embedded,
        };
        done.get_or_try_init(async || run().await).await
    }
}
