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

fn take(breaker: &mut Breaker, number: u32, now: Instant) -> Result<(), Duration> {
    breaker.take(&item(number), &named(number), now)
}

#[test]
fn zero_is_no_bound() {
    let (mut breaker, now) = (Breaker::new(0), Clock::system().now());
    for number in 0..10_000 {
        assert_eq!(take(&mut breaker, number, now), Ok(()));
        breaker.answered(now);
    }
    assert!(breaker.answered.is_empty() && breaker.report(now).is_none());
}

#[test]
fn a_slot_is_free_a_minute_after_the_answer() {
    let (mut breaker, now) = (Breaker::new(2), Clock::system().now());
    assert_eq!(take(&mut breaker, 1, now), Ok(()));
    assert_eq!(take(&mut breaker, 2, now), Ok(()));
    assert_eq!(take(&mut breaker, 3, now), Err(60 * SEC), "both are on their way");
    breaker.answered(now + SEC);
    assert_eq!(take(&mut breaker, 3, now + 2 * SEC), Err(59 * SEC), "one was answered a second ago");
    assert_eq!(take(&mut breaker, 3, now + 61 * SEC - Duration::from_nanos(1)), Err(Duration::from_millis(1)));
    assert_eq!(take(&mut breaker, 3, now + 61 * SEC), Ok(()));
    assert_eq!(
        take(&mut breaker, 4, now + 120 * SEC),
        Err(60 * SEC),
        "two are on their way, the second for two minutes"
    );
}

#[test]
fn what_was_not_done_does_not_count() {
    let (mut breaker, now) = (Breaker::new(1), Clock::system().now());
    assert_eq!(take(&mut breaker, 1, now), Ok(()));
    breaker.not_done();
    assert_eq!(take(&mut breaker, 2, now), Ok(()));
}

#[test]
fn each_that_is_held_waits_for_a_slot_of_its_own_and_nobody_overtakes() {
    let (mut breaker, now) = (Breaker::new(2), Clock::system().now());
    for (number, at) in [(1, now), (2, now + 10 * SEC)] {
        assert_eq!(take(&mut breaker, number, at), Ok(()));
        breaker.answered(at);
    }
    let at = now + 20 * SEC;
    let waits: Vec<Duration> = (3..8).filter_map(|number| take(&mut breaker, number, at).err()).collect();
    assert_eq!(waits, [40 * SEC, 50 * SEC, 100 * SEC, 110 * SEC, 160 * SEC]);
    assert_eq!(breaker.held(), 5);
    let at = now + 60 * SEC;
    assert!(take(&mut breaker, 8, at).is_err(), "a newcomer stands behind those that wait");
    assert_eq!(take(&mut breaker, 3, at), Ok(()));
    breaker.answered(at);
    assert!(breaker.holds(&item(4)) && !breaker.holds(&item(3)));
    breaker.forget(&item(4));
    assert_eq!(breaker.held(), 4, "5, 6, 7 and the newcomer");
}

#[test]
fn who_comes_before_his_slot_is_free_keeps_his_place_and_all_that_is_allowed_is_used() {
    // Each delete takes a moment, so the slots of the second round become free after their items retry.
    let (limit, call, many) = (60, Duration::from_millis(50), 1_000);
    let (mut breaker, began) = (Breaker::new(limit), Clock::system().now());
    let mut comes: std::collections::BTreeSet<(Instant, u32)> = (0..many).map(|number| (began, number)).collect();
    let (mut flying, mut passes, mut gone) = (VecDeque::<Instant>::new(), 0, Vec::new());
    while let Some((now, number)) = comes.pop_first() {
        while let Some(answer) = flying.pop_front_if(|it| *it <= now) {
            breaker.answered(answer);
        }
        passes += 1;
        match take(&mut breaker, number, now) {
            Ok(()) => {
                flying.push_back(now + call);
                gone.push(number);
            }
            Err(wait) => drop(comes.insert((now + wait, number))),
        }
        // All workers are busy for this long.
        assert!(now < began + 17 * MINUTE, "{} of {many} went", gone.len());
    }
    assert_eq!(gone, (0..many).collect::<Vec<_>>(), "in their order");
    assert!(passes < 10 * many, "{passes}");
}

#[test]
fn no_minute_of_the_server_sees_too_many() {
    let (limit, mut rng) = (7, fastrand::Rng::with_seed(3));
    let (mut breaker, began) = (Breaker::new(limit), Clock::system().now());
    let (mut done, mut flying, mut now) = (Vec::<Instant>::new(), Vec::<Instant>::new(), began);
    for number in 0..5_000 {
        now += Duration::from_millis(rng.u64(0..4_000));
        // The server executes each delete at any time before its response, and responds at any time after that.
        flying.retain(|sent| {
            let is_answered = rng.u8(0..4) == 0;
            if is_answered {
                done.push(*sent + (now - *sent).mul_f64(rng.f64()));
                breaker.answered(now);
            }
            !is_answered
        });
        if take(&mut breaker, number % 40, now).is_ok() {
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
fn people_are_told_once_a_minute_what_is_held() {
    let (mut breaker, now) = (Breaker::new(1), Clock::system().now());
    assert_eq!(take(&mut breaker, 0, now), Ok(()));
    assert_eq!(breaker.report(now), None);
    for number in 1..6 {
        assert!(take(&mut breaker, number, now).is_err());
    }
    let examples: Vec<String> = (1..4).map(|it| named(it).to_string()).collect();
    assert_eq!(breaker.report(now), Some(Report { held: 5, examples }));
    assert_eq!(breaker.report(now + 59 * SEC), None);
    assert!(take(&mut breaker, 6, now + 59 * SEC).is_err());
    let examples = vec![named(6).to_string()];
    assert_eq!(breaker.report(now + 60 * SEC), Some(Report { held: 6, examples }));
}

#[test]
fn who_steps_aside_keeps_nobody_from_a_slot_and_has_his_place_when_he_comes_again() {
    let (mut breaker, now) = (Breaker::new(1), Clock::system().now());
    assert_eq!(take(&mut breaker, 1, now), Ok(()));
    breaker.answered(now);
    for number in 2..5 {
        assert!(take(&mut breaker, number, now).is_err());
    }
    breaker.steps_aside(&item(2));
    breaker.steps_aside(&item(3));
    breaker.steps_aside(&item(9));
    assert_eq!((breaker.held(), breaker.holds(&item(2)), breaker.holds(&item(9))), (3, true, false));
    assert_eq!(take(&mut breaker, 5, now + SEC), Err(119 * SEC), "behind one, and not behind three");
    assert_eq!(take(&mut breaker, 4, now + 60 * SEC), Ok(()));
    breaker.answered(now + 60 * SEC);
    assert_eq!(take(&mut breaker, 2, now + 61 * SEC), Err(59 * SEC), "before the one that came later");
    assert_eq!(take(&mut breaker, 5, now + 61 * SEC), Err(119 * SEC));
    breaker.forget(&item(3));
    assert_eq!(breaker.held(), 2);
}
