//! Streams without frames, and servers that do not answer.

use super::*;

#[test]
fn stream_silent_ten_seconds_after_its_timeout_is_frozen_and_reopened_without_list() {
    let mut rig = typed().watching(20);
    rig.pass(60 * SECOND).ended(StreamEnd::Clean);
    let seconds = rig.expect_watch(20);
    rig.opened();
    let patience = rig.expect_read();
    assert_eq!(patience, Duration::from_secs(seconds) + 10 * SECOND);
    rig.pass(patience);
    assert_eq!(rig.reflector.on_silent(rig.now), Silence::Frozen);
    assert_eq!(rig.reflector.unanswered_since(), Some(rig.now - 10 * SECOND));
    rig.expect_watch(20);
    rig.opened();
    assert_eq!(rig.reflector.unanswered_since(), None);
    // A stream that still brings frames after its timeout is not frozen.
    rig.pass(200 * SECOND);
    rig.added(21);
    assert_eq!(rig.expect_read(), 10 * SECOND);
}

#[test]
fn long_stream_of_a_typed_set_is_replaced_after_75_s_of_silence() {
    let mut rig = typed().synced(20);
    rig.pass(50 * SECOND);
    rig.added(21);
    assert_eq!(rig.expect_read(), 75 * SECOND);
    rig.pass(75 * SECOND);
    assert_eq!(rig.reflector.on_silent(rig.now), Silence::Quiet);
    assert!(
        matches!(rig.next(), ReflectorStep::Open { within: Some(it), .. } if it == 10 * SECOND),
        "healed within 90 s"
    );
    let seconds = rig.expect_watch(21);
    assert!((60..75).contains(&seconds));
    // A dynamic informer keeps its stream to the end.
    let mut rig = rig_synced_dynamic();
    assert!(rig.expect_read() > 300 * SECOND);
}

fn rig_synced_dynamic() -> Rig {
    rig(InformerKind::Dynamic).synced(20)
}

#[test]
fn a_silent_stream_and_an_unanswered_request_show_a_frozen_watch() {
    let quiet = || {
        let mut rig = typed().synced(20);
        rig.pass(75 * SECOND);
        assert_eq!(rig.reflector.on_silent(rig.now), Silence::Quiet);
        rig
    };
    for (name, failure, wait, want) in [
        ("no answer in time", Failure::Unreachable, 10, true),
        ("a connection error without delay", Failure::Unreachable, 1, false),
        ("a late response", Failure::Busy(None), 10, false),
    ] {
        let mut rig = quiet();
        // The rate limiter delays the request by a minute; no request was sent yet.
        assert!(matches!(rig.reflector.next(rig.now), ReflectorStep::Open { .. }));
        rig.pass(60 * SECOND);
        assert_eq!(rig.reflector.unanswered_since(), None, "{name}");
        rig.next();
        assert_eq!(rig.reflector.unanswered_since(), Some(rig.now), "{name}");
        rig.pass(wait * SECOND);
        assert_eq!(rig.reflector.on_open_failed(failure, rig.now), want, "{name}");
    }
    let mut rig = typed().watching(20);
    rig.pass(60 * SECOND).ended(StreamEnd::Clean);
    assert!(matches!(rig.next(), ReflectorStep::Open { within: None, .. }));
    rig.pass(30 * SECOND);
    assert!(!rig.reflector.on_open_failed(Failure::Unreachable, rig.now), "the stream before ended normally");
}

#[test]
fn response_is_due_since_the_first_request_without_one() {
    let mut rig = typed().watching(20);
    assert_eq!(rig.reflector.unanswered_since(), None);
    rig.pass(60 * SECOND).ended(StreamEnd::Clean);
    rig.next();
    let requested_at = rig.now;
    for _ in 0..3 {
        rig.refused(Failure::Unreachable);
        rig.expect_wait();
        rig.next();
        assert_eq!(rig.reflector.unanswered_since(), Some(requested_at));
    }
    rig.refused(Failure::Other);
    assert_eq!(rig.reflector.unanswered_since(), None, "a refusal is a response");
}

#[test]
fn failing_since_is_the_first_failure_until_a_watch_is_open_or_a_set_complete() {
    let mut rig = typed().watching(5);
    assert_eq!(rig.reflector.failing_since(), None);
    rig.pass(SECOND).error(500);
    let failed = rig.now;
    assert_eq!(rig.reflector.failing_since(), Some(failed));
    rig.expect_wait();
    rig.expect_set("5");
    rig.refused(Failure::Other);
    rig.expect_list("resourceVersion=5");
    rig.not_listed(Failure::Other);
    rig.expect_wait();
    assert_eq!(rig.reflector.failing_since(), Some(failed), "further failures do not change it");
    rig.expect_set("5");
    rig.opened();
    assert_eq!(rig.reflector.failing_since(), Some(failed), "no object of the set has come");
    rig.set_end(9);
    assert_eq!(rig.reflector.failing_since(), None);
    rig.pass(SECOND).ended(StreamEnd::Clean);
    assert_eq!(rig.reflector.failing_since(), None, "it will be opened again");
    rig.expect_watch(9);
    rig.refused(Failure::Unreachable);
    assert_eq!(rig.reflector.failing_since(), Some(rig.now));
    rig.expect_wait();
    rig.expect_watch(9);
    rig.opened();
    assert_eq!(rig.reflector.failing_since(), None);
}
