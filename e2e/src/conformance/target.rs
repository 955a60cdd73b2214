use std::{path::Path, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use clock::{Clock, Timestamp};
use futures::{
    StreamExt, TryStreamExt,
    future::{BoxFuture, LocalBoxFuture},
    stream::BoxStream,
};
use http::{Request, Response, header::AUTHORIZATION};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::sync::Mutex;

use crate::{ControlPlane, Identity, Rest};

/// A body as a stream.
pub type Chunks = BoxStream<'static, anyhow::Result<Bytes>>;

/// The server under test: a real API server or the embedded one.
pub trait Target: Send + Sync {
    /// Sends a request and returns the response with its headers.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, anyhow::Result<Response<Chunks>>>;

    /// Makes every earlier version too old.
    fn compact(&self) -> LocalBoxFuture<'_, anyhow::Result<()>>;

    /// The wall time of the server.
    fn wall(&self) -> Timestamp;

    /// How long to wait.
    fn pace(&self) -> Pace;
}

/// Time limits.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// After this time without an event a watch counts as quiet.
    pub quiet: Duration,
    /// The time limit for an expected event.
    pub event: Duration,
    /// The time limit for a case.
    pub case: Duration,
}

/// A kube-apiserver.
pub struct RealServer {
    rest: Rest,
    /// A client without credentials, for requests with a token of their own: with a client certificate the token would
    /// be ignored.
    anonymous: Rest,
    /// The control plane whose history can be compacted.
    plane: Option<Mutex<ControlPlane>>,
}

impl RealServer {
    /// A server that already runs.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used.
    pub async fn running(kubeconfig: &Path) -> anyhow::Result<Self> {
        let (rest, anonymous) = (Rest::from_kubeconfig(kubeconfig).await?, Rest::anonymous(kubeconfig).await?);
        Ok(Self { rest, anonymous, plane: None })
    }

    /// A server of our own, which stops when this is dropped.
    ///
    /// # Errors
    /// If its kubeconfig cannot be used.
    pub async fn of(plane: ControlPlane) -> anyhow::Result<Self> {
        let running = Self::running(&plane.kubeconfig(Identity::Admin)?).await?;
        Ok(Self { plane: Some(Mutex::new(plane)), ..running })
    }
}

impl Target for RealServer {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, anyhow::Result<Response<Chunks>>> {
        Box::pin(async move {
            let shows_token = request.headers().contains_key(AUTHORIZATION);
            let rest = if shows_token { &self.anonymous } else { &self.rest };
            let answer = rest.client().send(request.map(|it| Body::from(it.to_vec()))).await?;
            Ok(answer.map(|body| body.into_data_stream().map_err(anyhow::Error::from).boxed()))
        })
    }

    fn compact(&self) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async {
            let plane = self.plane.as_ref().context("only a server of our own can be compacted")?;
            let mut plane = plane.lock().await;
            plane.compact().await?;
            // The watch cache still has the history that etcd has compacted, so the server is restarted.
            plane.stop_apiserver()?;
            plane.start_apiserver().await
        })
    }

    fn wall(&self) -> Timestamp {
        Clock::system().wall()
    }

    fn pace(&self) -> Pace {
        Pace { quiet: Duration::from_millis(300), event: Duration::from_secs(10), case: Duration::from_secs(120) }
    }
}
