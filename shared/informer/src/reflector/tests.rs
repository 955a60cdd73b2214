use std::collections::BTreeMap;

use api::Status;
use client::ApiError;
use clock::Clock;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A reflector and its time.
struct Rig {
    reflector: Reflector,
    now: Instant,
}

fn typed() -> Rig {
    rig(Pace::Typed)
}

fn rig(pace: Pace) -> Rig {
    Rig { reflector: Reflector::new(pace, Rng::with_seed(3)), now: Clock::system().now() }
}

fn version(number: u64) -> Version {
    Version::from(number)
}

fn error(code: u16) -> Status {
    Status { code, ..Status::default() }
}

/// A query as `key=value` pairs; the one that is random apart.
fn pairs(query: &str) -> (BTreeMap<&str, &str>, Option<u64>) {
    let mut pairs: BTreeMap<_, _> = query.split('&').map(|pair| pair.split_once('=').unwrap()).collect();
    let seconds = pairs.remove("timeoutSeconds").map(|it| it.parse().unwrap());
    (pairs, seconds)
}

fn set_of<'a>(extra: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, &'a str> {
    let always = [
        ("watch", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("allowWatchBookmarks", "true"),
    ];
    always.into_iter().chain(extra.iter().copied()).collect()
}

impl Rig {
    /// What is to be done, and asks at once where that is to ask.
    fn next(&mut self) -> Step {
        let step = self.reflector.next(self.now);
        if matches!(step, Step::Open { .. } | Step::List { .. }) {
            self.reflector.asked(self.now);
        }
        step
    }

    fn pass(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    /// Asserts that a set is streamed next, at once, from this version; returns its time.
    fn opens_set(&mut self, from: &str) -> u64 {
        let Step::Open { query, set: true, .. } = self.next() else { panic!("{:?}", self.next()) };
        let (pairs, seconds) = pairs(&query);
        let from = [("resourceVersion", from)];
        assert_eq!(pairs, set_of(if from[0].1.is_empty() { &[] } else { &from }));
        seconds.unwrap()
    }

    /// Asserts that a watch is opened next, at once, from this version; returns its time.
    fn opens_watch(&mut self, from: u64) -> u64 {
        let Step::Open { query, set: false, .. } = self.next() else { panic!("{:?}", self.next()) };
        let from = from.to_string();
        let (pairs, seconds) = pairs(&query);
        let want = [("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", &from)];
        assert_eq!(pairs, BTreeMap::from(want));
        seconds.unwrap()
    }

    /// Asserts that a page with this query is listed next, at once.
    fn lists(&mut self, want: &str) {
        let Step::List { query, .. } = self.next() else { panic!("{:?}", self.next()) };
        assert_eq!(query, want);
    }

    /// Asserts that there is a wait, and lets it pass.
    fn waits(&mut self) -> Duration {
        let Step::Wait { until } = self.next() else { panic!("{:?}", self.next()) };
        let delay = until - self.now;
        self.now = until;
        delay
    }

    /// The time until which frames are awaited.
    fn reads_for(&mut self) -> Duration {
        let Step::Read { until, .. } = self.next() else { panic!("{:?}", self.next()) };
        until - self.now
    }

    fn opened(&mut self) -> &mut Self {
        self.reflector.opened(self.now);
        self
    }

    fn refused(&mut self, failure: Failure) -> &mut Self {
        self.reflector.not_opened(failure, self.now);
        self
    }

    fn not_listed(&mut self, failure: Failure) -> &mut Self {
        self.reflector.not_listed(failure, self.now);
        self
    }

    fn frame(&mut self, seen: &Seen<'_>) -> Verdict {
        self.reflector.frame(seen, self.now)
    }

    fn added(&mut self, number: u64) -> Verdict {
        self.frame(&Seen::Object(Event::Added, &version(number)))
    }

    fn bookmark(&mut self, number: u64) -> Verdict {
        self.frame(&Seen::Bookmark { version: &version(number), initial_end: false })
    }

    fn set_end(&mut self, number: u64) -> Verdict {
        self.frame(&Seen::Bookmark { version: &version(number), initial_end: true })
    }

    fn error(&mut self, code: u16) -> Verdict {
        self.frame(&Seen::Error(&error(code)))
    }

    fn ended(&mut self, end: End) -> &mut Self {
        self.reflector.ended(end, self.now);
        self
    }

    /// Through the streamed first set, with its stream open.
    fn synced(mut self, at: u64) -> Self {
        self.next();
        self.opened();
        assert_eq!(self.set_end(at), Verdict::Complete { consistent: true });
        self
    }

    /// Through the first set and the end of its stream, with a short watch open.
    fn watching(self, at: u64) -> Self {
        let mut rig = self.synced(at);
        rig.pass(2 * SECOND).ended(End::Clean);
        rig.next();
        rig.opened();
        rig
    }
}

#[test]
fn acceptance_machinery_001_the_first_set_is_one_watch_and_no_list() {
    let mut rig = typed();
    let seconds = rig.opens_set("");
    assert!((300..600).contains(&seconds));
    rig.opened();
    assert_eq!(rig.added(7), Verdict::Collect);
    assert_eq!(rig.bookmark(8), Verdict::Progress, "no other bookmark ends it");
    assert_eq!(rig.set_end(9), Verdict::Complete { consistent: true });
    assert!(matches!(rig.next(), Step::Read { .. }), "the same connection continues");
    assert_eq!(rig.added(10), Verdict::Apply);
    assert_eq!(rig.reflector.version(), &version(10));
}

#[test]
fn acceptance_machinery_003_a_refused_stream_is_a_paged_list_in_the_same_attempt() {
    let mut rig = typed();
    rig.opens_set("");
    rig.refused(Failure::Other);
    rig.lists("limit=500&resourceVersion=0");
    assert_eq!(rig.reflector.listed(&version(5), "a/b=".to_owned()), Listed::More);
    rig.lists("limit=500&continue=a%2Fb%3D");
    assert_eq!(rig.reflector.listed(&version(5), String::new()), Listed::Complete { consistent: false });
    rig.opens_watch(5);
}

#[test]
fn acceptance_machinery_004_an_expired_version_on_opening_a_set_is_left_out_at_once() {
    for failure in [Failure::Expired, Failure::TooLarge] {
        let mut rig = typed().watching(20);
        rig.error(410);
        rig.waits();
        rig.opens_set("20");
        rig.refused(failure);
        rig.opens_set("");
        // Refused even so: nothing is left but the classic way.
        rig.refused(failure);
        rig.lists("limit=500");
    }
}

#[test]
fn acceptance_machinery_005_a_watch_that_ends_in_time_is_reopened_without_list_or_delay() {
    let mut rig = typed().watching(20);
    rig.added(25);
    rig.pass(60 * SECOND).ended(End::Clean);
    rig.opens_watch(25);
    // A quiet one too, and one that was cut.
    rig.opened().pass(60 * SECOND).ended(End::Clean);
    rig.opens_watch(25);
    rig.opened().pass(60 * SECOND).ended(End::Broken);
    rig.opens_watch(25);
}

#[test]
fn acceptance_machinery_006_after_410_the_set_is_asked_for_from_the_last_version_first() {
    for in_stream in [true, false] {
        let mut rig = typed().watching(20);
        if in_stream {
            assert_eq!(rig.error(410), Verdict::Stop { expired: true });
        } else {
            rig.pass(60 * SECOND).ended(End::Clean);
            rig.next();
            rig.refused(Failure::Expired);
        }
        rig.waits();
        rig.opens_set("20");
        rig.opened();
        assert_eq!(rig.error(410), Verdict::Stop { expired: true });
        rig.opens_set("");
        rig.opened();
        assert_eq!(rig.set_end(90), Verdict::Complete { consistent: true });
        // The loss is forgotten with the new set.
        rig.error(410);
        rig.waits();
        rig.opens_set("90");
    }
}

#[test]
fn acceptance_machinery_007_refused_connections_and_429_are_retried_with_backoff_and_no_list() {
    for failure in [Failure::Unreachable, Failure::Busy(None)] {
        let mut rig = typed();
        for _ in 0..4 {
            rig.opens_set("");
            rig.refused(failure);
            rig.waits();
        }
        let mut rig = typed().watching(20);
        rig.pass(60 * SECOND).ended(End::Clean);
        for _ in 0..4 {
            rig.opens_watch(20);
            rig.refused(failure);
            assert!(rig.waits() >= Duration::from_millis(800));
        }
    }
    // The server's own wish is honoured where it is longer; a 429 in the stream is no reason to list either.
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Busy(Some(45 * SECOND)));
    assert_eq!(rig.waits(), 45 * SECOND);
    let mut rig = typed().watching(20);
    assert_eq!(rig.error(429), Verdict::Stop { expired: false });
    rig.waits();
    rig.opens_watch(20);
}

#[test]
fn acceptance_machinery_008_delays_double_to_30_s_with_jitter_and_begin_anew_after_two_quiet_minutes() {
    let mut rig = typed();
    let fail = |rig: &mut Rig| {
        rig.next();
        rig.refused(Failure::Unreachable);
        rig.waits()
    };
    let mut jitter = BTreeMap::new();
    for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0] {
        let delay = fail(&mut rig).as_secs_f64();
        assert!((base..base * 2.0).contains(&delay), "{delay} is not {base} and up to as much again");
        jitter.insert((delay / base * 1e6) as u64, ());
    }
    assert!(jitter.len() >= 8, "the same jitter twice is chance, always the same is none");
    rig.pass(120 * SECOND);
    assert!(fail(&mut rig).as_secs_f64() < 1.6);
}

