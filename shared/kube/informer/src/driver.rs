//! Executes the steps of the reflector. Only this file reads from the network.

#[cfg(test)]
mod tests;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use api::{Cached, Event, Frame, Version};
use bytes::Bytes;
use client::{ApiError, Lines, LinesError, Token, Watcher};
use clock::{BootInstant, Clock, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    hub::{Decoded, Feed},
    reflector::{End, Failure, Listed, Reflector, Seen, Silence, Step, Verdict},
    watched::{Command, Vitals, Watched},
};

/// The task of one informer.
pub(crate) struct Driver<T: Cached, F: Feed<T>> {
    pub(crate) watcher: Watcher,
    pub(crate) clock: Clock,
    /// The URL path of the collection.
    pub(crate) path: String,
    pub(crate) feed: Arc<F>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) reflector: Reflector,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) stop: CancellationToken,
    pub(crate) reading: Reading<T, F>,
}

/// What the driver is reading now.
pub(crate) struct Reading<T: Cached, F: Feed<T>> {
    /// The open watch.
    lines: Option<Lines>,
    /// The set that is being received.
    set: Option<Arriving<F::Set>>,
    /// When this set was requested.
    asked: BootInstant,
}

/// A set that is being received.
struct Arriving<S> {
    set: S,
    /// The newest resourceVersion of its objects.
    newest: Option<Version>,
}

/// How a wait ended.
enum Waited<O> {
    Done(O),
    /// The time limit passed.
    Late,
    /// A command changed the state of the reflector.
    Overtaken,
    Stopped,
}

/// The informer must stop.
struct Stop;

impl<T: Cached, F: Feed<T>> Driver<T, F> {
    /// Runs until the informer is stopped. After it returns, nothing is stored and no handler is called.
    pub(crate) async fn run(mut self) {
        while !matches!(self.step().await, Err(Stop)) {}
    }

    async fn step(&mut self) -> Result<(), Stop> {
        let step = self.reflector.next(self.clock.now());
        self.vitals.set_trouble(self.reflector.unanswered(), self.reflector.behind());
        match step {
            Step::Open { query, within, set } => self.open(&query, within, set).await,
            Step::List { query, first } => self.list(&query, first).await,
            Step::Read { until, most } => self.read(until, most).await,
            Step::Wait { until } => {
                self.reading.set = None;
                match self.wait_for(std::future::pending::<()>(), Some(until)).await {
                    Waited::Stopped => Err(Stop),
                    Waited::Done(()) | Waited::Late | Waited::Overtaken => Ok(()),
                }
            }
        }
    }

    async fn open(&mut self, query: &str, within: Option<Duration>, set: bool) -> Result<(), Stop> {
        // Close the old watch before opening the new one. If the request is not answered, the client closes its
        // connection.
        self.reading.lines = None;
        self.reading.set = None;
        self.reading.asked = self.clock.boot();
        let path = format!("{}?{query}", self.path);
        let answer = self.ask(&path, |token| token.watch(&path, T::accept(true), within)).await;
        let answer = match answer {
            Waited::Done(answer) => answer,
            Waited::Late | Waited::Overtaken => return Ok(()),
            Waited::Stopped => return Err(Stop),
        };
        let now = self.clock.now();
        match answer {
            Ok(lines) => {
                self.vitals.record_sign_of_life(now);
                self.reflector.on_opened(now);
                self.reading.lines = Some(lines);
                if set {
                    self.reading.set = Some(Arriving::nothing(&*self.feed));
                } else {
                    self.vitals.meter().count_reopen();
                }
            }
            Err(err) => {
                let failure = self.report_failure("Failed to watch", &err);
                if self.reflector.on_open_failed(failure, now) {
                    self.vitals.meter().count_frozen();
                }
            }
        }
        Ok(())
    }

    async fn list(&mut self, query: &str, first: bool) -> Result<(), Stop> {
        // The stream that should have brought the set is closed.
        self.reading.lines = None;
        if first {
            self.reading.asked = self.clock.boot();
            self.reading.set = None;
        }
        let path = format!("{}?{query}", self.path);
        let bytes = match self.ask(&path, |token| token.list(&path, T::accept(false))).await {
            Waited::Done(bytes) => bytes,
            Waited::Late | Waited::Overtaken => return Ok(()),
            Waited::Stopped => return Err(Stop),
        };
        let page = match bytes {
            Ok(bytes) => T::decode_page(&bytes).map_err(|err| {
                self.vitals.meter().report_failure("List does not decode", &err);
                self.distrust(&err.to_string());
                Failure::Other
            }),
            Err(err) => Err(self.report_failure("Failed to list", &err)),
        };
        let page = match page {
            Ok(page) => page,
            Err(failure) => {
                self.reflector.on_list_failed(failure, self.clock.now());
                return Ok(());
            }
        };
        self.vitals.record_sign_of_life(self.clock.now());
        let mut set = self.reading.set.take().unwrap_or_else(|| Arriving::nothing(&*self.feed));
        for item in page.items {
            let version = version_of(&item).clone();
            set.collect(&*self.feed, Event::Added, item, &version);
        }
        self.reading.set = Some(set);
        match self.reflector.on_page(&page.version, page.next) {
            Listed::More => {}
            Listed::Complete { consistent } => self.complete(consistent),
        }
        Ok(())
    }

