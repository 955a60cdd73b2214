//! Limits concurrent requests.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;

/// A limit for concurrent requests. A peer gets at most half of it, so that one peer alone does not block the others.
pub(crate) struct RequestLimit {
    max: usize,
    in_flight: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One counted request; dropping it removes it from the count.
pub(crate) struct RequestPermit {
    limit: Arc<RequestLimit>,
    peer: IpAddr,
}

impl RequestLimit {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, in_flight: Mutex::default() })
    }

    /// Counts one more request of `peer`; `None` if the limit is reached.
    pub(crate) fn acquire(self: &Arc<Self>, peer: IpAddr) -> Option<RequestPermit> {
        let mut in_flight = self.in_flight.lock();
        let total: usize = in_flight.values().sum();
        let of_peer = in_flight.entry(peer).or_default();
        if total >= self.max || *of_peer >= self.max / 2 {
            if *of_peer == 0 {
                in_flight.remove(&peer);
            }
            return None;
        }
        *of_peer += 1;
        Some(RequestPermit { limit: self.clone(), peer })
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut in_flight = self.limit.in_flight.lock();
        if let Some(of_peer) = in_flight.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                in_flight.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const THIRD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));

    #[test]
    fn one_peer_gets_half_of_the_limit_and_all_peers_get_all_of_it() {
        let limit = RequestLimit::new(4);
        let (first, _second) = (limit.acquire(ONE).unwrap(), limit.acquire(ONE).unwrap());
        assert!(limit.acquire(ONE).is_none(), "half of the limit");
        let others = [limit.acquire(OTHER).unwrap(), limit.acquire(OTHER).unwrap()];
        assert!(limit.acquire(THIRD).is_none(), "all of the limit");
        drop(first);
        let third = limit.acquire(THIRD).unwrap();
        drop((others, third));
        assert_eq!(*limit.in_flight.lock(), BTreeMap::from([(ONE, 1)]), "only peers with a request are counted");
    }
}