#[test]
fn acceptance_machinery_009_a_watch_that_ends_within_a_second_without_a_frame_backs_off() {
    let mut rig = typed().watching(20);
    rig.pass(SECOND / 2).ended(End::Clean);
    rig.waits();
    rig.opens_set("20");

    // Cut off so soon, it backs off too, but nothing says that the version is lost.
    let mut rig = typed().watching(20);
    rig.pass(SECOND / 2).ended(End::Broken);
    rig.waits();
    rig.opens_watch(20);

    // With a frame it is no error.
    let mut rig = typed().watching(20);
    rig.bookmark(21);
    rig.pass(SECOND / 2).ended(End::Clean);
    rig.opens_watch(21);
}

#[test]
fn acceptance_machinery_010_bookmarks_alone_keep_the_version_fresh() {
    let mut rig = typed().watching(20);
    for minute in 1..=60 {
        assert_eq!(rig.bookmark(20 + minute), Verdict::Progress);
        rig.pass(60 * SECOND).ended(End::Clean);
        rig.opens_watch(20 + minute);
        rig.opened();
    }
}

#[test]
fn acceptance_machinery_023_a_forbidden_type_is_asked_for_with_growing_delays() {
    let mut rig = typed();
    let mut last = Duration::ZERO;
    for _ in 0..5 {
        rig.opens_set("");
        rig.refused(Failure::Other);
        rig.lists("limit=500&resourceVersion=0");
        rig.not_listed(Failure::Other);
        let delay = rig.waits();
        assert!(delay > last / 2);
        last = delay;
    }
    assert!(last >= 12 * SECOND);
}

