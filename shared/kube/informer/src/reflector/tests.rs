mod failures;
mod sets;
mod silence;
mod watches;

use std::collections::BTreeMap;

use api::Status;
use clock::Clock;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A reflector with its clock.
struct Rig {
    reflector: Reflector,
    now: Instant,
}

fn typed() -> Rig {
    rig(InformerKind::Typed)
}

fn rig(kind: InformerKind) -> Rig {
    Rig { reflector: Reflector::new(kind, Rng::with_seed(3)), now: Clock::system().now() }
}

fn version(number: u64) -> Version {
    Version::from(number)
}

fn error(code: u16) -> Status {
    Status { code, ..Status::default() }
}

/// A query as `key=value` pairs; the timeout, which is random, is returned separately.
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
    /// Returns the next step and reports a request as sent.
    fn next(&mut self) -> ReflectorStep {
        let step = self.reflector.next(self.now);
        if matches!(step, ReflectorStep::Open { .. } | ReflectorStep::List { .. }) {
            self.reflector.on_request_sent(self.now);
        }
        step
    }

    fn pass(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    /// Asserts that a set is streamed next, without a delay, from this version. Returns its timeout.
    fn expect_set(&mut self, from: &str) -> u64 {
        let ReflectorStep::Open { query, set: true, .. } = self.next() else { panic!("{:?}", self.next()) };
        let (pairs, seconds) = pairs(&query);
        let from = [("resourceVersion", from)];
        assert_eq!(pairs, set_of(if from[0].1.is_empty() { &[] } else { &from }));
        seconds.unwrap()
    }

    /// Asserts that a watch is opened next, without a delay, from this version. Returns its timeout.
    fn expect_watch(&mut self, from: u64) -> u64 {
        let ReflectorStep::Open { query, set: false, .. } = self.next() else { panic!("{:?}", self.next()) };
        let from = from.to_string();
        let (pairs, seconds) = pairs(&query);
        let want = [("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", &from)];
        assert_eq!(pairs, BTreeMap::from(want));
        seconds.unwrap()
    }

    /// Asserts that a page with this query is listed next, without a delay.
    fn expect_list(&mut self, want: &str) {
        let ReflectorStep::List { query, .. } = self.next() else { panic!("{:?}", self.next()) };
        assert_eq!(query, want);
    }

    /// Asserts that the next step is a wait, and advances the clock to its end.
    fn expect_wait(&mut self) -> Duration {
        let ReflectorStep::Wait { until } = self.next() else { panic!("{:?}", self.next()) };
        let delay = until - self.now;
        self.now = until;
        delay
    }

    /// For how long frames are awaited.
    fn expect_read(&mut self) -> Duration {
        let ReflectorStep::Read { until, .. } = self.next() else { panic!("{:?}", self.next()) };
        until - self.now
    }

    fn opened(&mut self) -> &mut Self {
        self.reflector.on_opened(self.now);
        self
    }

    fn refused(&mut self, failure: Failure) -> &mut Self {
        self.reflector.on_open_failed(failure, self.now);
        self
    }

    fn not_listed(&mut self, failure: Failure) -> &mut Self {
        self.reflector.on_list_failed(failure, self.now);
        self
    }

    fn frame(&mut self, frame: &ReceivedFrame<'_>) -> FrameAction {
        self.reflector.on_frame(frame, self.now)
    }

    fn added(&mut self, number: u64) -> FrameAction {
        self.frame(&ReceivedFrame::Object(Event::Added, &version(number)))
    }

    fn bookmark(&mut self, number: u64) -> FrameAction {
        self.frame(&ReceivedFrame::Bookmark { version: &version(number), initial_end: false })
    }

    fn set_end(&mut self, number: u64) -> FrameAction {
        self.frame(&ReceivedFrame::Bookmark { version: &version(number), initial_end: true })
    }

    fn error(&mut self, code: u16) -> FrameAction {
        self.frame(&ReceivedFrame::Error(&error(code)))
    }

    fn ended(&mut self, end: StreamEnd) -> &mut Self {
        self.reflector.on_ended(end, self.now);
        self
    }

    /// Completes the streamed first set; its stream stays open.
    fn synced(mut self, at: u64) -> Self {
        self.next();
        self.opened();
        assert_eq!(self.set_end(at), FrameAction::Complete { consistent: true });
        self
    }

    /// Completes the first set, ends its stream, and opens a short watch.
    fn watching(self, at: u64) -> Self {
        let mut rig = self.synced(at);
        rig.pass(2 * SECOND).ended(StreamEnd::Clean);
        rig.next();
        rig.opened();
        rig
    }
}
