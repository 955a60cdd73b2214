//! The connections of a server, and which of them is closed when a new one arrives at the limit.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use clock::{Clock, Instant};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A new connection has this time for its handshake and its first request. During this time it is closed last, unless
/// it has an unread response.
const GRACE: Duration = Duration::from_secs(2);
/// All peers with at most this many connections count as equal. Otherwise a kubelet with two running probes would lose
/// them to a flood that uses another address for each connection.
const SMALL_SHARE: usize = 2;

/// The connections of one server.
///
/// A new connection always gets a slot. If all slots are taken, a connection of the peer with the most connections is
/// closed, in the order of [`ConnectionState`]. So many, slow or busy connections from any host neither block a new
/// probe nor close a running one. The only exception: as many connections as there are slots arrive while one probe
/// does its handshake and sends its request.
#[derive(Clone)]
pub(crate) struct ConnectionLimit(Arc<Inner>);

struct Inner {
    max: usize,
    clock: Clock,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    connections: BTreeMap<u64, OpenConnection>,
}

struct OpenConnection {
    /// The result of [`peer_of`] for its address.
    peer: IpAddr,
    accepted_at: Instant,
    /// The requests in flight, by number.
    requests: BTreeMap<u64, RequestTimes>,
    /// When the connection was accepted, or a request last began or ended.
    last_activity: Instant,
    close: CancellationToken,
}

struct RequestTimes {
    begun_at: Instant,
    /// When the response was ready. From then on only the client causes delay.
    answered_at: Option<Instant>,
}

/// The state of a connection. Connections are closed in this order. Of two connections in the same state, the one that
/// is in it for longer is closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionState {
    /// The client does not read a response that is ready.
    Unread,
    /// No request is in flight.
    Idle,
    /// A request waits for its response. The request limits allow fewer of these connections than there are slots.
    Waiting,
    /// The connection was accepted less than [`GRACE`] ago.
    New,
}

/// The slot of one connection; dropping it releases the slot.
pub(crate) struct ConnectionSlot {
    /// The result of [`peer_of`] for the client's address.
    pub(crate) peer: IpAddr,
    limit: ConnectionLimit,
    id: u64,
    close: CancellationToken,
}

/// One request in flight. It is dropped when the client has read the response; this ends it.
pub(crate) struct ActiveRequest {
    limit: ConnectionLimit,
    connection: u64,
    id: u64,
}

/// The peer to which an address belongs. An IPv6 host has 2⁶⁴ addresses, so its /64 prefix is one peer. Each host has
/// 2²⁴ loopback addresses of IPv4 and one of IPv6, so these are one peer too.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

impl ConnectionLimit {
    pub(crate) fn new(max: usize, clock: Clock) -> Self {
        Self(Arc::new(Inner { max, clock, table: Mutex::default() }))
    }

    /// Returns a slot for a connection from `address`. If all slots are taken, another connection is closed.
    pub(crate) fn acquire(&self, address: IpAddr) -> Arc<ConnectionSlot> {
        let peer = peer_of(address);
        let now = self.0.clock.now();
        let close = CancellationToken::new();
        let mut table = self.0.table.lock();
        while table.connections.len() >= self.0.max.max(1) {
            let Some(removed) = table.next_to_close(peer, now).and_then(|id| table.connections.remove(&id)) else {
                break;
            };
            tracing::debug!(peer = %removed.peer, "closed a connection, because a new one needs its slot");
            removed.close.cancel();
        }
        let id = table.allocate_id();
        let connection = OpenConnection {
            peer,
            accepted_at: now,
            requests: BTreeMap::new(),
            last_activity: now,
            close: close.clone(),
        };
        table.connections.insert(id, connection);
        Arc::new(ConnectionSlot { peer, limit: self.clone(), id, close })
    }
}

impl Table {
    fn allocate_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The connection to close: one of the peer with the most connections, counting one more for `new`, and of these
    /// the first in the order of [`ConnectionState`].
    fn next_to_close(&self, new: IpAddr, now: Instant) -> Option<u64> {
        let mut counts = BTreeMap::from([(new, 1_usize)]);
        for connection in self.connections.values() {
            *counts.entry(connection.peer).or_default() += 1;
        }
        let share =
            |connection: &OpenConnection| Reverse(counts.get(&connection.peer).copied().unwrap_or(0).max(SMALL_SHARE));
        self.connections
            .iter()
            .min_by_key(|(id, connection)| (share(connection), connection.state(now), **id))
            .map(|(id, _)| *id)
    }
}