#[test]
fn answers_are_cut_by_what_the_reflector_does_next() {
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
fn a_known_version_lists_unpaged_and_its_loss_is_one_immediate_retry() {
    for failure in [Failure::Expired, Failure::TooLarge] {
        let mut rig = typed().watching(20);
        rig.error(500);
        rig.waits();
        rig.next();
        rig.refused(Failure::Other);
        rig.lists("resourceVersion=20");
        rig.not_listed(failure);
        rig.lists("limit=500");
        rig.not_listed(failure);
        rig.waits();
        rig.opens_set("");
    }
}

#[test]
fn a_token_that_expires_half_way_means_one_list_in_one_piece() {
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Other);
    rig.lists("limit=500&resourceVersion=0");
    rig.reflector.listed(&version(5), "next".to_owned());
    rig.next();
    rig.not_listed(Failure::Expired);
    assert_eq!(rig.next(), Step::List { query: "resourceVersion=0".to_owned(), first: true });
    assert_eq!(rig.reflector.listed(&version(9), String::new()), Listed::Complete { consistent: false });
    rig.opens_watch(9);
}

#[test]
fn a_server_that_pages_any_cached_state_is_asked_in_pages_always() {
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Other);
    rig.next();
    rig.reflector.listed(&version(5), "next".to_owned());
    rig.reflector.listed(&version(5), String::new());
    rig.next();
    rig.opened();
    rig.error(500);
    rig.waits();
    rig.next();
    rig.refused(Failure::Other);
    rig.lists("limit=500&resourceVersion=5");
}

