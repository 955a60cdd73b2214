use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

/// Notifies waiting tasks of a new version, in the order in which they began to wait. A simulation must be repeatable,
/// and tokio's watch channel wakes tasks in random order.
pub(crate) struct Sender(Arc<Shared>);

/// Waits for versions.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    seen: u64,
}

struct Shared {
    version: AtomicU64,
    /// How many times `send` was called.
    sent: AtomicU64,
    woken: Notify,
}

impl Sender {
    pub(crate) fn new(version: u64) -> Self {
        Self(Arc::new(Shared { version: version.into(), sent: AtomicU64::new(0), woken: Notify::new() }))
    }

    pub(crate) fn send(&self, version: u64) {
        self.0.version.store(version, Ordering::SeqCst);
        self.0.sent.fetch_add(1, Ordering::SeqCst);
        self.0.woken.notify_waiters();
    }

    /// True when there may be receivers.
    pub(crate) fn has_receivers(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    pub(crate) fn subscribe(&self) -> Receiver {
        Receiver { shared: self.0.clone(), seen: self.0.sent.load(Ordering::SeqCst) }
    }
}

/// The last notification: no version comes any more.
impl Drop for Sender {
    fn drop(&mut self) {
        self.0.sent.fetch_add(1, Ordering::SeqCst);
        self.0.woken.notify_waiters();
    }
}

impl Receiver {
    /// Marks everything sent so far as seen.
    pub(crate) fn mark_unchanged(&mut self) {
        self.seen = self.shared.sent.load(Ordering::SeqCst);
    }

    /// Waits for the next notification.
    pub(crate) async fn changed(&mut self) {
        let shared = self.shared.clone();
        let seen = self.seen;
        self.seen = wait(&shared, |it| Some(it.sent.load(Ordering::SeqCst)).filter(|sent| *sent != seen)).await;
    }

    /// Waits until a version is reached.
    pub(crate) async fn wait_until_reached(&self, version: u64) {
        wait(&self.shared, |it| (it.version.load(Ordering::SeqCst) >= version).then_some(())).await;
    }
}

async fn wait<T>(shared: &Shared, look: impl Fn(&Shared) -> Option<T>) -> T {
    loop {
        // Register for a notification before looking, so that a version between look and wait is not missed.
        let mut woken = pin!(shared.woken.notified());
        woken.as_mut().enable();
        if let Some(found) = look(shared) {
            return found;
        }
        woken.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn tasks_are_woken_in_order_of_waiting() {
        for _ in 0..20 {
            let (sender, order) = (Sender::new(0), Arc::new(Mutex::new(Vec::new())));
            let tasks: Vec<_> = (0..12)
                .map(|number| {
                    let (mut receiver, order) = (sender.subscribe(), order.clone());
                    tokio::spawn(async move {
                        receiver.changed().await;
                        order.lock().push(number);
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            sender.send(7);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*order.lock(), (0..12).collect::<Vec<_>>());
            sender.subscribe().wait_until_reached(7).await;
        }
    }
}
