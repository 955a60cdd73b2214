use std::{cell::Cell, collections::VecDeque, ops::Bound, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::Instant;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use crate::{
    BoxError, Failure, ResponseBody,
    answer::{self, Fault, Form, Shown},
    cluster::Shared,
    kinds, list, read,
    rest::Query,
    selectors::Selectors,
    signal::Receiver,
    store::{Event, Table},
    stored::{self, Change, Stored},
    table::{self, Look},
    write::Target,
};

/// How many changes a watch takes at once.
const BATCH: usize = 256;
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// One open watch, pulled by its reader: nothing runs between two reads.
struct Watching {
    shared: Arc<Shared>,
    target: Target,
    view: View,
    table: u64,
    number: u64,
    signal: Receiver,
    /// Frames that are ready to go.
    ready: VecDeque<Bytes>,
    /// The first set, encoded only as it is read.
    initial: std::vec::IntoIter<Arc<Stored>>,
    /// The bookmark that closes the first set.
    initial_end: Option<u64>,
    /// Changes up to here are shown.
    cursor: u64,
    start: u64,
    /// Of `sendInitialEvents`: this version must be there before anything is shown.
    awaited: Option<u64>,
    bookmarks: bool,
    bookmark_calls: u64,
    next_bookmark: Instant,
    bookmark_due: bool,
    deadline: Instant,
    ended: bool,
}

/// What the reader wants to see, and how.
struct View {
    prefix: String,
    selectors: Selectors,
    form: Form,
    /// Objects are stored in the version that is asked for.
    plain: bool,
    /// A table has told its columns.
    columns_told: Cell<bool>,
}

/// What the table has for a watch.
enum Found {
    Events(Vec<Arc<Event>>),
    Bookmark(u64),
    /// The remembered changes begin later than the watch's place.
    Lost(u64),
    Frozen,
    Broken,
    Ended,
    Nothing,
}

/// Opens a watch. The head goes out at once; everything else is in the stream.
pub(crate) fn watch(
    shared: &Arc<Shared>,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    let start = Start::parse(query)?;
    let selectors = Selectors::parse(&target.kind, query.get("labelSelector"), query.get("fieldSelector"))?;
    if form == Form::MetadataList {
        let message = "you requested PartialObjectMetadataList, but the requested object is not a list";
        return Err(Failure::new(406, "NotAcceptable", message, None));
    }
    let timeout = query.number("timeoutSeconds")?.and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
    let plain = target.api_version == target.kind.api_version();
    let view = View { prefix: list::prefix(target), selectors, form, plain, columns_told: Cell::new(false) };
    let watching = open(shared, target, view, &start, query.flag("allowWatchBookmarks"), timeout)?;
    let body = StreamBody::new(stream::unfold(watching, next)).boxed_unsync();
    Ok(answer::respond_with(200, "application/json", body))
}

/// Where a watch begins.
struct Start {
    version: u64,
    /// Current objects first.
    initial: bool,
    /// From now on, without the current objects.
    now: bool,
    /// Asked for by parameter rather than by an empty version.
    streamed: bool,
}

impl Start {
    fn parse(query: &Query) -> Result<Self, Failure> {
        let version = read::version(query)?;
        let wanted = query.get("resourceVersionMatch");
        let refused =
            |field: &str, why: &str| Err(Failure::invalid_options("ListOptions", Fault::forbidden(field, why)));
        if !query.get("continue").is_empty() {
            return refused("continue", "continue is forbidden for watch");
        }
        let asked = match query.get("sendInitialEvents") {
            "" => None,
            text => Some(!matches!(text, "0" | "false")),
        };
        match (asked, wanted) {
            (Some(_), "NotOlderThan") | (None, "") => {}
            (Some(_), _) => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                return refused("resourceVersionMatch", why);
            }
            (None, _) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                return refused("resourceVersionMatch", why);
            }
        }
        let initial = asked.unwrap_or(version == 0);
        Ok(Self { version, initial, now: asked == Some(false) && version == 0, streamed: asked == Some(true) })
    }
}

