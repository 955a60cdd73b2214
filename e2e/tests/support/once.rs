//! What is done once on each server for all the scenarios that look at it.

use tokio::sync::OnceCell;

use super::On;

/// What came of it, on each server.
pub(crate) struct Once<T> {
    real: OnceCell<T>,
    embedded: OnceCell<T>,
}

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self { real: OnceCell::const_new(), embedded: OnceCell::const_new() }
    }

    /// Does it, unless that was done.
    pub(crate) async fn on(&self, on: On, act: impl AsyncFnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
        let done = match on {
            On::Real => &self.real,
            On::Embedded => &self.embedded,
        };
        done.get_or_try_init(async || act().await).await
    }
}
