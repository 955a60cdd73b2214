//! A name with two addresses, of which the first accepts no usable connection.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tower::util::BoxCloneSyncService;

use super::*;
use crate::pools::addresses::share;

/// A listener without accept: the kernel accepts connections until its queue is full, and then drops them.
struct SilentAddress {
    listener: TcpListener,
    queued: Vec<TcpStream>,
}

impl SilentAddress {
    fn accepting(server: &Server, queue: u32) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(first_address(server)).unwrap();
        Self { listener: socket.listen(queue).unwrap(), queued: Vec::new() }
    }

    async fn dropping(server: &Server) -> Self {
        let mut silent = Self::accepting(server, 1);
        while let Ok(stream) = tokio::time::timeout(SECOND / 5, TcpStream::connect(first_address(server))).await {
            silent.queued.push(stream.unwrap());
        }
        silent
    }
}

fn first_address(server: &Server) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), server.port))
}

/// Ends the time of the address that is being dialed. If it is not being dialed yet, real time would pass.
async fn end_share(connect_timeout: Duration) {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(share(connect_timeout)).await;
    tokio::time::resume();
}

/// The first address is dialed once, for the Lease, and then by no pool.
async fn check_first_address_is_skipped(server: &Server) {
    let (first, second) = (first_address(server), SocketAddr::from((Ipv4Addr::LOCALHOST, server.port)));
    let resolver =
        BoxCloneSyncService::new(tower::service_fn(move |_| async move { Ok(vec![first, second].into_iter()) }));
    let (scope, clock, metrics) = (Scope::new(), Clock::virtual_from(clock::Timestamp::UNIX_EPOCH), Metrics::new());
    let term = Term::endless(clock.clone());
    let mut config = config(server);
    config.cluster_url = format!("https://two.example:{}/prefix/", server.port).parse().unwrap();
    let pools = open_with(&config, None, options(&scope, &clock, &term, &metrics), &resolver).unwrap();
    let get = |pool: &crate::Transport| {
        let response = pool.clone().oneshot(http::Request::new(crate::Body::default()));
        async move { response.await.unwrap().status().as_u16() }
    };
    // The Lease is acquired or renewed in one attempt, so the second address is dialed within that attempt.
    assert_eq!(tokio::join!(get(&pools.lease), end_share(LEASE_CONNECT_TIMEOUT)).0, 200);
    for pool in [&pools.reads, &pools.writes, &pools.watches] {
        assert_eq!(get(pool).await, 200);
    }
}

#[tokio::test]
async fn address_that_drops_packets_is_skipped_within_one_lease_attempt() {
    let server = Server::start(HTTP2, echo).await;
    let _silent = SilentAddress::dropping(&server).await;
    check_first_address_is_skipped(&server).await;
}

#[tokio::test]
async fn silent_address_is_skipped_and_then_dialed_last() {
    let server = Server::start(HTTP2, echo).await;
    let silent = SilentAddress::accepting(&server, 100);
    check_first_address_is_skipped(&server).await;
    let accepted = std::iter::from_fn(|| silent.listener.accept().now_or_never());
    assert_eq!(accepted.count(), 1);
}