impl OpenConnection {
    /// The state of the connection, and since when.
    fn state(&self, now: Instant) -> (ConnectionState, Instant) {
        if let Some(since) = self.requests.values().filter_map(|it| it.answered_at).min() {
            (ConnectionState::Unread, since)
        } else if now - self.accepted_at < GRACE {
            (ConnectionState::New, self.accepted_at)
        } else if let Some(since) = self.requests.values().map(|it| it.begun_at).min() {
            (ConnectionState::Waiting, since)
        } else {
            (ConnectionState::Idle, self.last_activity)
        }
    }
}

impl ConnectionSlot {
    /// Waits until the connection must be closed, because a new one needs its slot.
    pub(crate) async fn closed(&self) {
        self.close.cancelled().await;
    }

    /// Records that a request begins.
    pub(crate) fn begin_request(&self) -> ActiveRequest {
        let now = self.limit.0.clock.now();
        let mut table = self.limit.0.table.lock();
        let id = table.allocate_id();
        if let Some(connection) = table.connections.get_mut(&self.id) {
            connection.last_activity = now;
            connection.requests.insert(id, RequestTimes { begun_at: now, answered_at: None });
        }
        ActiveRequest { limit: self.limit.clone(), connection: self.id, id }
    }

    /// When the oldest request in flight began.
    pub(crate) fn oldest_request(&self) -> Option<Instant> {
        self.limit.0.table.lock().connections.get(&self.id)?.requests.values().map(|it| it.begun_at).min()
    }
}

