use api::Uid;
use clock::Clock;

use super::*;

const SEC: Duration = Duration::from_secs(1);

fn item(number: u32) -> Item {
    Item::Observed(Uid::new(&format!("uid-{number}")))
}

fn named(number: u32) -> Coordinates {
    Coordinates {
        kind: "Pod".into(),
        api_version: "v1".into(),
        namespace: "ns".into(),
        name: format!("pod-{number}").into(),
        uid: Uid::new(&format!("uid-{number}")),
    }
}

fn take(limiter: &mut DeleteLimiter, number: u32, now: Instant) -> Result<(), Duration> {
    limiter.take(&item(number), &named(number), now)
}

#[test]
fn zero_means_no_limit() {
    let (mut limiter, now) = (DeleteLimiter::new(0), Clock::system().now());
    for number in 0..10_000 {
        assert_eq!(take(&mut limiter, number, now), Ok(()));
        limiter.record_response(now);
    }
    assert!(limiter.responses.is_empty() && limiter.report(now).is_none());
}

#[test]
fn a_slot_is_free_a_minute_after_the_response() {
    let (mut limiter, now) = (DeleteLimiter::new(2), Clock::system().now());
    assert_eq!(take(&mut limiter, 1, now), Ok(()));
    assert_eq!(take(&mut limiter, 2, now), Ok(()));
    assert_eq!(take(&mut limiter, 3, now), Err(60 * SEC), "both have no response yet");
    limiter.record_response(now + SEC);
    assert_eq!(take(&mut limiter, 3, now + 2 * SEC), Err(59 * SEC), "one had its response a second ago");
    assert_eq!(take(&mut limiter, 3, now + 61 * SEC - Duration::from_nanos(1)), Err(Duration::from_millis(1)));
    assert_eq!(take(&mut limiter, 3, now + 61 * SEC), Ok(()));
    assert_eq!(
        take(&mut limiter, 4, now + 120 * SEC),
        Err(60 * SEC),
        "two have no response yet, the second for two minutes"
    );
}

#[test]
fn a_cancelled_delete_does_not_count() {
    let (mut limiter, now) = (DeleteLimiter::new(1), Clock::system().now());
    assert_eq!(take(&mut limiter, 1, now), Ok(()));
    limiter.cancel();
    assert_eq!(take(&mut limiter, 2, now), Ok(()));
}

#[test]
fn held_items_get_slots_in_their_order() {
    let (mut limiter, now) = (DeleteLimiter::new(2), Clock::system().now());
    for (number, at) in [(1, now), (2, now + 10 * SEC)] {
        assert_eq!(take(&mut limiter, number, at), Ok(()));
        limiter.record_response(at);
    }
    let at = now + 20 * SEC;
    let waits: Vec<Duration> = (3..8).filter_map(|number| take(&mut limiter, number, at).err()).collect();
    assert_eq!(waits, [40 * SEC, 50 * SEC, 100 * SEC, 110 * SEC, 160 * SEC]);
    assert_eq!(limiter.held_count(), 5);
    let at = now + 60 * SEC;
    assert!(take(&mut limiter, 8, at).is_err(), "a new item comes after the waiting ones");
    assert_eq!(take(&mut limiter, 3, at), Ok(()));
    limiter.record_response(at);
    assert!(limiter.is_held(&item(4)) && !limiter.is_held(&item(3)));
    limiter.remove(&item(4));
    assert_eq!(limiter.held_count(), 4, "5, 6, 7 and the new one");
}

