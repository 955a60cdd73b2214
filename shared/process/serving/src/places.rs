//! Who is connected, and who goes when somebody new wants in.

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

/// For this long nobody asks a connection that leaves no answer unread what it is good for: it shakes hands, and asks.
const GRACE: Duration = Duration::from_secs(2);
/// Who holds no more than this holds no more than anybody: a kubelet with two probes under way is not to lose them to a
/// flood that has an address for each connection.
const FEW: usize = 2;

/// The connections of one server.
///
/// A new one always gets a place: where all are taken, one of the peer that holds the most of them goes, in the order of
/// [`Worth`]. So neither many connections nor slow or busy ones keep a probe out, nor cut off one that is there, from
/// whichever host they come; unless as many as there are places come while one probe shakes hands and asks.
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
    came: Instant,
    /// Requests under way, by number.
    doing: BTreeMap<u64, Request>,
    /// The last beginning or end of anything.
    moved: Instant,
    leave: CancellationToken,
}

struct Request {
    begun: Instant,
    /// From when on its client alone was waited for.
    answered: Option<Instant>,
}

/// What a connection does with its place; the first of these goes first, and of two that do the same the one that has done
/// so for longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// Does not take an answer that is there.
    Unread,
    /// Asks nothing.
    Idle,
    /// Waits for an answer. There is room for fewer of these than there are places.
    Waiting,
    /// Came less than [`GRACE`] ago.
    New,
}

/// The place of one connection; given back when dropped.
pub(crate) struct Place {
    /// Whose it is, as [`peer`] has it.
    pub(crate) peer: IpAddr,
    places: Places,
    id: u64,
    leave: CancellationToken,
}

/// One request under way; over when dropped, which is when its answer was taken.
pub(crate) struct Doing {
    places: Places,
    connection: u64,
    id: u64,
}

/// Whom an address counts for: an IPv6 host has 2⁶⁴ of them, and of the loopback each host has 2²⁴ and one.
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

    /// A place for a connection from `address`; somebody else loses theirs when all are taken.
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

    /// One of the peer that would hold the most places once `new` has another; of these the first that [`Worth`] names.
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
    /// What it does, and since when.
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
            live.doing.insert(id, Request { begun: now, answered: None });
        }
        Doing { places: self.places.clone(), connection: self.id, id }
    }

    /// When the oldest request under way began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.places.0.table.lock().live.get(&self.id)?.doing.values().map(|it| it.begun).min()
    }
}

impl Doing {
    /// Notes that the answer is there: what remains is the client's.
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

    /// A request whose answer its client does not take.
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
        // The first one asked something since: it moved last.
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

    /// Where the connections of a flood come from, by number.
    type Source = fn(u16) -> IpAddr;
    /// What it does with each.
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
            // 50 in a second: no more come within the grace than there are places.
            tokio::time::advance(Duration::from_millis(20)).await;
            let place = places.take(source(number));
            flood.push((deed(&place), place));
            // A probe takes half a second until it asks, and meanwhile there is another.
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