#[test]
fn a_stream_without_a_first_set_gives_way_to_lists_for_ten_minutes() {
    let mut rig = typed();
    rig.opens_set("");
    rig.opened();
    assert_eq!(rig.reads_for(), 30 * SECOND);
    rig.pass(20 * SECOND);
    rig.added(3);
    assert_eq!(rig.reads_for(), 30 * SECOND, "a frame is a sign that more may come");
    rig.pass(30 * SECOND);
    assert_eq!(rig.reflector.silent(rig.now), Silence::NoSet);
    rig.lists("limit=500&resourceVersion=0");
    rig.not_listed(Failure::Other);
    rig.waits();
    rig.lists("limit=500&resourceVersion=0");
    rig.reflector.listed(&version(5), String::new());
    rig.next();
    rig.opened();
    rig.pass(9 * 60 * SECOND);
    rig.error(500);
    rig.waits();
    rig.lists("resourceVersion=5");
    rig.pass(60 * SECOND).not_listed(Failure::Other);
    rig.waits();
    rig.opens_set("5");
}

#[test]
fn a_first_set_that_never_ends_is_given_up_after_five_minutes() {
    let mut rig = typed();
    rig.next();
    rig.opened();
    for _ in 0..14 {
        rig.pass(20 * SECOND);
        rig.added(3);
    }
    assert_eq!(rig.reads_for(), 20 * SECOND);
    rig.pass(20 * SECOND);
    assert_eq!(rig.reflector.silent(rig.now), Silence::NoSet);
    rig.lists("limit=500&resourceVersion=0");
}

#[test]
fn streams_that_end_before_their_set_is_complete_are_tried_twice() {
    let mut rig = typed();
    rig.opens_set("");
    rig.opened().ended(End::Clean);
    rig.waits();
    rig.opens_set("");
    rig.opened().ended(End::Broken);
    rig.waits();
    rig.lists("limit=500&resourceVersion=0");
}

#[test]
fn errors_within_a_streamed_set_are_those_of_its_opening() {
    type Then = fn(&mut Rig);
    let cases: [(u16, Then); 4] = [
        (429, |rig| {
            rig.waits();
            rig.opens_set("20");
        }),
        (410, |rig| {
            rig.opens_set("");
        }),
        (500, |rig| rig.lists("resourceVersion=20")),
        (403, |rig| rig.lists("resourceVersion=20")),
    ];
    for (code, then) in cases {
        let mut rig = typed().watching(20);
        rig.error(500);
        rig.waits();
        rig.opens_set("20");
        rig.opened();
        assert_eq!(rig.error(code), Verdict::Stop { expired: code == 410 });
        then(&mut rig);
    }
}

