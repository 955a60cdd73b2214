use std::thread;

use clock::Clock;

use super::*;

fn uid(text: &str) -> Uid {
    Uid::new(text)
}

fn rig() -> (Expectations, Uid, Instant) {
    (Expectations::new(), uid("6b4e1c52-8d1f-4a0b-9b6e-0123456789ab"), Clock::system().now())
}

impl Expectations {
    fn counters(&self, owner: &Uid) -> Option<(i64, i64)> {
        self.0.lock().get(owner).map(|it| (it.creations, it.deletions))
    }
}

#[test]
fn acceptance_common_001_without_a_record_expectations_are_satisfied() {
    let (expectations, owner, now) = rig();
    assert!(expectations.is_satisfied(&owner, now));
    assert_eq!(expectations.expires_at(&owner), None);
}

#[test]
fn acceptance_common_002_two_expected_creations_need_two_observed_ones() {
    let (expectations, owner, now) = rig();
    expectations.expect_creations(&owner, 2, now);
    expectations.creation_observed(&owner);
    assert!(!expectations.is_satisfied(&owner, now));
    expectations.creation_observed(&owner);
    assert!(expectations.is_satisfied(&owner, now));
}

#[test]
fn acceptance_common_003_an_observed_deletion_does_not_fulfil_a_creation() {
    let (expectations, owner, now) = rig();
    expectations.expect(&owner, 1, [uid("a")], now);
    expectations.deletion_observed(&owner, &uid("a"));
    assert_eq!(expectations.counters(&owner), Some((1, 0)));
    assert!(!expectations.is_satisfied(&owner, now));
    expectations.creation_observed(&owner);
    assert!(expectations.is_satisfied(&owner, now));
}

#[test]
fn acceptance_common_004_expectations_expire_after_five_minutes() {
    let (expectations, owner, now) = rig();
    expectations.expect_creations(&owner, 1, now);
    assert!(!expectations.is_satisfied(&owner, now + TTL), "only after the TTL");
    assert!(expectations.is_satisfied(&owner, now + TTL + Duration::from_nanos(1)));
    assert_eq!(expectations.counters(&owner), Some((1, 0)), "an expired record is kept");

    let expiry = expectations.expires_at(&owner).unwrap();
    assert!(expectations.is_satisfied(&owner, expiry), "a later sync may act");
    expectations.raise(&owner, 1, 0);
    assert_eq!(expectations.expires_at(&owner), Some(expiry), "only a new record resets the expiry");
    expectations.lower(&owner, 2, 0);
    assert_eq!(expectations.expires_at(&owner), None);
}

#[test]
fn an_expired_record_is_renewed_once_while_something_is_outstanding() {
    let (expectations, owner, now) = rig();
    assert!(!expectations.renew_expired(&owner, now), "without a record");
    expectations.expect_deletions(&owner, [uid("a"), uid("b")], now);
    let expiry = expectations.expires_at(&owner).unwrap();
    assert!(!expectations.renew_expired(&owner, now + TTL));
    assert!(expectations.renew_expired(&owner, expiry) && !expectations.renew_expired(&owner, expiry));
    assert!(!expectations.is_satisfied(&owner, expiry) && expectations.is_satisfied(&owner, expiry + TTL + TICK));
    expectations.deletion_observed(&owner, &uid("a"));
    assert_eq!(expectations.expected_deletions(&owner), [uid("b")].into());
    expectations.deletion_observed(&owner, &uid("b"));
    assert!(expectations.expected_deletions(&owner).is_empty());
    assert!(!expectations.renew_expired(&owner, expiry + TTL + TICK), "nothing is outstanding");
}

#[test]
fn acceptance_common_005_a_new_record_replaces_the_old_one() {
    let (expectations, owner, now) = rig();
    expectations.expect_creations(&owner, 3, now);
    expectations.expect_deletions(&owner, [uid("a")], now + Duration::from_secs(9));
    assert_eq!(expectations.counters(&owner), Some((0, 1)));
    assert_eq!(expectations.expires_at(&owner), Some(now + Duration::from_secs(9) + TTL + TICK));
}

