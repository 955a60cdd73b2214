//! Limits for concurrent requests and for repeated log lines.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use parking_lot::Mutex;

/// A limit for concurrent requests. A peer gets at most half of it, so that one peer alone does not block the others.
pub(crate) struct Room {
    most: usize,
    inside: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One counted request; dropping it removes it from the count.
pub(crate) struct Inside {
    room: Arc<Room>,
    peer: IpAddr,
}

impl Room {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inside: Mutex::default() })
    }

    /// Counts one more request of `peer`; `None` if the limit is reached.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Inside> {
        let mut inside = self.inside.lock();
        let all: usize = inside.values().sum();
        let own = inside.entry(peer).or_default();
        if all >= self.most || *own >= self.most / 2 {
            if *own == 0 {
                inside.remove(&peer);
            }
            return None;
        }
        *own += 1;
        Some(Inside { room: self.clone(), peer })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut inside = self.room.inside.lock();
        if let Some(own) = inside.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                inside.remove(&self.peer);
            }
        }
    }
}

/// The minimum time between two log lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits repeated log lines, so that a client with invalid requests does not fill the log.
pub(crate) struct Sparing {
    clock: Clock,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    last: Option<Instant>,
    withheld: u64,
}

impl Sparing {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, told: Mutex::default() }
    }

    /// `None` if no line may be logged now; otherwise the number of lines that were suppressed since the last one.
    pub(crate) fn tell(&self) -> Option<u64> {
        let now = self.clock.now();
        let mut told = self.told.lock();
        if told.last.is_some_and(|it| now - it < PAUSE) {
            told.withheld += 1;
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const THIRD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));

    #[test]
    fn one_gets_half_and_all_get_what_there_is() {
        let room = Room::new(4);
        let (first, _second) = (room.enter(ONE).unwrap(), room.enter(ONE).unwrap());
        assert!(room.enter(ONE).is_none(), "half of it");
        let others = [room.enter(OTHER).unwrap(), room.enter(OTHER).unwrap()];
        assert!(room.enter(THIRD).is_none(), "it is full");
        drop(first);
        let third = room.enter(THIRD).unwrap();
        drop((others, third));
        assert_eq!(*room.inside.lock(), BTreeMap::from([(ONE, 1)]), "nobody is remembered who is not inside");
    }

    #[tokio::test(start_paused = true)]
    async fn one_complaint_of_many_is_told_and_the_others_are_counted() {
        let sparing = Sparing::new(Clock::system());
        assert_eq!([sparing.tell(), sparing.tell(), sparing.tell()], [Some(0), None, None]);
        tokio::time::advance(PAUSE).await;
        assert_eq!([sparing.tell(), sparing.tell()], [Some(2), None]);
    }
}
