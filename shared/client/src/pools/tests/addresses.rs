//! One name, two addresses, the first of which drops packets.

use std::net::{Ipv4Addr, SocketAddr};

use futures::future::join_all;
use tokio::net::{TcpSocket, TcpStream};
use tower::util::BoxCloneSyncService;

use super::*;

/// A listener that drops what would connect, as its queue is full, and what fills the queue.
struct SilentAddress {
    _listener: tokio::net::TcpListener,
    _queued: Vec<TcpStream>,
}

impl SilentAddress {
    async fn at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = tokio::time::timeout(SECOND / 5, TcpStream::connect(address)).await {
            queued.push(stream.unwrap());
        }
        Self { _listener: listener, _queued: queued }
    }
}

/// What the pools answer, in the order Lease, reads, writes, watches; `None`: nothing within the time.
async fn answers(lease_attempt: Duration, within: Duration) -> Vec<Option<u16>> {
    let server = Server::start(HTTP2, echo).await;
    let [silent, alive] = [2, 1].map(|it| SocketAddr::from((Ipv4Addr::new(127, 0, 0, it), server.port)));
    let _silent = SilentAddress::at(silent).await;
    let resolver =
        BoxCloneSyncService::new(tower::service_fn(move |_| async move { Ok(vec![silent, alive].into_iter()) }));
    let (scope, clock, metrics) = (Scope::new(), Clock::virtual_from(clock::Timestamp::UNIX_EPOCH), Metrics::new());
    let term = Term::endless(clock.clone());
    let options = PoolOptions { lease_attempt, ..options(&scope, &clock, &term, &metrics) };
    let mut config = config(&server);
    config.cluster_url = format!("https://two.example:{}/prefix/", server.port).parse().unwrap();
    let pools = open_with(&config, None, options, &resolver).unwrap();
    let asked = [pools.lease, pools.reads, pools.writes, pools.watches].map(|pool| async move {
        let answer = pool.oneshot(http::Request::new(crate::Body::default()));
        Some(tokio::time::timeout(within, answer).await.ok()?.ok()?.status().as_u16())
    });
    join_all(asked).await
}

#[tokio::test]
async fn silent_first_address_is_skipped_before_the_lease_or_the_health_of_the_server_are_given_up() {
    assert_eq!(answers(5 * SECOND, 4 * SECOND).await, [Some(200); 4]);
}

#[tokio::test]
async fn silent_first_address_is_skipped_within_a_short_attempt_for_the_lease() {
    assert_eq!(answers(SECOND, SECOND).await[0], Some(200));
}