#[test]
fn acceptance_common_006_more_observed_than_expected_counts_as_fulfilled() {
    let (expectations, owner, now) = rig();
    expectations.expect_creations(&owner, 0, now);
    expectations.lower(&owner, 0, 1);
    expectations.lower(&owner, 0, 1);
    assert!(expectations.is_satisfied(&owner, now));
    assert_eq!(expectations.counters(&owner), Some((0, -2)));
    expectations.expect_deletions(&owner, [uid("a")], now);
    assert!(!expectations.is_satisfied(&owner, now), "a later record starts from fresh values");
}

#[test]
fn acceptance_common_007_without_a_record_nothing_is_raised_or_lowered() {
    let (expectations, owner, now) = rig();
    expectations.raise(&owner, 1, 1);
    expectations.lower(&owner, 1, 1);
    expectations.creation_observed(&owner);
    expectations.deletion_observed(&owner, &uid("a"));
    assert_eq!(expectations.counters(&owner), None);
    assert!(expectations.is_satisfied(&owner, now));
}

#[test]
fn acceptance_common_008_concurrent_observations_are_all_counted() {
    let (expectations, owner, now) = rig();
    expectations.expect_creations(&owner, 20, now);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| expectations.creation_observed(&owner));
        }
    });
    assert_eq!(expectations.counters(&owner), Some((0, 0)));
    assert!(expectations.is_satisfied(&owner, now));
}

#[test]
fn acceptance_common_009_a_deletion_seen_twice_counts_once() {
    let (expectations, owner, now) = rig();
    expectations.expect_deletions(&owner, [uid("a"), uid("b"), uid("a")], now);
    assert_eq!(expectations.counters(&owner), Some((0, 2)), "named twice, expected once");
    expectations.deletion_observed(&owner, &uid("a"));
    expectations.deletion_observed(&owner, &uid("a"));
    assert!(!expectations.is_satisfied(&owner, now));
    assert_eq!(expectations.counters(&owner), Some((0, 1)));
    expectations.deletion_observed(&owner, &uid("b"));
    assert!(expectations.is_satisfied(&owner, now));
}

#[test]
fn acceptance_common_010_the_deletion_of_an_unexpected_pod_is_not_counted() {
    let (expectations, owner, now) = rig();
    expectations.expect(&owner, 1, [uid("a")], now);
    expectations.deletion_observed(&owner, &uid("c"));
    assert_eq!(expectations.counters(&owner), Some((1, 1)));
}

#[test]
fn acceptance_common_011_a_deleted_owner_has_no_expectations() {
    let (expectations, owner, now) = rig();
    expectations.expect_deletions(&owner, [uid("a")], now);
    expectations.delete(&owner);
    assert!(expectations.is_satisfied(&owner, now));
    expectations.expect_deletions(&owner, [uid("b")], now);
    expectations.deletion_observed(&owner, &uid("a"));
    assert_eq!(expectations.counters(&owner), Some((0, 1)), "pod a is no longer tracked");
}

#[test]
fn each_owner_has_its_own_expectations() {
    let (expectations, owner, now) = rig();
    expectations.expect_creations(&owner, 1, now);
    assert!(expectations.is_satisfied(&uid("a successor of the same name"), now));
}

#[test]
fn deletions_are_expected_in_addition_to_outstanding_creations() {
    let (expectations, owner, now) = rig();
    expectations.expect_creations(&owner, 3, now);
    expectations.creation_observed(&owner);
    assert!(expectations.has_observed_deletions(&owner, now));
    expectations.add_deletions(&owner, [uid("a")], now);
    assert_eq!(expectations.counters(&owner), Some((2, 1)));
    expectations.drop_creations(&owner);
    assert!(!expectations.is_satisfied(&owner, now) && !expectations.has_observed_deletions(&owner, now));
    expectations.deletion_observed(&owner, &uid("a"));
    assert!(expectations.is_satisfied(&owner, now) && expectations.has_observed_deletions(&owner, now));

    expectations.expect_creations(&owner, 3, now);
    let later = now + TTL + TICK;
    expectations.add_deletions(&owner, [uid("b")], later);
    assert_eq!(expectations.counters(&owner), Some((0, 1)), "expired expectations are not awaited again");
}
