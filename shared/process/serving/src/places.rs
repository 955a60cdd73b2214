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
const FEW: usize = 2;

/// The connections of one server.
///
/// A new connection always gets a place. If all places are taken, a connection of the peer with the most connections is
/// closed, in the order of [`Worth`]. So many, slow or busy connections from any host neither block a new probe nor
/// close a running one. The only exception: as many connections as there are places arrive while one probe does its
/// handshake and sends its request.
#[derive(Clone)]
pub(crate) struct Places(Arc<Inner>);

struct Inner {
    most: usize,
    clock: Clock,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    live: BTreeMap<u64, Live>,
}

struct Live {
    /// The result of [`peer`] for its address.
    peer: IpAddr,
    came: Instant,
    /// The requests in flight, by number.
    doing: BTreeMap<u64, Request>,
    /// When the connection was accepted, or a request last began or ended.
    moved: Instant,
    leave: CancellationToken,
}

struct Request {
    begun: Instant,
    /// When the response was ready. From then on only the client causes delay.
    answered: Option<Instant>,
}

/// The state of a connection. Connections are closed in this order. Of two connections in the same state, the one that
/// is in it for longer is closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// The client does not read a response that is ready.
    Unread,
    /// No request is in flight.
    Idle,
    /// A request waits for its response. The request limits allow fewer of these connections than there are places.
    Waiting,
    /// The connection was accepted less than [`GRACE`] ago.
    New,
}

/// The place of one connection; dropping it releases the place.
pub(crate) struct Place {
    /// The result of [`peer`] for the client's address.
    pub(crate) peer: IpAddr,
    places: Places,
    id: u64,
    leave: CancellationToken,
}

/// One request in flight. It is dropped when the client has read the response; this ends it.
pub(crate) struct Doing {
    places: Places,
    connection: u64,
    id: u64,
}

/// The peer to which an address belongs. An IPv6 host has 2⁶⁴ addresses, so its /64 prefix is one peer. Each host has
/// 2²⁴ loopback addresses of IPv4 and one of IPv6, so these are one peer too.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

impl Places {
    pub(crate) fn new(most: usize, clock: Clock) -> Self {
        Self(Arc::new(Inner { most, clock, table: Mutex::default() }))
    }

    /// Returns a place for a connection from `address`. If all places are taken, another connection is closed.
    pub(crate) fn take(&self, address: IpAddr) -> Arc<Place> {
        let peer = peer(address);
        let now = self.0.clock.now();
        let leave = CancellationToken::new();
        let mut table = self.0.table.lock();
        while table.live.len() >= self.0.most.max(1) {
            let Some(evicted) = table.least_worthy(peer, now).and_then(|id| table.live.remove(&id)) else { break };
            tracing::debug!(peer = %evicted.peer, "closed a connection to make room for a new one");
            evicted.leave.cancel();
        }
        let id = table.number();
        let live = Live { peer, came: now, doing: BTreeMap::new(), moved: now, leave: leave.clone() };
        table.live.insert(id, live);
        Arc::new(Place { peer, places: self.clone(), id, leave })
    }
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The connection to close: one of the peer with the most connections, counting one more for `new`, and of these
    /// the first in the order of [`Worth`].
    fn least_worthy(&self, new: IpAddr, now: Instant) -> Option<u64> {
        let mut held = BTreeMap::from([(new, 1_usize)]);
        for live in self.live.values() {
            *held.entry(live.peer).or_default() += 1;
        }
        let share = |live: &Live| Reverse(held.get(&live.peer).copied().unwrap_or(0).max(FEW));
        self.live.iter().min_by_key(|(id, live)| (share(live), live.worth(now), **id)).map(|(id, _)| *id)
    }
}

impl Live {
    /// The state of the connection, and since when.
    fn worth(&self, now: Instant) -> (Worth, Instant) {
        if let Some(since) = self.doing.values().filter_map(|it| it.answered).min() {
            (Worth::Unread, since)
        } else if now - self.came < GRACE {
            (Worth::New, self.came)
        } else if let Some(since) = self.doing.values().map(|it| it.begun).min() {
            (Worth::Waiting, since)
        } else {
            (Worth::Idle, self.moved)
        }
    }
}