    async fn read(&mut self, until: Instant, most: usize) -> Result<(), Stop> {
        // Taken out, so that commands can be handled meanwhile. A command that changes the reflector also closes this
        // stream.
        let Some(mut lines) = self.reading.lines.take() else {
            self.reflector.on_ended(End::Broken, self.clock.now());
            return Ok(());
        };
        let batch = match self.wait_for(lines.next_batch(most), Some(until)).await {
            Waited::Done(batch) => batch,
            Waited::Overtaken => return Ok(()),
            Waited::Stopped => return Err(Stop),
            Waited::Late => {
                self.on_silent(lines);
                return Ok(());
            }
        };
        let now = self.clock.now();
        match batch {
            Some(Ok(batch)) => {
                self.reading.lines = Some(lines);
                self.vitals.record_sign_of_life(now);
                let is_full = batch.len() >= most;
                self.take(batch, now);
                if is_full {
                    // More frames are available; let other tasks run first.
                    tokio::task::yield_now().await;
                }
            }
            Some(Err(err @ LinesError::Broken(_))) => {
                tracing::debug!(%err, path = self.path, "Watch ended");
                self.reflector.on_ended(End::Broken, now);
            }
            // A watch from the same version would bring the same line again. The store stays trusted, because nothing
            // of the line was read.
            Some(Err(err @ LinesError::TooLong)) => {
                self.vitals.record_sign_of_life(now);
                self.reflector.on_frame(&Seen::Garbage, now);
                self.vitals.meter().report_failure("Watch cannot be read: listing again", &err);
            }
            None => {
                self.vitals.record_sign_of_life(now);
                self.reflector.on_ended(End::Clean, now);
            }
        }
        Ok(())
    }

    /// Waits for a token of the rate limiter, then sends the request. A response is due only from then on; the client
    /// limits the time after that.
    async fn ask<O, A>(&mut self, path: &str, send: impl FnOnce(Token) -> A) -> Waited<Result<O, ApiError>>
    where
        A: Future<Output = Result<O, ApiError>>,
    {
        let watcher = self.watcher();
        let token = match self.wait_for(watcher.token(path), None).await {
            Waited::Done(Ok(token)) => token,
            Waited::Done(Err(err)) => return Waited::Done(Err(err)),
            Waited::Late => return Waited::Late,
            Waited::Overtaken => return Waited::Overtaken,
            Waited::Stopped => return Waited::Stopped,
        };
        self.reflector.on_request_sent(self.clock.now());
        self.vitals.set_trouble(self.reflector.unanswered(), self.reflector.behind());
        // Boxed, because it is large and is rarely needed.
        self.wait_for(Box::pin(send(token)), None).await
    }

