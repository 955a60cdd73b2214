//! The order in which the addresses of a name are dialed, and the time for each.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use clock::Instant;
use parking_lot::Mutex;

/// For this long a failed address is dialed after the others.
const FAILED_FOR: Duration = Duration::from_secs(60);
/// A new leader waits no longer than 10 s for a healthy server, so the third address is dialed before that.
const MAX_SHARE: Duration = Duration::from_secs(3);
/// The minimum number of addresses that one dial tries in its time.
const MIN_ADDRESSES: u32 = 3;

/// The time of one address for TCP, TLS and the settings of HTTP/2, if there are further addresses.
///
/// Go's dialer divides only the time for TCP, with at least 2 s for each address (`partialDeadline` in `net`).
pub(super) fn share(connect_timeout: Duration) -> Duration {
    (connect_timeout / MIN_ADDRESSES).min(MAX_SHARE)
}

/// The addresses that failed recently. All pools share them.
#[derive(Clone, Default)]
pub(super) struct FailedAddresses(Arc<Mutex<BTreeMap<IpAddr, Instant>>>);

impl FailedAddresses {
    pub(super) fn insert(&self, address: IpAddr, now: Instant) {
        let mut failed = self.0.lock();
        failed.retain(|_, at| is_recent(*at, now));
        failed.insert(address, now);
    }

    /// Moves recently failed addresses to the end, the latest failure last.
    pub(super) fn sort(&self, addresses: &mut [SocketAddr], now: Instant) {
        let failed = self.0.lock();
        addresses.sort_by_key(|it| failed.get(&it.ip()).copied().filter(|at| is_recent(*at, now)));
    }
}

fn is_recent(failed: Instant, now: Instant) -> bool {
    now.saturating_duration_since(failed) < FAILED_FOR
}

/// The first address, and the first of the other family, which hyper dials 300 ms later (RFC 8305).
pub(super) fn dialed_together(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let other_family = addresses.iter().find(|it| it.is_ipv4() != first.is_ipv4());
    [first].into_iter().chain(other_family).copied().collect()
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn addresses(text: &str) -> Vec<SocketAddr> {
        text.split(' ').map(|it| SocketAddr::new(it.parse().unwrap(), 0)).collect()
    }

    #[test]
    fn failed_addresses_are_dialed_last_for_a_minute() {
        let now = Clock::system().now();
        for (name, failures, want) in [
            ("none failed", &[][..], "::1 ::2 10.0.0.1 10.0.0.2"),
            ("the first failed", &[("::1", 59)], "::2 10.0.0.1 10.0.0.2 ::1"),
            ("that is a minute ago", &[("::1", 60)], "::1 ::2 10.0.0.1 10.0.0.2"),
            ("the oldest failure comes first", &[("::1", 5), ("10.0.0.1", 9)], "::2 10.0.0.2 10.0.0.1 ::1"),
            ("all failed", &[("::1", 2), ("::2", 3), ("10.0.0.1", 1), ("10.0.0.2", 4)], "10.0.0.2 ::2 ::1 10.0.0.1"),
            ("it failed again", &[("::1", 90), ("::1", 5)], "::2 10.0.0.1 10.0.0.2 ::1"),
        ] {
            let failed = FailedAddresses::default();
            for (address, age) in failures {
                failed.insert(address.parse().unwrap(), now - SECOND * *age);
            }
            let mut sorted = addresses("::1 ::2 10.0.0.1 10.0.0.2");
            failed.sort(&mut sorted, now);
            assert_eq!(sorted, addresses(want), "{name}");
        }
    }

    #[test]
    fn one_of_each_family_is_dialed_at_once() {
        for (all, want) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1 10.0.0.2", "10.0.0.1"),
            ("::1 ::2 10.0.0.1 10.0.0.2", "::1 10.0.0.1"),
            ("10.0.0.2 ::2 ::1", "10.0.0.2 ::2"),
        ] {
            assert_eq!(dialed_together(&addresses(all)), addresses(want), "{all}");
        }
    }

    #[test]
    fn share_of_an_address_leaves_time_for_two_more() {
        for (connect_timeout, want) in [(SECOND, SECOND / 3), (5 * SECOND, 5 * SECOND / 3), (30 * SECOND, 3 * SECOND)] {
            assert_eq!(share(connect_timeout), want, "{connect_timeout:?}");
        }
    }
}
