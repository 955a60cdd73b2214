//! How a set is read: streamed, in pages, in one list.

use super::*;

#[test]
fn acceptance_machinery_001_the_first_set_is_one_watch_and_no_list() {
    let mut rig = typed();
    let seconds = rig.expect_set("");
    assert!((300..600).contains(&seconds));
    rig.opened();
    assert_eq!(rig.added(7), FrameAction::Collect);
    assert_eq!(rig.bookmark(8), FrameAction::Progress, "no other bookmark ends it");
    assert_eq!(rig.set_end(9), FrameAction::Complete { consistent: true });
    assert!(matches!(rig.next(), ReflectorStep::Read { .. }), "the same connection continues");
    assert_eq!(rig.added(10), FrameAction::Apply);
    assert_eq!(rig.reflector.version(), &version(10));
}

#[test]
fn acceptance_machinery_003_a_refused_stream_is_a_paged_list_in_the_same_attempt() {
    let mut rig = typed();
    rig.expect_set("");
    rig.refused(Failure::Other);
    rig.expect_list("limit=500&resourceVersion=0");
    assert_eq!(rig.reflector.on_page(&version(5), "a/b=".to_owned()), PageOutcome::More);
    rig.expect_list("limit=500&continue=a%2Fb%3D");
    assert_eq!(rig.reflector.on_page(&version(5), String::new()), PageOutcome::Complete { consistent: false });
    rig.expect_watch(5);
}

#[test]
fn acceptance_machinery_004_an_expired_version_on_opening_a_set_is_left_out_at_once() {
    for failure in [Failure::Expired, Failure::TooLarge] {
        let mut rig = typed().watching(20);
        rig.error(410);
        rig.expect_wait();
        rig.expect_set("20");
        rig.refused(failure);
        rig.expect_set("");
        // Refused without a version too: only the paged list is left.
        rig.refused(failure);
        rig.expect_list("limit=500");
    }
}

#[test]
fn set_from_a_known_version_is_listed_unpaged_and_retried_at_once_when_refused() {
    for failure in [Failure::Expired, Failure::TooLarge] {
        let mut rig = typed().watching(20);
        rig.error(500);
        rig.expect_wait();
        rig.next();
        rig.refused(Failure::Other);
        rig.expect_list("resourceVersion=20");
        rig.not_listed(failure);
        rig.expect_list("limit=500");
        rig.not_listed(failure);
        rig.expect_wait();
        rig.expect_set("");
    }
}

#[test]
fn expired_continue_token_leads_to_one_unpaged_list() {
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Other);
    rig.expect_list("limit=500&resourceVersion=0");
    rig.reflector.on_page(&version(5), "next".to_owned());
    rig.next();
    rig.not_listed(Failure::Expired);
    assert_eq!(rig.next(), ReflectorStep::List { query: "resourceVersion=0".to_owned(), first: true });
    assert_eq!(rig.reflector.on_page(&version(9), String::new()), PageOutcome::Complete { consistent: false });
    rig.expect_watch(9);
}

#[test]
fn server_that_pages_version_0_gets_only_paged_lists() {
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Other);
    rig.next();
    rig.reflector.on_page(&version(5), "next".to_owned());
    rig.reflector.on_page(&version(5), String::new());
    rig.next();
    rig.opened();
    rig.error(500);
    rig.expect_wait();
    rig.next();
    rig.refused(Failure::Other);
    rig.expect_list("limit=500&resourceVersion=5");
}

#[test]
fn type_is_listed_for_ten_minutes_after_a_stream_without_a_set() {
    let mut rig = typed();
    rig.expect_set("");
    rig.opened();
    assert_eq!(rig.expect_read(), 30 * SECOND);
    rig.pass(20 * SECOND);
    rig.added(3);
    assert_eq!(rig.expect_read(), 30 * SECOND, "after a frame, more frames may come");
    rig.pass(30 * SECOND);
    assert_eq!(rig.reflector.on_silent(rig.now), Silence::NoSet);
    rig.expect_list("limit=500&resourceVersion=0");
    rig.not_listed(Failure::Other);
    rig.expect_wait();
    rig.expect_list("limit=500&resourceVersion=0");
    rig.reflector.on_page(&version(5), String::new());
    rig.next();
    rig.opened();
    rig.pass(9 * 60 * SECOND);
    rig.error(500);
    rig.expect_wait();
    rig.expect_list("resourceVersion=5");
    rig.pass(60 * SECOND).not_listed(Failure::Other);
    rig.expect_wait();
    rig.expect_set("5");
}

#[test]
fn first_set_that_never_ends_is_abandoned_after_five_minutes() {
    let mut rig = typed();
    rig.next();
    rig.opened();
    for _ in 0..14 {
        rig.pass(20 * SECOND);
        rig.added(3);
    }
    assert_eq!(rig.expect_read(), 20 * SECOND);
    rig.pass(20 * SECOND);
    assert_eq!(rig.reflector.on_silent(rig.now), Silence::NoSet);
    rig.expect_list("limit=500&resourceVersion=0");
}

#[test]
fn streams_that_end_before_their_set_is_complete_are_tried_twice() {
    let mut rig = typed();
    rig.expect_set("");
    rig.opened().ended(StreamEnd::Clean);
    rig.expect_wait();
    rig.expect_set("");
    rig.opened().ended(StreamEnd::Broken);
    rig.expect_wait();
    rig.expect_list("limit=500&resourceVersion=0");
}

#[test]
fn error_within_a_streamed_set_is_handled_like_an_error_on_opening() {
    type Check = fn(&mut Rig);
    let cases: [(u16, Check); 4] = [
        (429, |rig| {
            rig.expect_wait();
            rig.expect_set("20");
        }),
        (410, |rig| {
            rig.expect_set("");
        }),
        (500, |rig| rig.expect_list("resourceVersion=20")),
        (403, |rig| rig.expect_list("resourceVersion=20")),
    ];
    for (code, then) in cases {
        let mut rig = typed().watching(20);
        rig.error(500);
        rig.expect_wait();
        rig.expect_set("20");
        rig.opened();
        assert_eq!(rig.error(code), FrameAction::Stop { expired: code == 410 });
        then(&mut rig);
    }
}

#[test]
fn consistent_relist_requests_the_most_recent_set_at_once() {
    let mut rig = typed().watching(20);
    rig.reflector.relist_consistently(rig.now);
    assert!(rig.reflector.is_urgent());
    rig.expect_set("");
    rig.opened();
    assert_eq!(rig.set_end(50), FrameAction::Complete { consistent: true });
    assert!(!rig.reflector.is_urgent());
}

#[test]
fn a_set_from_a_known_version_or_any_cached_state_is_not_consistent() {
    let mut rig = typed().watching(20);
    rig.error(410);
    rig.expect_wait();
    rig.next();
    rig.opened();
    assert_eq!(rig.set_end(50), FrameAction::Complete { consistent: false });
}
