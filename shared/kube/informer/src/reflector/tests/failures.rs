//! Requests that are refused, cut or answered with garbage, and the delays after them.

use client::ApiError;

use super::*;

#[test]
fn acceptance_machinery_007_refused_connections_and_429_are_retried_with_backoff_and_no_list() {
    for failure in [Failure::Unreachable, Failure::Busy(None)] {
        let mut rig = typed();
        for _ in 0..4 {
            rig.expect_set("");
            rig.refused(failure);
            rig.expect_wait();
        }
        let mut rig = typed().watching(20);
        rig.pass(60 * SECOND).ended(StreamEnd::Clean);
        for _ in 0..4 {
            rig.expect_watch(20);
            rig.refused(failure);
            assert!(rig.expect_wait() >= Duration::from_millis(800));
        }
    }
    // The server's Retry-After counts when it is longer. A 429 in the stream is no reason to list either.
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Busy(Some(45 * SECOND)));
    assert_eq!(rig.expect_wait(), 45 * SECOND);
    let mut rig = typed().watching(20);
    assert_eq!(rig.error(429), FrameAction::Stop { expired: false });
    rig.expect_wait();
    rig.expect_watch(20);

    // At most one minute.
    let mut rig = typed().watching(20);
    let mut endless = error(429);
    endless.details.retry_after_seconds = u32::MAX;
    assert_eq!(rig.frame(&ReceivedFrame::Error(&endless)), FrameAction::Stop { expired: false });
    assert_eq!(rig.expect_wait(), 60 * SECOND);
    rig.expect_watch(20);
}

#[test]
fn acceptance_machinery_008_delays_double_to_30_s_with_jitter_and_restart_after_two_minutes_without_failure() {
    let mut rig = typed();
    let fail = |rig: &mut Rig| {
        rig.next();
        rig.refused(Failure::Unreachable);
        rig.expect_wait()
    };
    let mut jitter = BTreeMap::new();
    for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0] {
        let delay = fail(&mut rig).as_secs_f64();
        assert!((base..base * 2.0).contains(&delay), "{delay} is not {base} and up to as much again");
        jitter.insert((delay / base * 1e6) as u64, ());
    }
    assert!(jitter.len() >= 8, "two equal values may be chance, but the jitter must not be constant");
    rig.pass(120 * SECOND);
    assert!(fail(&mut rig).as_secs_f64() < 1.6);
}

#[test]
fn acceptance_machinery_009_a_watch_that_ends_within_a_second_without_a_frame_backs_off() {
    let mut rig = typed().watching(20);
    rig.pass(SECOND / 2).ended(StreamEnd::Clean);
    rig.expect_wait();
    rig.expect_set("20");

    // A watch that is cut within a second backs off too, but its version is not lost.
    let mut rig = typed().watching(20);
    rig.pass(SECOND / 2).ended(StreamEnd::Broken);
    rig.expect_wait();
    rig.expect_watch(20);

    // With a frame it is not an error.
    let mut rig = typed().watching(20);
    rig.bookmark(21);
    rig.pass(SECOND / 2).ended(StreamEnd::Clean);
    rig.expect_watch(21);
}

#[test]
fn acceptance_machinery_023_a_forbidden_type_is_requested_with_growing_delays() {
    let mut rig = typed();
    let mut last = Duration::ZERO;
    for _ in 0..5 {
        rig.expect_set("");
        rig.refused(Failure::Other);
        rig.expect_list("limit=500&resourceVersion=0");
        rig.not_listed(Failure::Other);
        let delay = rig.expect_wait();
        assert!(delay > last / 2);
        last = delay;
    }
    assert!(last >= 12 * SECOND);
}

#[test]
fn errors_are_grouped_by_what_the_reflector_does_next() {
    let of = |code, reason: &str| {
        let status = Status { code, reason: reason.to_owned(), ..Status::default() };
        Failure::of(&ApiError::from_read(status, None))
    };
    assert_eq!(of(410, "Expired"), Failure::Expired);
    assert_eq!(of(429, "TooManyRequests"), Failure::Busy(None));
    for (code, reason) in [(400, "BadRequest"), (403, "Forbidden"), (404, "NotFound"), (422, "Invalid"), (500, "")] {
        assert_eq!(of(code, reason), Failure::Other, "{code}");
    }
    assert_eq!(Failure::of(&ApiError::unknown("connection reset")), Failure::Unreachable);
    let mut too_large = error(504);
    too_large.message = "Timeout: Too large resource version: 9, current: 3".to_owned();
    assert_eq!(Failure::of(&ApiError::from_status(too_large.clone(), Some(SECOND))), Failure::TooLarge);
    assert_eq!(Failure::of_status(&too_large), Failure::TooLarge);
    let coded_by_reason = Status { reason: "Expired".to_owned(), ..Status::default() };
    assert_eq!(Failure::of_status(&coded_by_reason), Failure::Expired);
}

#[test]
fn any_other_error_of_a_watch_ends_the_attempt() {
    for code in [500, 403, 404, 504] {
        let mut rig = typed().watching(20);
        assert_eq!(rig.error(code), FrameAction::Stop { expired: false });
        rig.expect_wait();
        rig.expect_set("20");
    }
    let mut rig = typed().watching(20);
    rig.pass(60 * SECOND).ended(StreamEnd::Clean);
    rig.next();
    rig.refused(Failure::Other);
    rig.expect_wait();
    rig.expect_set("20");
}

#[test]
fn set_is_requested_again_after_a_garbage_frame() {
    let mut rig = typed().watching(20);
    rig.added(21);
    assert_eq!(rig.frame(&ReceivedFrame::Garbage), FrameAction::Stop { expired: false });
    rig.expect_wait();
    rig.expect_set("21");
    rig.opened();
    assert_eq!(rig.frame(&ReceivedFrame::Garbage), FrameAction::Stop { expired: false });
    rig.expect_list("resourceVersion=21");
}