    /// Waits for `what`, at most until `until`. Handles commands and due resyncs meanwhile.
    async fn wait_for<O>(&mut self, what: impl Future<Output = O>, until: Option<Instant>) -> Waited<O> {
        let mut what = pin!(what);
        loop {
            let deadline = self.feed.next_deadline();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Waited::Stopped,
                Some(command) = self.commands.recv() => {
                    if self.handle(command) {
                        return Waited::Overtaken;
                    }
                }
                () = sleep_until(deadline) => self.feed.serve_handlers(self.clock.now()),
                done = &mut what => return Waited::Done(done),
                () = sleep_until(until) => return Waited::Late,
            }
        }
    }

    /// Returns true when the command changed the next step of the reflector.
    fn handle(&mut self, command: Command) -> bool {
        match command {
            Command::ServeHandlers => {
                self.feed.serve_handlers(self.clock.now());
                return false;
            }
            Command::ReopenForProof if !self.reflector.reopen_for_proof() => return false,
            Command::ReopenForProof => {}
            Command::RelistConsistently => self.reflector.relist_consistently(self.clock.now()),
        }
        self.reading.lines = None;
        true
    }

    /// Decodes and handles frames in order. Each is dropped before the next is decoded.
    fn take(&mut self, lines: Vec<Bytes>, now: Instant) {
        let mut batch = Vec::new();
        for line in lines {
            if self.take_frame(T::decode_frame(&line), &mut batch, now) {
                break;
            }
        }
        self.apply(batch);
    }

    /// Returns true when the stream must not be read further.
    fn take_frame(&mut self, frame: Frame<T>, batch: &mut Vec<(Event, Decoded<T>)>, now: Instant) -> bool {
        let (event, object): (Event, Decoded<T>) = match frame {
            Frame::Object(event, object) => (event, Ok(object)),
            Frame::Unreadable(event, meta, why) => (event, Err((meta, why))),
            Frame::Bookmark { version, initial_end } => {
                let verdict = self.reflector.on_frame(&Seen::Bookmark { version: &version, initial_end }, now);
                if let Verdict::Complete { consistent } = verdict {
                    self.complete(consistent);
                }
                return false;
            }
            Frame::Error(status) => {
                let verdict = self.reflector.on_frame(&Seen::Error(&status), now);
                let why = format!("{} {}", status.code, status.message);
                match verdict {
                    Verdict::Stop { expired: true } => {
                        tracing::info!(err = why, path = self.path, "Watch expired: listing again")
                    }
                    _ => self.vitals.meter().report_failure("Watch ended by the server", &why),
                }
                self.reading.lines = None;
                return true;
            }
            Frame::Garbage(why) => {
                self.reflector.on_frame(&Seen::Garbage, now);
                self.vitals.meter().report_failure("Watch brought what does not decode", &why);
                self.distrust(&why);
                self.reading.lines = None;
                return true;
            }
        };
        let version = version_of(&object).clone();
        match self.reflector.on_frame(&Seen::Object(event, &version), now) {
            Verdict::Collect => {
                if let Some(set) = &mut self.reading.set {
                    set.collect(&*self.feed, event, object, &version);
                }
                false
            }
            Verdict::Apply => {
                batch.push((event, object));
                false
            }
            Verdict::Complete { .. } | Verdict::Progress => false,
            Verdict::Stop { .. } => true,
        }
    }

    /// Applies the collected events and the new version to the store and calls the handlers.
    fn apply(&mut self, batch: Vec<(Event, Decoded<T>)>) {
        let version = self.reflector.version().clone();
        let nothing_new = self.vitals.store_version().is_none_or(|at| at == version);
        if batch.is_empty() && nothing_new {
            return;
        }
        let began = self.clock.now();
        let events = batch.len();
        if events > 0 {
            let versions = batch.iter().map(|(_, object)| version_of(object));
            let newest = versions.reduce(|a, b| if b.is_older_than(a) { a } else { b }).cloned();
            self.feed.apply(batch);
            newest.into_iter().for_each(|it| self.vitals.record_event_version(it));
        }
        self.vitals.on_progress(version.clone());
        self.account(events, began, &version);
    }

    /// Handles the end of a set: it becomes the content of the store.
    fn complete(&mut self, consistent: bool) {
        let Some(Arriving { set, newest }) = self.reading.set.take() else { return };
        let began = self.clock.now();
        let missed_deletion = self.feed.replace(set) && self.vitals.has_synced();
        let version = self.reflector.version().clone();
        if let Some(shown) = if missed_deletion { Some(version.clone()) } else { newest } {
            self.vitals.record_event_version(shown);
        }
        self.vitals.on_set_applied(version.clone(), consistent.then_some(self.reading.asked));
        let (objects, _) = self.feed.held();
        self.account(objects, began, &version);
        tracing::debug!(target: "v2", path = self.path, objects, %version, consistent, "Caches populated");
    }

    fn account(&self, events: usize, began: Instant, version: &Version) {
        let took = self.clock.now().saturating_duration_since(began);
        let (objects, unreadable) = self.feed.held();
        self.vitals.set_objects(objects);
        self.vitals.meter().record_applied(events, took, version, unreadable);
    }

    fn on_silent(&mut self, lines: Lines) {
        match self.reflector.on_silent(self.clock.now()) {
            Silence::NoSet => {
                let why = "the stream brought none; listing the classic way for a while";
                self.vitals.meter().report_failure("No first set", &why);
            }
            Silence::Quiet => {}
            Silence::Frozen => {
                self.vitals.meter().count_frozen();
                lines.retire_connection();
            }
        }
    }

    fn watcher(&self) -> Watcher {
        if self.reflector.is_urgent() { self.watcher.urgent() } else { self.watcher.clone() }
    }

    /// Logs and counts a failure, and returns its meaning for the reflector.
    fn report_failure(&self, what: &'static str, err: &ApiError) -> Failure {
        let failure = Failure::of(err);
        if failure == Failure::Expired {
            tracing::info!(%err, path = self.path, "{what}");
        } else {
            self.vitals.meter().report_failure(what, err);
        }
        if failure != Failure::Unreachable {
            self.vitals.record_sign_of_life(self.clock.now());
        }
        failure
    }

    fn distrust(&self, why: &str) {
        self.feed.distrust(why);
    }
}

impl<T: Cached, F: Feed<T>> Reading<T, F> {
    pub(crate) fn nothing(clock: &Clock) -> Self {
        Self { lines: None, set: None, asked: clock.boot() }
    }
}

impl<S> Arriving<S> {
    fn nothing<T>(feed: &impl Feed<T, Set = S>) -> Self {
        Self { set: feed.begin(), newest: None }
    }

    fn collect<T>(&mut self, feed: &impl Feed<T, Set = S>, event: Event, object: Decoded<T>, version: &Version) {
        if self.newest.as_ref().is_none_or(|it| it.is_older_than(version)) {
            self.newest = Some(version.clone());
        }
        feed.collect(&mut self.set, event, object);
    }
}

fn version_of<T: Cached>(object: &Decoded<T>) -> &Version {
    match object {
        Ok(object) => object.meta().version,
        Err((meta, _)) => &meta.version,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
