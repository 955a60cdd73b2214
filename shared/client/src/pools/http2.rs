use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tasks::Spawner;

use super::{
    body::{Outgoing, Place, Retire},
    connect::BoxIo,
};
use crate::BoxError;

const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// How often we look whether the server has said how many streams it takes.
const LOOK_FOR_SETTINGS: Duration = Duration::from_millis(1);

/// A connection that carries many requests at once.
pub(super) struct Multiplexed {
    sender: SendRequest<Outgoing>,
    /// Streams the server takes.
    limit: usize,
    taken: AtomicUsize,
    pub(super) retire: Retire,
    pub(super) generation: u64,
}

/// One stream's place. Dropped or complete, the place is free.
pub(super) struct Stream(Arc<Multiplexed>);

impl Multiplexed {
    /// Begins HTTP/2 and waits for the server's settings: a burst that knows no limit would be refused in part.
    pub(super) async fn open(io: BoxIo, spawner: &Spawner, generation: u64) -> Result<Self, BoxError> {
        let (sender, mut connection) = Builder::new(Tasks(spawner.clone()))
            .timer(TokioTimer::new())
            // None before the settings came: that is how we see them come.
            .initial_max_send_streams(0)
            .adaptive_window(false)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(io))
            .await?;
        let limit = loop {
            match connection.current_max_send_streams() {
                0 => {}
                limit => break limit,
            }
            if let Poll::Ready(ended) = futures::poll!(&mut connection) {
                ended?;
                return Err("the server closed the connection at once".into());
            }
            tokio::time::sleep(LOOK_FOR_SETTINGS).await;
        };
        spawner.spawn("http2 connection", async move {
            if let Err(err) = connection.await {
                tracing::debug!(err = %crate::error::chain(&err), "connection ended");
            }
        });
        Ok(Self { sender, limit, taken: AtomicUsize::new(0), retire: Retire::default(), generation })
    }

    pub(super) fn is_usable(&self, generation: u64) -> bool {
        self.generation == generation && !self.retire.is_retired() && !self.sender.is_closed()
    }

    /// A place for one more stream. With `most`, a full connection has none; without, requests queue in it.
    pub(super) fn take(self: &Arc<Self>, most: Option<usize>) -> Option<Stream> {
        let room = most.map_or(usize::MAX, |it| it.min(self.limit));
        // Pools take places under their lock, so nobody comes between.
        if self.taken.load(Ordering::Relaxed) >= room {
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(Stream(self.clone()))
    }
}

impl Stream {
    pub(super) fn retire(&self) -> &Retire {
        &self.0.retire
    }

    pub(super) fn sender(&self) -> SendRequest<Outgoing> {
        self.0.sender.clone()
    }
}

impl Place for Stream {
    fn complete(self) {}
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Hyper's own tasks belong to the manager's scope like all others.
#[derive(Clone)]
struct Tasks(Spawner);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, future: F) {
        self.0.spawn("http2", future);
    }
}