impl Place {
    /// Waits until the place is given to another connection.
    pub(crate) async fn lost(&self) {
        self.leave.cancelled().await;
    }

    /// Records that a request begins.
    pub(crate) fn begin(&self) -> Doing {
        let now = self.places.0.clock.now();
        let mut table = self.places.0.table.lock();
        let id = table.number();
        if let Some(live) = table.live.get_mut(&self.id) {
            live.moved = now;
            live.doing.insert(id, Request { begun: now, answered: None });
        }
        Doing { places: self.places.clone(), connection: self.id, id }
    }

    /// When the oldest request in flight began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.places.0.table.lock().live.get(&self.id)?.doing.values().map(|it| it.begun).min()
    }
}

impl Doing {
    /// Records that the response is ready. From now on only the client causes delay.
    pub(crate) fn answered(&self) {
        let now = self.places.0.clock.now();
        let mut table = self.places.0.table.lock();
        if let Some(request) = table.live.get_mut(&self.connection).and_then(|it| it.doing.get_mut(&self.id)) {
            request.answered = Some(now);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.table.lock().live.remove(&self.id);
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let now = self.places.0.clock.now();
        if let Some(live) = self.places.0.table.lock().live.get_mut(&self.connection) {
            live.doing.remove(&self.id);
            live.moved = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: [u8; 4] = [10, 0, 0, 1];
    const KUBELET: [u8; 4] = [10, 0, 0, 2];

    async fn later() {
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    fn lost(place: &Place) -> bool {
        place.leave.is_cancelled()
    }

    /// A request whose client does not read the response.
    fn unread(place: &Place) -> Doing {
        let request = place.begin();
        request.answered();
        request
    }

    #[test]
    fn every_address_of_the_loopback_is_one_peer() {
        let of = |text: &str| peer(text.parse().unwrap());
        for other in ["127.0.0.1", "127.45.6.7", "::1", "::ffff:127.0.0.9"] {
            assert_eq!(of(other), of("127.0.0.2"), "{other}");
        }
        for other in ["10.0.0.2", "128.0.0.1", "::2"] {
            assert_ne!(of(other), of("127.0.0.1"), "{other}");
            assert_ne!(of(other), of("10.0.0.1"), "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_takes_the_place_of_the_longest_idle() {
        let places = Places::new(3, Clock::system());
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(places.take(FLOOD.into()));
            later().await;
        }
        tokio::time::advance(GRACE).await;
        // The first connection had a request since, so it is the last that became idle.
        drop(all[0].begin());
        later().await;
        let new = places.take(FLOOD.into());
        assert_eq!(all.iter().map(|it| lost(it)).collect::<Vec<_>>(), [false, true, false]);
        assert!(!lost(&new));
    }

    #[tokio::test(start_paused = true)]
    async fn unread_answers_go_first_then_who_is_idle_then_who_waits_and_newcomers_last() {
        let places = Places::new(6, Clock::system());
        let (mut all, mut requests) = (Vec::new(), Vec::new());
        for kind in ["waiting", "idle", "unread"] {
            for number in 1..=2 {
                later().await;
                let place = places.take(FLOOD.into());
                match kind {
                    "waiting" => requests.push(place.begin()),
                    "unread" => requests.push(unread(&place)),
                    _ => {}
                }
                all.push((format!("{kind} {number}"), place));
            }
        }
        tokio::time::advance(GRACE).await;
        let mut gone = Vec::new();
        for number in 1..=8 {
            later().await;
            all.push((format!("new {number}"), places.take(FLOOD.into())));
            let first = all.iter().position(|(_, it)| lost(it)).unwrap();
            gone.push(all.remove(first).0);
        }
        let want = ["unread 1", "unread 2", "idle 1", "idle 2", "waiting 1", "waiting 2", "new 1", "new 2"];
        assert_eq!(gone, want);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_under_way_until_its_answer_was_taken() {
        let places = Places::new(1, Clock::system());
        let place = places.take(FLOOD.into());
        let begun = places.0.clock.now();
        let request = unread(&place);
        later().await;
        assert_eq!(place.oldest(), Some(begun));
        drop(request);
        assert_eq!(place.oldest(), None);
    }

    /// The address of each connection of a flood, by number.
    type Source = fn(u16) -> IpAddr;
    /// The action of the flood on each connection.
    type Deed = fn(&Place) -> Option<Doing>;

    #[tokio::test(start_paused = true)]
    async fn a_flood_from_a_probes_own_host_or_from_many_does_not_push_it_out() {
        let hosts: [(&str, Source); 2] = [
            ("its own host", |_| KUBELET.into()),
            ("a host each", |number: u16| {
                let [high, low] = number.to_be_bytes();
                [10, 1, high, low].into()
            }),
        ];
        let deeds: [(&str, Deed); 3] = [
            ("says nothing", |_: &Place| None),
            ("waits", |place: &Place| Some(place.begin())),
            ("reads no answer", |place: &Place| Some(unread(place))),
        ];
        for (host, source) in hosts {
            for (what, deed) in deeds {
                flooded(&format!("{host} {what}"), source, deed).await;
            }
        }
    }

    async fn flooded(what: &str, source: Source, deed: Deed) {
        let places = Places::new(128, Clock::system());
        let (mut flood, mut probes) = (Vec::new(), Vec::new());
        for number in 0..500 {
            // 50 connections per second: no more of them arrive within `GRACE` than there are places.
            tokio::time::advance(Duration::from_millis(20)).await;
            let place = places.take(source(number));
            flood.push((deed(&place), place));
            // A probe sends its request half a second after it connects. Meanwhile another probe connects.
            if number % 25 == 0 {
                probes.push(places.take(KUBELET.into()));
            }
            if probes.len() == 2 {
                let probe = probes.remove(0);
                assert!(!lost(&probe), "{what}: {number}");
                drop(unread(&probe));
            }
        }
        assert!(flood.iter().any(|(_, it)| lost(it)), "{what}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_flood_from_one_host_does_not_push_out_another() {
        type Flood = fn(u16) -> IpAddr;
        let hosts: [(IpAddr, Flood); 2] = [
            (KUBELET.into(), |_| FLOOD.into()),
            // One host that uses another address for each connection.
            ([0x2001_u16, 0xdb8, 0, 8, 0, 0, 0, 1].into(), |last| [0x2001_u16, 0xdb8, 0, 7, 0, 0, 0, last].into()),
        ];
        for (kubelet, flood) in hosts {
            let places = Places::new(4, Clock::system());
            // Two connections in the handshake, without a request.
            let handshakes = [places.take(kubelet), places.take(kubelet)];
            for number in 0..100 {
                later().await;
                let place = places.take(flood(number));
                std::mem::forget(place.begin());
                std::mem::forget(place);
            }
            assert!(handshakes.iter().all(|it| !it.leave.is_cancelled()), "{kubelet}");
            assert_eq!(places.0.table.lock().live.len(), 4);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_and_holds_as_many_as_another_gives_one_of_their_own() {
        let places = Places::new(4, Clock::system());
        let kubelet = [places.take(KUBELET.into()), places.take(KUBELET.into())];
        let flood = [places.take(FLOOD.into()), places.take(FLOOD.into())];
        let _new = places.take(FLOOD.into());
        assert!(kubelet.iter().all(|it| !it.leave.is_cancelled()));
        assert!(flood[0].leave.is_cancelled() && !flood[1].leave.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_given_back() {
        let places = Places::new(1, Clock::system());
        let first = places.take(FLOOD.into());
        drop(first);
        assert!(places.0.table.lock().live.is_empty());
    }
}