#[test]
fn any_other_error_of_a_watch_ends_the_attempt() {
    for code in [500, 403, 404, 504] {
        let mut rig = typed().watching(20);
        assert_eq!(rig.error(code), Verdict::Stop { expired: false });
        rig.waits();
        rig.opens_set("20");
    }
    let mut rig = typed().watching(20);
    rig.pass(60 * SECOND).ended(End::Clean);
    rig.next();
    rig.refused(Failure::Other);
    rig.waits();
    rig.opens_set("20");
}

#[test]
fn a_stream_of_garbage_is_listed_again_from_before_it() {
    let mut rig = typed().watching(20);
    rig.added(21);
    assert_eq!(rig.frame(&Seen::Garbage), Verdict::Stop { expired: false });
    rig.waits();
    rig.opens_set("21");
    rig.opened();
    assert_eq!(rig.frame(&Seen::Garbage), Verdict::Stop { expired: false });
    rig.lists("resourceVersion=21");
}

#[test]
fn typed_watches_are_short_and_dynamic_ones_long() {
    for (pace, range) in [(Pace::Typed, 60..75), (Pace::Dynamic, 300..600)] {
        let mut rig = rig(pace).watching(20);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            rig.pass(60 * SECOND).ended(End::Clean);
            seen.insert(rig.opens_watch(20));
            rig.opened();
        }
        assert!(seen.iter().all(|it| range.contains(it)), "{seen:?}");
        assert!(seen.len() > 5, "not in step: {seen:?}");
    }
}

#[test]
fn a_stream_silent_ten_seconds_beyond_its_time_is_frozen_and_reopened_without_list() {
    let mut rig = typed().watching(20);
    rig.pass(60 * SECOND).ended(End::Clean);
    let seconds = rig.opens_watch(20);
    rig.opened();
    let patience = rig.reads_for();
    assert_eq!(patience, Duration::from_secs(seconds) + 10 * SECOND);
    rig.pass(patience);
    assert_eq!(rig.reflector.silent(rig.now), Silence::Frozen);
    assert_eq!(rig.reflector.unanswered(), Some(rig.now - 10 * SECOND));
    rig.opens_watch(20);
    rig.opened();
    assert_eq!(rig.reflector.unanswered(), None);
    // One that outlives its time but still speaks is not frozen.
    rig.pass(200 * SECOND);
    rig.added(21);
    assert_eq!(rig.reads_for(), 10 * SECOND);
}

#[test]
fn the_long_stream_of_a_typed_first_set_gives_way_at_its_first_75_s_of_silence() {
    let mut rig = typed().synced(20);
    rig.pass(50 * SECOND);
    rig.added(21);
    assert_eq!(rig.reads_for(), 75 * SECOND);
    rig.pass(75 * SECOND);
    assert_eq!(rig.reflector.silent(rig.now), Silence::Quiet);
    assert!(matches!(rig.next(), Step::Open { within: Some(it), .. } if it == 10 * SECOND), "healed within 90 s");
    let seconds = rig.opens_watch(21);
    assert!((60..75).contains(&seconds));
    // A dynamic one keeps its stream to the end.
    let mut rig = rig_synced_dynamic();
    assert!(rig.reads_for() > 300 * SECOND);
}

fn rig_synced_dynamic() -> Rig {
    rig(Pace::Dynamic).synced(20)
}

#[test]
fn replayed_objects_do_not_move_the_version_until_something_else_comes() {
    let mut rig = typed();
    rig.next();
    rig.refused(Failure::Other);
    rig.next();
    rig.reflector.listed(&Version::new("0"), String::new());
    let Step::Open { query, .. } = rig.next() else { panic!() };
    assert!(query.contains("resourceVersion=0"), "{query}");
    rig.opened();
    assert_eq!(rig.added(30), Verdict::Apply);
    assert_eq!(rig.added(12), Verdict::Apply);
    assert_eq!(rig.reflector.version(), &Version::new("0"));
    rig.frame(&Seen::Object(Event::Modified, &version(31)));
    rig.added(32);
    assert_eq!(rig.reflector.version(), &version(32));
}

