//! Who is connected, and who goes when somebody new wants in.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use clock::{Clock, Instant};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The connections of one server.
///
/// A new one always gets a place: where all are taken, one of the peer that holds the most of them goes. So neither many
/// connections nor slow or busy ones keep a probe out, nor cut off one that is there.
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
    /// As [`peer`] has it.
    peer: IpAddr,
    /// When each request under way began, by number.
    doing: BTreeMap<u64, Instant>,
    /// The last beginning or end of anything.
    moved: Instant,
    leave: CancellationToken,
}

/// The place of one connection; given back when dropped.
pub(crate) struct Place {
    /// Whose it is, as [`peer`] has it.
    pub(crate) peer: IpAddr,
    places: Places,
    id: u64,
    leave: CancellationToken,
}

/// One request under way; over when dropped.
pub(crate) struct Doing {
    places: Places,
    connection: u64,
    id: u64,
}

/// Whom an address counts for: an IPv6 host has 2⁶⁴ of them.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

impl Places {
    pub(crate) fn new(most: usize, clock: Clock) -> Self {
        Self(Arc::new(Inner { most, clock, table: Mutex::default() }))
    }

    /// A place for a connection from `address`; somebody else loses theirs when all are taken.
    pub(crate) fn take(&self, address: IpAddr) -> Arc<Place> {
        let peer = peer(address);
        let now = self.0.clock.now();
        let leave = CancellationToken::new();
        let mut table = self.0.table.lock();
        while table.live.len() >= self.0.most.max(1) {
            let Some(evicted) = table.least_worthy(peer).and_then(|id| table.live.remove(&id)) else { break };
            tracing::debug!(peer = %evicted.peer, "closed a connection to make room for a new one");
            evicted.leave.cancel();
        }
        let id = table.number();
        table.live.insert(id, Live { peer, doing: BTreeMap::new(), moved: now, leave: leave.clone() });
        Arc::new(Place { peer, places: self.clone(), id, leave })
    }
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// One of the peer that would hold the most places once `new` has another; of these one that does nothing before one
    /// that waits for an answer; then the one that has been silent for longest.
    fn least_worthy(&self, new: IpAddr) -> Option<u64> {
        let mut held = BTreeMap::from([(new, 1_usize)]);
        for live in self.live.values() {
            *held.entry(live.peer).or_default() += 1;
        }
        let worth =
            |live: &Live| (Reverse(held.get(&live.peer).copied().unwrap_or(0)), !live.doing.is_empty(), live.moved);
        self.live.iter().min_by_key(|(id, live)| (worth(live), **id)).map(|(id, _)| *id)
    }
}

impl Place {
    /// Ends when the place was given to somebody else.
    pub(crate) async fn lost(&self) {
        self.leave.cancelled().await;
    }

    /// Notes that a request begins.
    pub(crate) fn begin(&self) -> Doing {
        let now = self.places.0.clock.now();
        let mut table = self.places.0.table.lock();
        let id = table.number();
        if let Some(live) = table.live.get_mut(&self.id) {
            live.moved = now;
            live.doing.insert(id, now);
        }
        Doing { places: self.places.clone(), connection: self.id, id }
    }

    /// When the oldest request under way began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.places.0.table.lock().live.get(&self.id)?.doing.values().min().copied()
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
    use std::time::Duration;

    use super::*;

    const FLOOD: [u8; 4] = [10, 0, 0, 1];
    const KUBELET: [u8; 4] = [10, 0, 0, 2];

    async fn later() {
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_takes_the_place_of_the_longest_idle() {
        let places = Places::new(3, Clock::system());
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(places.take(FLOOD.into()));
            later().await;
        }
        // The first one asked something since: it moved last.
        drop(all[0].begin());
        later().await;
        let new = places.take(FLOOD.into());
        let lost = |it: &Place| it.leave.is_cancelled();
        assert_eq!(all.iter().map(|it| lost(it)).collect::<Vec<_>>(), [false, true, false]);
        assert!(!lost(&new));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_stays_before_who_does_nothing() {
        let places = Places::new(2, Clock::system());
        let waits = places.take(FLOOD.into());
        let request = waits.begin();
        later().await;
        let idle = places.take(FLOOD.into());
        let _new = places.take(FLOOD.into());
        assert!(idle.leave.is_cancelled() && !waits.leave.is_cancelled());
        assert!(waits.oldest().is_some());
        drop(request);
        assert!(waits.oldest().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_flood_from_one_host_does_not_push_out_another() {
        type Flood = fn(u16) -> IpAddr;
        let hosts: [(IpAddr, Flood); 2] = [
            (KUBELET.into(), |_| FLOOD.into()),
            // One host with an address of its own for each connection.
            ([0x2001_u16, 0xdb8, 0, 8, 0, 0, 0, 1].into(), |last| [0x2001_u16, 0xdb8, 0, 7, 0, 0, 0, last].into()),
        ];
        for (kubelet, flood) in hosts {
            let places = Places::new(4, Clock::system());
            // Two that shake hands: nothing is asked yet.
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
