use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tasks::Spawner;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    body::{ConnectionSlot, Outgoing, RetireHandle},
    connect::BoxIo,
    pool::Pool,
};
use crate::BoxError;

/// A connection with one request at a time.
pub(super) struct Http1Connection {
    pub(super) sender: SendRequest<Outgoing>,
    pub(super) retire: RetireHandle,
    pub(super) generation: u64,
}

/// The slot of a request on a connection. If it is dropped before the end of the response, the connection is closed,
/// because the rest of the response would precede the next one.
pub(super) struct Http1Slot {
    pub(super) connection: Http1Connection,
    pub(super) pool: Pool,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Http1Connection {
    pub(super) async fn open(io: BoxIo, spawner: &Spawner, generation: u64) -> Result<Self, BoxError> {
        let (sender, connection) = Builder::new().handshake::<_, Outgoing>(TokioIo::new(io)).await?;
        spawner.spawn("http1 connection", async move {
            if let Err(err) = connection.await {
                tracing::debug!(err = %crate::error::chain(&err), "Connection ended");
            }
        });
        Ok(Self { sender, retire: RetireHandle::default(), generation })
    }

    pub(super) fn is_usable(&self, generation: u64) -> bool {
        self.generation == generation && !self.retire.is_retired() && !self.sender.is_closed()
    }
}

impl ConnectionSlot for Http1Slot {
    fn complete(self) {
        let Self { connection, pool, _permit } = self;
        // Before the permit is released, so that its next owner finds this connection.
        pool.put_idle(connection);
    }
}