#[test]
fn a_proof_reopens_the_watch_for_three_seconds_and_then_goes_on_as_before() {
    let mut rig = typed().watching(20);
    assert!(rig.reflector.reopen_for_proof());
    assert!(rig.reflector.is_urgent());
    assert_eq!(rig.opens_watch(20), 3);
    rig.opened();
    assert!(!rig.reflector.is_urgent());
    rig.bookmark(40);
    rig.pass(3 * SECOND).ended(End::Clean);
    assert!(rig.opens_watch(40) >= 60);
    // It cuts a back-off short, but nothing that fetches a set.
    rig.refused(Failure::Unreachable);
    assert!(rig.reflector.reopen_for_proof());
    rig.opens_watch(40);
    let mut fresh = typed();
    assert!(!fresh.reflector.reopen_for_proof());
    fresh.opens_set("");
}

#[test]
fn a_consistent_relist_asks_for_the_most_recent_at_once() {
    let mut rig = typed().watching(20);
    rig.reflector.relist_consistently(rig.now);
    assert!(rig.reflector.is_urgent());
    rig.opens_set("");
    rig.opened();
    assert_eq!(rig.set_end(50), Verdict::Complete { consistent: true });
    assert!(!rig.reflector.is_urgent());
}

#[test]
fn a_set_from_a_known_version_or_any_cached_state_is_not_consistent() {
    let mut rig = typed().watching(20);
    rig.error(410);
    rig.waits();
    rig.next();
    rig.opened();
    assert_eq!(rig.set_end(50), Verdict::Complete { consistent: false });
}

#[test]
fn a_server_silent_to_a_stream_and_to_the_request_for_another_has_a_frozen_watch() {
    let quiet = || {
        let mut rig = typed().synced(20);
        rig.pass(75 * SECOND);
        assert_eq!(rig.reflector.silent(rig.now), Silence::Quiet);
        rig
    };
    for (name, failure, wait, want) in [
        ("no answer in time", Failure::Unreachable, 10, true),
        ("no connection, told at once", Failure::Unreachable, 1, false),
        ("an answer at last", Failure::Busy(None), 10, false),
    ] {
        let mut rig = quiet();
        // The budget lets us wait for a minute; nobody was asked yet.
        assert!(matches!(rig.reflector.next(rig.now), Step::Open { .. }));
        rig.pass(60 * SECOND);
        assert_eq!(rig.reflector.unanswered(), None, "{name}");
        rig.next();
        assert_eq!(rig.reflector.unanswered(), Some(rig.now), "{name}");
        rig.pass(wait * SECOND);
        assert_eq!(rig.reflector.not_opened(failure, rig.now), want, "{name}");
    }
    let mut rig = typed().watching(20);
    rig.pass(60 * SECOND).ended(End::Clean);
    assert!(matches!(rig.next(), Step::Open { within: None, .. }));
    rig.pass(30 * SECOND);
    assert!(!rig.reflector.not_opened(Failure::Unreachable, rig.now), "the stream before ended as it should");
}

#[test]
fn an_answer_is_due_from_the_first_request_that_brought_none() {
    let mut rig = typed().watching(20);
    assert_eq!(rig.reflector.unanswered(), None);
    rig.pass(60 * SECOND).ended(End::Clean);
    rig.next();
    let asked = rig.now;
    for _ in 0..3 {
        rig.refused(Failure::Unreachable);
        rig.waits();
        rig.next();
        assert_eq!(rig.reflector.unanswered(), Some(asked));
    }
    rig.refused(Failure::Other);
    assert_eq!(rig.reflector.unanswered(), None, "a refusal is an answer");
}