impl ActiveRequest {
    /// Records that the response is ready. From now on only the client causes delay.
    pub(crate) fn mark_answered(&self) {
        let now = self.limit.0.clock.now();
        let mut table = self.limit.0.table.lock();
        if let Some(request) = table.connections.get_mut(&self.connection).and_then(|it| it.requests.get_mut(&self.id))
        {
            request.answered_at = Some(now);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limit.0.table.lock().connections.remove(&self.id);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let now = self.limit.0.clock.now();
        if let Some(connection) = self.limit.0.table.lock().connections.get_mut(&self.connection) {
            connection.requests.remove(&self.id);
            connection.last_activity = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: [u8; 4] = [10, 0, 0, 1];
    const KUBELET: [u8; 4] = [10, 0, 0, 2];

    async fn advance_a_millisecond() {
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    fn is_closed(slot: &ConnectionSlot) -> bool {
        slot.close.is_cancelled()
    }

    /// A request whose client does not read the response.
    fn unread_request(slot: &ConnectionSlot) -> ActiveRequest {
        let request = slot.begin_request();
        request.mark_answered();
        request
    }

    #[test]
    fn loopback_addresses_are_one_peer() {
        let of = |text: &str| peer_of(text.parse().unwrap());
        for other in ["127.0.0.1", "127.45.6.7", "::1", "::ffff:127.0.0.9"] {
            assert_eq!(of(other), of("127.0.0.2"), "{other}");
        }
        for other in ["10.0.0.2", "128.0.0.1", "::2"] {
            assert_ne!(of(other), of("127.0.0.1"), "{other}");
            assert_ne!(of(other), of("10.0.0.1"), "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_connection_closes_the_longest_idle_one() {
        let limit = ConnectionLimit::new(3, Clock::system());
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(limit.acquire(FLOOD.into()));
            advance_a_millisecond().await;
        }
        tokio::time::advance(GRACE).await;
        // The first connection had a request since, so it is the last that became idle.
        drop(all[0].begin_request());
        advance_a_millisecond().await;
        let new = limit.acquire(FLOOD.into());
        assert_eq!(all.iter().map(|it| is_closed(it)).collect::<Vec<_>>(), [false, true, false]);
        assert!(!is_closed(&new));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_closed_in_the_order_unread_idle_waiting_new() {
        let limit = ConnectionLimit::new(6, Clock::system());
        let (mut all, mut requests) = (Vec::new(), Vec::new());
        for kind in ["waiting", "idle", "unread"] {
            for number in 1..=2 {
                advance_a_millisecond().await;
                let slot = limit.acquire(FLOOD.into());
                match kind {
                    "waiting" => requests.push(slot.begin_request()),
                    "unread" => requests.push(unread_request(&slot)),
                    _ => {}
                }
                all.push((format!("{kind} {number}"), slot));
            }
        }
        tokio::time::advance(GRACE).await;
        let mut closed = Vec::new();
        for number in 1..=8 {
            advance_a_millisecond().await;
            all.push((format!("new {number}"), limit.acquire(FLOOD.into())));
            let first = all.iter().position(|(_, it)| is_closed(it)).unwrap();
            closed.push(all.remove(first).0);
        }
        let want = ["unread 1", "unread 2", "idle 1", "idle 2", "waiting 1", "waiting 2", "new 1", "new 2"];
        assert_eq!(closed, want);
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_active_until_its_response_is_read() {
        let limit = ConnectionLimit::new(1, Clock::system());
        let slot = limit.acquire(FLOOD.into());
        let begun_at = limit.0.clock.now();
        let request = unread_request(&slot);
        advance_a_millisecond().await;
        assert_eq!(slot.oldest_request(), Some(begun_at));
        drop(request);
        assert_eq!(slot.oldest_request(), None);
    }

    /// The address of each connection of a flood, by number.
    type Source = fn(u16) -> IpAddr;
    /// The action of the flood on each connection.
    type Action = fn(&ConnectionSlot) -> Option<ActiveRequest>;

    #[tokio::test(start_paused = true)]
    async fn flood_from_the_probes_host_or_from_many_hosts_does_not_close_the_probe() {
        let hosts: [(&str, Source); 2] = [
            ("its own host", |_| KUBELET.into()),
            ("a host each", |number: u16| {
                let [high, low] = number.to_be_bytes();
                [10, 1, high, low].into()
            }),
        ];
        let actions: [(&str, Action); 3] = [
            ("sends nothing", |_: &ConnectionSlot| None),
            ("waits", |slot: &ConnectionSlot| Some(slot.begin_request())),
            ("does not read the response", |slot: &ConnectionSlot| Some(unread_request(slot))),
        ];
        for (host, source) in hosts {
            for (what, action) in actions {
                check_flood(&format!("{host} {what}"), source, action).await;
            }
        }
    }

    async fn check_flood(what: &str, source: Source, action: Action) {
        let limit = ConnectionLimit::new(128, Clock::system());
        let (mut flood, mut probes) = (Vec::new(), Vec::new());
        for number in 0..500 {
            // 50 connections per second: no more of them arrive within `GRACE` than there are slots.
            tokio::time::advance(Duration::from_millis(20)).await;
            let slot = limit.acquire(source(number));
            flood.push((action(&slot), slot));
            // A probe sends its request half a second after it connects. Meanwhile another probe connects.
            if number % 25 == 0 {
                probes.push(limit.acquire(KUBELET.into()));
            }
            if probes.len() == 2 {
                let probe = probes.remove(0);
                assert!(!is_closed(&probe), "{what}: {number}");
                drop(unread_request(&probe));
            }
        }
        assert!(flood.iter().any(|(_, it)| is_closed(it)), "{what}");
    }

    #[tokio::test(start_paused = true)]
    async fn busy_flood_from_one_host_does_not_close_connections_of_another() {
        type Flood = fn(u16) -> IpAddr;
        let hosts: [(IpAddr, Flood); 2] = [
            (KUBELET.into(), |_| FLOOD.into()),
            // One host that uses another address for each connection.
            ([0x2001_u16, 0xdb8, 0, 8, 0, 0, 0, 1].into(), |last| [0x2001_u16, 0xdb8, 0, 7, 0, 0, 0, last].into()),
        ];
        for (kubelet, flood) in hosts {
            let limit = ConnectionLimit::new(4, Clock::system());
            // Two connections in the handshake, without a request.
            let handshakes = [limit.acquire(kubelet), limit.acquire(kubelet)];
            for number in 0..100 {
                advance_a_millisecond().await;
                let slot = limit.acquire(flood(number));
                std::mem::forget(slot.begin_request());
                std::mem::forget(slot);
            }
            assert!(handshakes.iter().all(|it| !it.close.is_cancelled()), "{kubelet}");
            assert_eq!(limit.0.table.lock().connections.len(), 4);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn peer_with_the_most_connections_loses_one_of_its_own() {
        let limit = ConnectionLimit::new(4, Clock::system());
        let kubelet = [limit.acquire(KUBELET.into()), limit.acquire(KUBELET.into())];
        let flood = [limit.acquire(FLOOD.into()), limit.acquire(FLOOD.into())];
        let _new = limit.acquire(FLOOD.into());
        assert!(kubelet.iter().all(|it| !it.close.is_cancelled()));
        assert!(flood[0].close.is_cancelled() && !flood[1].close.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_connection_releases_its_slot() {
        let limit = ConnectionLimit::new(1, Clock::system());
        let first = limit.acquire(FLOOD.into());
        drop(first);
        assert!(limit.0.table.lock().connections.is_empty());
    }
}