#[test]
fn an_early_retry_keeps_its_position_and_the_whole_limit_is_used() {
    // Each delete takes a moment, so the slots of the second round become free after their items retry.
    let (limit, call, many) = (60, Duration::from_millis(50), 1_000);
    let (mut limiter, began) = (DeleteLimiter::new(limit), Clock::system().now());
    let mut comes: std::collections::BTreeSet<(Instant, u32)> = (0..many).map(|number| (began, number)).collect();
    let (mut flying, mut passes, mut gone) = (VecDeque::<Instant>::new(), 0, Vec::new());
    while let Some((now, number)) = comes.pop_first() {
        while let Some(answer) = flying.pop_front_if(|it| *it <= now) {
            limiter.record_response(answer);
        }
        passes += 1;
        match take(&mut limiter, number, now) {
            Ok(()) => {
                flying.push_back(now + call);
                gone.push(number);
            }
            Err(retry_after) => drop(comes.insert((now + retry_after, number))),
        }
        // All workers are busy for this long.
        assert!(now < began + 17 * MINUTE, "{} of {many} went", gone.len());
    }
    assert_eq!(gone, (0..many).collect::<Vec<_>>(), "in the order of the queue");
    assert!(passes < 10 * many, "{passes}");
}

#[test]
fn no_minute_of_the_server_exceeds_the_limit() {
    let (limit, mut rng) = (7, fastrand::Rng::with_seed(3));
    let (mut limiter, began) = (DeleteLimiter::new(limit), Clock::system().now());
    let (mut done, mut flying, mut now) = (Vec::<Instant>::new(), Vec::<Instant>::new(), began);
    for number in 0..5_000 {
        now += Duration::from_millis(rng.u64(0..4_000));
        // The server executes each delete at any time before its response, and responds at any time after that.
        flying.retain(|sent| {
            let is_answered = rng.u8(0..4) == 0;
            if is_answered {
                done.push(*sent + (now - *sent).mul_f64(rng.f64()));
                limiter.record_response(now);
            }
            !is_answered
        });
        if take(&mut limiter, number % 40, now).is_ok() {
            flying.push(now);
        }
    }
    done.sort();
    assert!(done.len() > 500, "{}", done.len());
    for window in done.windows(limit as usize + 1) {
        assert!(window[limit as usize] - window[0] >= MINUTE, "{window:?}");
    }
}

#[test]
fn held_items_are_reported_once_a_minute() {
    let (mut limiter, now) = (DeleteLimiter::new(1), Clock::system().now());
    assert_eq!(take(&mut limiter, 0, now), Ok(()));
    assert_eq!(limiter.report(now), None);
    for number in 1..6 {
        assert!(take(&mut limiter, number, now).is_err());
    }
    let examples: Vec<String> = (1..4).map(|it| named(it).to_string()).collect();
    assert_eq!(limiter.report(now), Some(Report { held: 5, examples }));
    assert_eq!(limiter.report(now + 59 * SEC), None);
    assert!(take(&mut limiter, 6, now + 59 * SEC).is_err());
    let examples = vec![named(6).to_string()];
    assert_eq!(limiter.report(now + 60 * SEC), Some(Report { held: 6, examples }));
}

#[test]
fn a_suspended_item_blocks_no_other_and_keeps_its_position() {
    let (mut limiter, now) = (DeleteLimiter::new(1), Clock::system().now());
    assert_eq!(take(&mut limiter, 1, now), Ok(()));
    limiter.record_response(now);
    for number in 2..5 {
        assert!(take(&mut limiter, number, now).is_err());
    }
    limiter.suspend(&item(2));
    limiter.suspend(&item(3));
    limiter.suspend(&item(9));
    assert_eq!((limiter.held_count(), limiter.is_held(&item(2)), limiter.is_held(&item(9))), (3, true, false));
    assert_eq!(take(&mut limiter, 5, now + SEC), Err(119 * SEC), "after one item, not after three");
    assert_eq!(take(&mut limiter, 4, now + 60 * SEC), Ok(()));
    limiter.record_response(now + 60 * SEC);
    assert_eq!(take(&mut limiter, 2, now + 61 * SEC), Err(59 * SEC), "before the item that came later");
    assert_eq!(take(&mut limiter, 5, now + 61 * SEC), Err(119 * SEC));
    limiter.remove(&item(3));
    assert_eq!(limiter.held_count(), 2);
}