fn open(
    shared: &Arc<Shared>,
    target: &Target,
    view: View,
    start: &Start,
    bookmarks: bool,
    timeout: u64,
) -> Result<Watching, Failure> {
    let now = shared.clock.now();
    let mut state = shared.state.lock();
    // As a real server: 30 to 60 minutes where the client does not say.
    let timeout = if timeout == 0 { 1800 + state.rng.u64(..1800) } else { timeout };
    let deadline = now + Duration::from_secs(timeout);
    let (version, bookmark_calls) = (state.version, state.bookmark_calls);
    let table = state.tables.get_mut(&target.table).ok_or_else(Failure::no_group)?;
    let number = table.watches.next;
    table.watches.next += 1;
    let mut watching = Watching {
        shared: shared.clone(),
        target: target.clone(),
        view,
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
        watching.show_present(table, version);
    } else if watching.cursor < table.floor {
        let expired = too_old(&target.kind, start.version, table.floor);
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

/// The next frame, and the watch that follows it; nothing at the clean end.
async fn next(mut it: Watching) -> Option<(Result<Frame<Bytes>, BoxError>, Watching)> {
    loop {
        if let Some(frame) = it.next_ready() {
            return Some((Ok(Frame::data(frame)), it));
        }
        if it.ended {
            return None;
        }
        if let Some(version) = it.awaited.take() {
            match read::wait_for(&it.shared, version).await {
                Ok(()) => it.begin_late(),
                Err(failure) => {
                    it.ready.push_back(error_frame(failure));
                    it.ended = true;
                }
            }
            continue;
        }
        match it.look() {
            Found::Events(events) => it.take(&events),
            Found::Bookmark(version) => {
                if version != it.start {
                    let frame = it.bookmark(version, false);
                    it.ready.push_back(frame);
                }
            }
            Found::Lost(oldest) => {
                let expired = too_old(&it.target.kind, it.cursor, oldest);
                it.ready.push_back(error_frame(expired));
                it.ended = true;
            }
            Found::Broken => {
                it.ended = true;
                return Some((Err("connection reset by the test cluster".into()), it));
            }
            Found::Ended => return None,
            Found::Frozen => {
                // Neither the deadline nor a bookmark gets through.
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
            return Some(self.frame(Change::Added, &object));
        }
        let version = self.initial_end.take()?;
        self.bookmarks.then(|| self.bookmark(version, true))
    }

    /// Shows the objects of now first.
    fn show_present(&mut self, table: &Table, version: u64) {
        let first = (Bound::Included(self.view.prefix.as_str()), Bound::Unbounded);
        let shown: Vec<Arc<Stored>> = table
            .objects
            .range::<str, _>(first)
            .map(|it| it.1)
            .take_while(|it| it.key.starts_with(&self.view.prefix))
            .filter(|it| self.view.selectors.matches(it))
            .cloned()
            .collect();
        self.initial = shown.into_iter();
        self.initial_end = Some(version);
        (self.cursor, self.start) = (version, version);
    }

    fn begin_late(&mut self) {
        let shared = self.shared.clone();
        let state = shared.state.lock();
        match state.tables.get(&self.target.table) {
            Some(table) => self.show_present(table, state.version),
            None => self.ended = true,
        }
    }

    /// What there is, in one look under the lock.
    fn look(&mut self) -> Found {
        // Marked as seen before looking: what comes later wakes again.
        self.signal.mark_unchanged();
        let state = self.shared.state.lock();
        let Some((table, retired)) = state.watched(&self.target.table, self.table) else { return Found::Ended };
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
        let events: Vec<Arc<Event>> = table.since(self.cursor, BATCH).cloned().collect();
        if !events.is_empty() {
            return Found::Events(events);
        }
        if retired {
            return Found::Ended;
        }
        let called = state.bookmark_calls > self.bookmark_calls;
        self.bookmark_calls = state.bookmark_calls;
        let due = std::mem::take(&mut self.bookmark_due);
        // A watch that starts in the future knows nothing to tell before.
        if self.bookmarks && (called || due) && state.version >= self.start {
            return Found::Bookmark(state.version);
        }
        Found::Nothing
    }

    fn take(&mut self, events: &[Arc<Event>]) {
        for event in events {
            self.cursor = event.version;
            if !event.object.key.starts_with(&self.view.prefix) {
                continue;
            }
            let selectors = &self.view.selectors;
            let before = event.previous.as_ref().is_some_and(|it| selectors.matches(it));
            let after = event.change != Change::Removed && selectors.matches(&event.object);
            let frame = match (before, after) {
                (false, true) => self.event_frame(event, Change::Added),
                (true, true) => self.event_frame(event, Change::Modified),
                (true, false) => self.leaving_frame(event),
                (false, false) => continue,
            };
            self.ready.push_back(frame);
        }
    }

    /// The object goes, or leaves what the selectors let through: its last matching state, with the version of now.
    fn leaving_frame(&self, event: &Event) -> Bytes {
        match &event.previous {
            Some(last) if event.change != Change::Removed => {
                self.frame(Change::Removed, &last.renumbered(Change::Removed, event.version))
            }
            _ => self.event_frame(event, Change::Removed),
        }
    }

    /// A change as it is: the very bytes that are stored, where the reader wants just them.
    fn event_frame(&self, event: &Event, change: Change) -> Bytes {
        if change == event.change && self.view.form == Form::Full && self.view.plain {
            return event.object.line();
        }
        self.frame(change, &event.object)
    }

    fn frame(&self, change: Change, object: &Stored) -> Bytes {
        let (kind, api_version) = (&self.target.kind, &self.target.api_version);
        match self.view.form {
            Form::Full if self.view.plain || kind.custom => {
                stored::line_of(change.word(), &stored::head(&kind.kind, api_version), object.members())
            }
            Form::Full => line(change.word(), &Shown { object: &object.decode(), api_version, typed: true }),
            Form::Metadata | Form::MetadataList => {
                let mut metadata = object.metadata().to_vec();
                metadata.push(b'}');
                stored::line_of(change.word(), &list::metadata_head(), &metadata)
            }
            Form::Table(look) => self.table_frame(change.word(), &object.decode(), look),
        }
    }

    /// A table of one row; only the first one of a watch tells the columns. Ages are those of now.
    fn table_frame(&self, word: &str, object: &Value, look: Look) -> Bytes {
        let look = look.at(self.shared.clock.wall());
        let with_columns = !self.view.columns_told.replace(true);
        line(word, &table::of_one(&self.target.kind, &self.target.api_version, object, look, with_columns))
    }

    fn bookmark(&self, version: u64, initial_end: bool) -> Bytes {
        let kind = &self.target.kind;
        let mut object = json!({
            "kind": kind.kind, "apiVersion": self.target.api_version,
            "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null },
        });
        if kind.is(kinds::PODS) {
            object["spec"] = json!({ "containers": null });
            object["status"] = json!({});
        }
        if initial_end {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        match self.view.form {
            Form::Full => line("BOOKMARK", &object),
            Form::Metadata | Form::MetadataList => line("BOOKMARK", &answer::metadata_of(&object)),
            Form::Table(look) => self.table_frame("BOOKMARK", &object, look.of_bookmark()),
        }
    }

    /// Waits for a change, the next bookmark or the end.
    async fn wait(&mut self) {
        let until = if self.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
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
        let farewell = self.deadline.checked_sub(FAREWELL).unwrap_or(now);
        let next = now + BOOKMARK_PERIOD;
        if next < farewell {
            next
        } else if now < farewell {
            farewell
        } else {
            self.deadline
        }
    }
}

fn error_frame(failure: Failure) -> Bytes {
    line("ERROR", &failure.into_status())
}

#[derive(serde::Serialize)]
struct Line<'a, T> {
    #[serde(rename = "type")]
    word: &'a str,
    object: &'a T,
}

fn line<T: serde::Serialize>(word: &str, object: &T) -> Bytes {
    let mut bytes = serde_json::to_vec(&Line { word, object }).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}
