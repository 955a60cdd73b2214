use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tasks::Spawner;

use super::{
    body::{Outgoing, RetireHandle},
    connect::BoxIo,
};
use crate::BoxError;

/// A connection with one request at a time.
pub(super) struct Http1Connection {
    pub(super) sender: SendRequest<Outgoing>,
    pub(super) retire: RetireHandle,
    pub(super) generation: u64,
}

impl Http1Connection {
    pub(super) async fn open(io: BoxIo, spawner: &Spawner, generation: u64) -> Result<Self, BoxError> {
        let (sender, connection) = Builder::new().handshake::<_, Outgoing>(TokioIo::new(io)).await?;
        spawner.spawn("http1 connection", async move {
            if let Err(err) = connection.await {
                tracing::debug!(err = %crate::error_chain(&err), "Connection ended");
            }
        });
        Ok(Self { sender, retire: RetireHandle::default(), generation })
    }

    pub(super) fn is_usable(&self, generation: u64) -> bool {
        self.generation == generation && !self.retire.is_retired() && !self.sender.is_closed()
    }
}
