use std::{future::Future, sync::Arc, task::Poll, time::Duration};

use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
    future::BoxFuture,
};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tasks::Spawner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    body::{ConnectionSlot, Outgoing, RetireHandle},
    connect::BoxIo,
};
use crate::BoxError;

const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// How often to check whether the settings of the server have arrived.
const SETTINGS_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// A connection with many requests at a time.
pub(super) struct Http2Connection {
    sender: SendRequest<Outgoing>,
    /// One permit for each stream that both the server and our policy allow.
    slots: Arc<Semaphore>,
    pub(super) retire: RetireHandle,
    pub(super) generation: u64,
}

/// The slot of one stream. It is free again when this is dropped or completed.
pub(super) struct Http2Slot {
    connection: Arc<Http2Connection>,
    _permit: OwnedSemaphorePermit,
}

impl Http2Connection {
    /// Starts HTTP/2 and waits for the server's settings: without their limit, a part of a burst would be refused. At
    /// most `most` streams, or fewer if the server allows fewer.
    pub(super) async fn open(
        io: BoxIo,
        spawner: &Spawner,
        generation: u64,
        most: Option<usize>,
    ) -> Result<Self, BoxError> {
        let (streams, begun) = unbounded();
        let streams = Streams(streams);
        // Ends with the connection, which has the other end, and with the last of its streams.
        spawner.spawn("http2 connection", begun.for_each_concurrent(None, |it: BoxFuture<'static, ()>| it));
        let (sender, mut connection) = Builder::new(streams.clone())
            .timer(TokioTimer::new())
            // 0 until the settings arrive. The change shows that they have arrived.
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
            tokio::time::sleep(SETTINGS_CHECK_INTERVAL).await;
        };
        hyper::rt::Executor::execute(&streams, async move {
            if let Err(err) = connection.await {
                tracing::debug!(err = %crate::error_chain(&err), "Connection ended");
            }
        });
        let slots = Arc::new(Semaphore::new(limit.min(most.unwrap_or(Semaphore::MAX_PERMITS))));
        Ok(Self { sender, slots, retire: RetireHandle::default(), generation })
    }

    pub(super) fn is_usable(&self, generation: u64) -> bool {
        self.generation == generation && !self.retire.is_retired() && !self.sender.is_closed()
    }

    /// A slot for one more stream; `None` if the connection is full.
    pub(super) fn try_take_slot(self: &Arc<Self>) -> Option<Http2Slot> {
        let permit = self.slots.clone().try_acquire_owned().ok()?;
        Some(Http2Slot { connection: self.clone(), _permit: permit })
    }

    /// Waits for a slot in FIFO order; `None` if the connection was retired first.
    pub(super) async fn wait_for_slot(self: &Arc<Self>) -> Option<Http2Slot> {
        tokio::select! {
            biased;
            () = self.retire.retired() => None,
            permit = self.slots.clone().acquire_owned() => {
                Some(Http2Slot { connection: self.clone(), _permit: permit.ok()? })
            }
        }
    }
}

impl Http2Slot {
    pub(super) fn retire(&self) -> &RetireHandle {
        &self.connection.retire
    }

    pub(super) fn sender(&self) -> SendRequest<Outgoing> {
        self.connection.sender.clone()
    }
}

impl ConnectionSlot for Http2Slot {
    fn complete(self) {}
}

/// All futures that hyper starts for a connection and its streams run in one task of the manager's scope. One task per
/// request would need an entry in the list of the scope for each request.
#[derive(Clone)]
struct Streams(UnboundedSender<BoxFuture<'static, ()>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, future: F) {
        // Fails when the scope has ended. Then nothing must run.
        let _ = self.0.unbounded_send(future.boxed());
    }
}
