//! How a watch is resumed, and from which version.

use super::*;

#[test]
fn acceptance_machinery_005_a_watch_that_ends_in_time_is_reopened_without_list_or_delay() {
    let mut rig = typed().watching(20);
    rig.added(25);
    rig.pass(60 * SECOND).ended(StreamEnd::Clean);
    rig.expect_watch(25);
    // Also after a watch without events, and after one that was cut.
    rig.opened().pass(60 * SECOND).ended(StreamEnd::Clean);
    rig.expect_watch(25);
    rig.opened().pass(60 * SECOND).ended(StreamEnd::Broken);
    rig.expect_watch(25);
}

#[test]
fn acceptance_machinery_006_after_410_the_set_is_requested_from_the_last_version_first() {
    for in_stream in [true, false] {
        let mut rig = typed().watching(20);
        if in_stream {
            assert_eq!(rig.error(410), FrameAction::Stop { expired: true });
        } else {
            rig.pass(60 * SECOND).ended(StreamEnd::Clean);
            rig.next();
            rig.refused(Failure::Expired);
        }
        rig.expect_wait();
        rig.expect_set("20");
        rig.opened();
        assert_eq!(rig.error(410), FrameAction::Stop { expired: true });
        rig.expect_set("");
        rig.opened();
        assert_eq!(rig.set_end(90), FrameAction::Complete { consistent: true });
        // After the new set the refusal has no effect any more.
        rig.error(410);
        rig.expect_wait();
        rig.expect_set("90");
    }
}

#[test]
fn acceptance_machinery_010_bookmarks_alone_keep_the_version_fresh() {
    let mut rig = typed().watching(20);
    for minute in 1..=60 {
        assert_eq!(rig.bookmark(20 + minute), FrameAction::Progress);
        rig.pass(60 * SECOND).ended(StreamEnd::Clean);
        rig.expect_watch(20 + minute);
        rig.opened();
    }
}

#[test]
fn typed_watches_are_short_and_dynamic_ones_long() {
    for (kind, range) in [(InformerKind::Typed, 60..75), (InformerKind::Dynamic, 300..600)] {
        let mut rig = rig(kind).watching(20);
        let mut seconds = std::collections::BTreeSet::new();
        for _ in 0..50 {
            rig.pass(60 * SECOND).ended(StreamEnd::Clean);
            seconds.insert(rig.expect_watch(20));
            rig.opened();
        }
        assert!(seconds.iter().all(|it| range.contains(it)), "{seconds:?}");
        assert!(seconds.len() > 5, "not in step: {seconds:?}");
    }
}

#[test]
fn replayed_objects_do_not_change_the_version_until_another_event() {
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Other);
    rig.next();
    rig.reflector.on_page(&Version::new("0"), String::new());
    let ReflectorStep::Open { query, .. } = rig.next() else { panic!() };
    assert!(query.contains("resourceVersion=0"), "{query}");
    rig.opened();
    assert_eq!(rig.added(30), FrameAction::Apply);
    assert_eq!(rig.added(12), FrameAction::Apply);
    assert_eq!(rig.reflector.version(), &Version::new("0"));
    rig.frame(&ReceivedFrame::Object(Event::Modified, &version(31)));
    rig.added(32);
    assert_eq!(rig.reflector.version(), &version(32));
}

#[test]
fn proof_reopens_the_watch_for_three_seconds() {
    let mut rig = typed().watching(20);
    assert!(rig.reflector.reopen_for_proof());
    assert!(rig.reflector.is_urgent());
    assert_eq!(rig.expect_watch(20), 3);
    rig.opened();
    assert!(!rig.reflector.is_urgent());
    rig.bookmark(40);
    rig.pass(3 * SECOND).ended(StreamEnd::Clean);
    assert!(rig.expect_watch(40) >= 60);
    // It ends a back-off early, but does not interrupt the reading of a set.
    rig.refused(Failure::Unreachable);
    assert!(rig.reflector.reopen_for_proof());
    rig.expect_watch(40);
    let mut fresh = typed();
    assert!(!fresh.reflector.reopen_for_proof());
    fresh.expect_set("");
}
