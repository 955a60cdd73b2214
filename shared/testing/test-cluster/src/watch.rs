mod frames;
mod start;

use std::{collections::VecDeque, ops::Bound, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Instant;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use frames::{FrameBuilder, error_frame};
use start::Start;

use crate::{
    BoxError, Failure, ResponseBody,
    cluster::Shared,
    get, kinds,
    response::{self, Form},
    rest::Query,
    selectors::Selectors,
    signal::Receiver,
    store::{Event, Table},
    stored::{Change, Stored},
    write::Target,
};

/// How many changes a watch reads at once.
const BATCH: usize = 256;
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// The last bookmark is sent this long before the end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The longest timeout; a longer one might overflow the clock.
const LONGEST: u64 = 10 * 365 * 24 * 3600;

/// One open watch. The reader polls it; there is no task.
struct Watching {
    shared: Arc<Shared>,
    frames: FrameBuilder,
    table: u64,
    number: u64,
    signal: Receiver,
    /// Frames that are ready to be sent.
    ready: VecDeque<Bytes>,
    /// The initial objects, encoded only when they are read.
    initial: std::vec::IntoIter<Arc<Stored>>,
    /// The version of the bookmark after the initial objects.
    initial_end: Option<u64>,
    /// Changes up to this version have been sent.
    cursor: u64,
    start: u64,
    /// With `sendInitialEvents`: the version that must be reached before anything is sent.
    awaited: Option<u64>,
    bookmarks: bool,
    bookmark_calls: u64,
    next_bookmark: Instant,
    bookmark_due: bool,
    deadline: Instant,
    ended: bool,
}

/// What the watch found in its table.
enum Found {
    Events(Vec<Arc<Event>>),
    Bookmark(u64),
    /// Changes after the watch's version are not kept any more.
    Lost(u64),
    Frozen,
    Broken,
    Ended,
    Nothing,
}

/// Opens a watch. The head is sent at once; everything else is in the stream.
pub(crate) fn watch(
    shared: &Arc<Shared>,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    let start = Start::parse(query)?;
    let mut selectors = Selectors::parse(&target.kind, query.get("labelSelector"), query.get("fieldSelector"))?;
    if !target.name.is_empty() {
        selectors = selectors.of_one(&target.name)?;
    }
    let timeout = query.number("timeoutSeconds")?.and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
    query.number("limit")?;
    let frames = FrameBuilder::new(target, selectors, form);
    let watching = open(shared, frames, &start, query.flag("allowWatchBookmarks"), timeout)?;
    let body = StreamBody::new(stream::unfold(watching, next)).boxed_unsync();
    Ok(response::respond_with(200, "application/json", body))
}

fn open(
    shared: &Arc<Shared>,
    frames: FrameBuilder,
    start: &Start,
    bookmarks: bool,
    timeout: u64,
) -> Result<Watching, Failure> {
    let now = shared.clock.now();
    let mut state = shared.state.lock();
    // As on a real server: 30 to 60 minutes when the client does not set a timeout.
    let timeout = if timeout == 0 { 1800 + state.rng.u64(..1800) } else { timeout.min(LONGEST) };
    let deadline = now + Duration::from_secs(timeout);
    let (version, bookmark_calls) = (state.version, state.bookmark_calls);
    let table = state.tables.get_mut(&frames.target.table).ok_or_else(Failure::no_group)?;
    let number = table.watches.next;
    table.watches.next += 1;
    let mut watching = Watching {
        shared: shared.clone(),
        frames,
        table: table.id,
        number,
        signal: table.signal.subscribe(),
        ready: VecDeque::new(),
        initial: Vec::new().into_iter(),
        initial_end: None,
        cursor: if start.now { version } else { start.version },
        start: if start.now { version } else { start.version },
        awaited: None,
        bookmarks,
        bookmark_calls,
        next_bookmark: now,
        bookmark_due: false,
        deadline,
        ended: false,
    };
    watching.next_bookmark = watching.bookmark_after(now);
    if start.initial && start.streamed && start.version > version {
        watching.awaited = Some(start.version);
    } else if start.initial {
        watching.queue_initial(table, version);
    } else if watching.cursor < table.floor {
        let expired = too_old(&watching.frames.target.kind, start.version, table.floor);
        watching.ready.push_back(error_frame(expired));
        watching.ended = true;
    }
    Ok(watching)
}

fn too_old(kind: &kinds::Kind, asked: u64, oldest: u64) -> Failure {
    if kind.is(kinds::EVENTS) {
        return Failure::expired("The resourceVersion for the provided watch is too old.");
    }
    Failure::expired(format!("too old resource version: {asked} ({oldest})"))
}

/// The next frame with the watch after it; `None` at the normal end.
async fn next(mut it: Watching) -> Option<(Result<Frame<Bytes>, BoxError>, Watching)> {
    loop {
        if let Some(frame) = it.next_ready() {
            if it.frames.form == Form::MetadataList && !it.ended {
                // An object cannot be shown as a list; a real server notices this at the first object and ends the
                // watch.
                return None;
            }
            return Some((Ok(Frame::data(frame)), it));
        }
        if it.ended {
            return None;
        }
        if let Some(version) = it.awaited.take() {
            match get::wait_for(&it.shared, &it.frames.target.kind, version).await {
                Ok(()) => it.begin_at_present(),
                Err(failure) => {
                    it.ready.push_back(error_frame(failure));
                    it.ended = true;
                }
            }
            continue;
        }
        match it.poll_state() {
            Found::Events(events) => it.queue_events(&events),
            Found::Bookmark(version) => {
                if version != it.start {
                    let frame = it.frames.bookmark(version, false, it.shared.clock.wall());
                    it.ready.push_back(frame);
                }
            }
            Found::Lost(oldest) => {
                let expired = too_old(&it.frames.target.kind, it.cursor, oldest);
                it.ready.push_back(error_frame(expired));
                it.ended = true;
            }
            Found::Broken => {
                it.ended = true;
                return Some((Err("connection reset by the test cluster".into()), it));
            }
            Found::Ended => return None,
            Found::Frozen => {
                // A frozen watch sends no bookmark and does not end at its deadline.
                it.signal.changed().await;
            }
            Found::Nothing => {
                if it.shared.clock.now() >= it.deadline {
                    return None;
                }
                it.wait().await;
            }
        }
    }
}

impl Watching {
    fn next_ready(&mut self) -> Option<Bytes> {
        if let Some(frame) = self.ready.pop_front() {
            return Some(frame);
        }
        if let Some(object) = self.initial.next() {
            return Some(self.frames.frame(Change::Added, &object, self.shared.clock.wall()));
        }
        let version = self.initial_end.take()?;
        self.bookmarks.then(|| self.frames.bookmark(version, true, self.shared.clock.wall()))
    }

    /// Sends the present objects first.
    fn queue_initial(&mut self, table: &Table, version: u64) {
        let first = (Bound::Included(self.frames.prefix.as_str()), Bound::Unbounded);
        let shown: Vec<Arc<Stored>> = table
            .objects
            .range::<str, _>(first)
            .map(|it| it.1)
            .take_while(|it| it.key.starts_with(&self.frames.prefix))
            .filter(|it| self.frames.selectors.matches(it))
            .cloned()
            .collect();
        self.initial = shown.into_iter();
        self.initial_end = Some(version);
        (self.cursor, self.start) = (version, version);
    }

    fn begin_at_present(&mut self) {
        let shared = self.shared.clone();
        let state = shared.state.lock();
        match state.tables.get(&self.frames.target.table) {
            Some(table) => self.queue_initial(table, state.version),
            None => self.ended = true,
        }
    }

    /// Reads everything that is new, with one lock.
    fn poll_state(&mut self) -> Found {
        // Marked as seen before looking, so that later changes wake it again.
        self.signal.mark_unchanged();
        let mut state = self.shared.state.lock();
        state.expire();
        let Some((table, retired)) = state.watched_table(&self.frames.target.table, self.table) else {
            return Found::Ended;
        };
        if self.number < table.watches.broken_below {
            return Found::Broken;
        }
        if self.number < table.watches.ended_below {
            return Found::Ended;
        }
        if self.number < table.watches.frozen_below {
            return Found::Frozen;
        }
        if self.cursor < table.forgotten {
            return Found::Lost(table.forgotten);
        }
        let events: Vec<Arc<Event>> = table.events_since(self.cursor, BATCH).cloned().collect();
        if !events.is_empty() {
            return Found::Events(events);
        }
        if retired {
            return Found::Ended;
        }
        let called = state.bookmark_calls > self.bookmark_calls;
        self.bookmark_calls = state.bookmark_calls;
        let due = std::mem::take(&mut self.bookmark_due);
        // A watch from a future version sends nothing before that version.
        if self.bookmarks && (called || due) && state.version >= self.start {
            return Found::Bookmark(state.version);
        }
        Found::Nothing
    }

    fn queue_events(&mut self, events: &[Arc<Event>]) {
        for event in events {
            self.cursor = event.version;
            if !event.object.key.starts_with(&self.frames.prefix) {
                continue;
            }
            let wall = self.shared.clock.wall();
            self.ready.extend(self.frames.event(event, wall));
        }
    }

    /// Waits for a change, the next bookmark, the expiry of an Event, or the end of the watch.
    async fn wait(&mut self) {
        let mut until = if self.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
        if self.frames.target.kind.is(kinds::EVENTS)
            && let Some(due) = self.shared.state.lock().next_expiry()
        {
            until = until.min(due);
        }
        tokio::select! {
            biased;
            () = self.signal.changed() => {}
            () = tokio::time::sleep_until(until) => {
                let now = self.shared.clock.now();
                if self.bookmarks && now >= self.next_bookmark && now < self.deadline {
                    self.bookmark_due = true;
                    self.next_bookmark = self.bookmark_after(now);
                }
            }
        }
    }

    /// Every minute, and once shortly before the end.
    fn bookmark_after(&self, now: Instant) -> Instant {
        let last = self.deadline.checked_sub(LAST_BOOKMARK).unwrap_or(now);
        let next = now + BOOKMARK_PERIOD;
        if next < last {
            next
        } else if now < last {
            last
        } else {
            self.deadline
        }
    }
}
