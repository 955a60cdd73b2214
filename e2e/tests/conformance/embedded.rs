//! The embedded API server as a target: in process, with paused time.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use clock::{Clock, Timestamp};
use e2e::conformance::{Case, Chunks, Entry, Pace, Target, run};
use futures::{
    StreamExt, TryStreamExt,
    future::{BoxFuture, LocalBoxFuture},
};
use http::{Request, Response};
use http_body_util::BodyExt;
use test_cluster::TestCluster;
use tower::ServiceExt;

/// 2031-05-05T05:05:05Z; no case uses a time near it.
const EPOCH: i64 = 1_935_723_905;

struct Embedded {
    cluster: TestCluster,
    clock: Clock,
}

impl Target for Embedded {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, anyhow::Result<Response<Chunks>>> {
        let answer = self.cluster.service().oneshot(request.map(Into::into));
        Box::pin(async move {
            let answer = answer.await.map_err(anyhow::Error::from_boxed)?;
            Ok(answer.map(|body| body.into_data_stream().map_err(anyhow::Error::from_boxed).boxed()))
        })
    }

    fn compact(&self) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        self.cluster.compact();
        Box::pin(async { Ok(()) })
    }

    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    fn pace(&self) -> Pace {
        Pace { quiet: Duration::from_secs(5), event: Duration::from_secs(60), case: Duration::from_secs(7200) }
    }
}

/// The responses of a new cluster.
pub(crate) fn answers(case: &Case) -> anyhow::Result<Vec<Entry>> {
    on_paused_time(async {
        let clock = Clock::virtual_from(Timestamp::from_second(EPOCH)?);
        let server = Embedded { cluster: TestCluster::new(clock.clone()), clock };
        run(case, &server, "xbcdfghj").await
    })
}

fn on_paused_time<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(work)
}
