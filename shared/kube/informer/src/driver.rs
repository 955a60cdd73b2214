//! Executes the steps of the reflector. Only this file reads from the network.

#[cfg(test)]
mod tests;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use api::{Cached, Event, Frame, Version};
use bytes::Bytes;
use client::{ApiError, Lines, LinesError, Permit, Watcher};
use clock::{BootInstant, Clock, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    receiver::{Decoded, ObjectReceiver},
    reflector::{Failure, FrameAction, PageOutcome, ReceivedFrame, Reflector, ReflectorStep, Silence, StreamEnd},
    watched::{Command, InformerState, Watched},
};

/// The task of one informer.
pub(crate) struct Driver<T: Cached, F: ObjectReceiver<T>> {
    pub(crate) watcher: Watcher,
    pub(crate) clock: Clock,
    /// The URL path of the collection.
    pub(crate) path: String,
    pub(crate) receiver: Arc<F>,
    pub(crate) state: Arc<InformerState>,
    pub(crate) reflector: Reflector,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) stop: CancellationToken,
    pub(crate) read_state: ReadState<T, F>,
}

/// What the driver is reading now.
pub(crate) struct ReadState<T: Cached, F: ObjectReceiver<T>> {
    /// The open watch.
    lines: Option<Lines>,
    /// The set that is being received.
    set: Option<IncomingSet<F::Set>>,
    /// When this set was requested.
    requested_at: BootInstant,
}

/// A set that is being received.
struct IncomingSet<S> {
    set: S,
    /// The newest resourceVersion of its objects.
    newest: Option<Version>,
}

/// How a wait ended.
enum WaitOutcome<O> {
    Done(O),
    /// The time limit passed.
    TimedOut,
    /// A command changed the state of the reflector.
    Interrupted,
    Stopped,
}

/// The informer was stopped.
struct Stopped;

impl<T: Cached, F: ObjectReceiver<T>> Drop for Driver<T, F> {
    /// The task has ended or was dropped, so no handler is called any more.
    fn drop(&mut self) {
        self.receiver.remove_handlers();
    }
}

impl<T: Cached, F: ObjectReceiver<T>> Driver<T, F> {
    /// Runs until the informer is stopped. After it returns, nothing is stored and no handler is called.
    pub(crate) async fn run(mut self) {
        while !matches!(self.step().await, Err(Stopped)) {}
    }

    async fn step(&mut self) -> Result<(), Stopped> {
        let step = self.reflector.next(self.clock.now());
        self.state.set_liveness(self.reflector.unanswered_since(), self.reflector.failing_since());
        match step {
            ReflectorStep::Open { query, within, set } => self.open(&query, within, set).await,
            ReflectorStep::List { query, first } => self.list(&query, first).await,
            ReflectorStep::Read { until, most } => self.read(until, most).await,
            ReflectorStep::Wait { until } => {
                self.read_state.set = None;
                match self.wait_for(std::future::pending::<()>(), Some(until)).await {
                    WaitOutcome::Stopped => Err(Stopped),
                    WaitOutcome::Done(()) | WaitOutcome::TimedOut | WaitOutcome::Interrupted => Ok(()),
                }
            }
        }
    }

    async fn open(&mut self, query: &str, within: Option<Duration>, set: bool) -> Result<(), Stopped> {
        // Close the old watch before opening the new one. If no response comes, the client closes its
        // connection.
        self.read_state.lines = None;
        self.read_state.set = None;
        self.read_state.requested_at = self.clock.boot();
        let path = format!("{}?{query}", self.path);
        let response = self.send_request(&path, |permit| permit.watch(&path, T::accept(true), within)).await;
        let response = match response {
            WaitOutcome::Done(response) => response,
            WaitOutcome::TimedOut | WaitOutcome::Interrupted => return Ok(()),
            WaitOutcome::Stopped => return Err(Stopped),
        };
        let now = self.clock.now();
        match response {
            Ok(lines) => {
                self.state.record_response(now);
                self.reflector.on_opened(now);
                self.read_state.lines = Some(lines);
                if set {
                    self.read_state.set = Some(IncomingSet::new(&*self.receiver));
                } else {
                    self.state.meter().count_reopen();
                }
            }
            Err(err) => {
                let failure = self.report_failure("Failed to watch", &err);
                if self.reflector.on_open_failed(failure, now) {
                    self.state.meter().count_frozen();
                }
            }
        }
        Ok(())
    }

    async fn list(&mut self, query: &str, first: bool) -> Result<(), Stopped> {
        // The stream that should have brought the set is closed.
        self.read_state.lines = None;
        if first {
            self.read_state.requested_at = self.clock.boot();
            self.read_state.set = None;
        }
        let path = format!("{}?{query}", self.path);
        let bytes = match self.send_request(&path, |permit| permit.list(&path, T::accept(false))).await {
            WaitOutcome::Done(bytes) => bytes,
            WaitOutcome::TimedOut | WaitOutcome::Interrupted => return Ok(()),
            WaitOutcome::Stopped => return Err(Stopped),
        };
        let page = match bytes {
            Ok(bytes) => T::decode_page(&bytes).map_err(|err| {
                self.state.meter().report_failure("List does not decode", &err);
                self.mark_untrusted(&err.to_string());
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
        self.state.record_response(self.clock.now());
        let mut set = self.read_state.set.take().unwrap_or_else(|| IncomingSet::new(&*self.receiver));
        for item in page.items {
            let version = version_of(&item).clone();
            set.collect(&*self.receiver, Event::Added, item, &version);
        }
        self.read_state.set = Some(set);
        match self.reflector.on_page(&page.version, page.next) {
            PageOutcome::More => {}
            PageOutcome::Complete { consistent } => self.on_set_complete(consistent),
        }
        Ok(())
    }

    async fn read(&mut self, until: Instant, most: usize) -> Result<(), Stopped> {
        // Taken out, so that commands can be handled meanwhile. A command that changes the reflector also closes this
        // stream.
        let Some(mut lines) = self.read_state.lines.take() else {
            self.reflector.on_ended(StreamEnd::Broken, self.clock.now());
            return Ok(());
        };
        let batch = match self.wait_for(lines.next_batch(most), Some(until)).await {
            WaitOutcome::Done(batch) => batch,
            WaitOutcome::Interrupted => return Ok(()),
            WaitOutcome::Stopped => return Err(Stopped),
            WaitOutcome::TimedOut => {
                self.on_silent(lines);
                return Ok(());
            }
        };
        let now = self.clock.now();
        match batch {
            Some(Ok(batch)) => {
                self.read_state.lines = Some(lines);
                self.state.record_response(now);
                let is_full = batch.len() >= most;
                self.handle_lines(batch, now);
                if is_full {
                    // More frames are available; let other tasks run first.
                    tokio::task::yield_now().await;
                }
            }
            Some(Err(err @ LinesError::Broken(_))) => {
                tracing::debug!(%err, path = self.path, "Watch ended");
                self.reflector.on_ended(StreamEnd::Broken, now);
            }
            // A watch from the same version would send the same line again. The store is still correct, because no
            // part of the line was applied.
            Some(Err(err @ LinesError::TooLong)) => {
                self.state.record_response(now);
                self.reflector.on_frame(&ReceivedFrame::Garbage, now);
                self.state.meter().report_failure("Watch cannot be read: listing again", &err);
            }
            None => {
                self.state.record_response(now);
                self.reflector.on_ended(StreamEnd::Clean, now);
            }
        }
        Ok(())
    }

    /// Waits for the rate limiter, then sends the request. A response is due only from then on; the client
    /// limits the time after that.
    async fn send_request<O, A>(
        &mut self,
        path: &str,
        send: impl FnOnce(Permit) -> A,
    ) -> WaitOutcome<Result<O, ApiError>>
    where
        A: Future<Output = Result<O, ApiError>>,
    {
        let watcher = self.watcher();
        let permit = match self.wait_for(watcher.permit(path), None).await {
            WaitOutcome::Done(Ok(permit)) => permit,
            WaitOutcome::Done(Err(err)) => return WaitOutcome::Done(Err(err)),
            WaitOutcome::TimedOut => return WaitOutcome::TimedOut,
            WaitOutcome::Interrupted => return WaitOutcome::Interrupted,
            WaitOutcome::Stopped => return WaitOutcome::Stopped,
        };
        self.reflector.on_request_sent(self.clock.now());
        self.state.set_liveness(self.reflector.unanswered_since(), self.reflector.failing_since());
        // Boxed, because it is large and is rarely needed.
        self.wait_for(Box::pin(send(permit)), None).await
    }

    /// Waits for `future`, at most until `until`. Handles commands and due resyncs meanwhile.
    async fn wait_for<O>(&mut self, future: impl Future<Output = O>, until: Option<Instant>) -> WaitOutcome<O> {
        let mut future = pin!(future);
        loop {
            let deadline = self.receiver.next_deadline();
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return WaitOutcome::Stopped,
                Some(command) = self.commands.recv() => {
                    if self.handle_command(command) {
                        return WaitOutcome::Interrupted;
                    }
                }
                () = sleep_until(deadline) => self.receiver.serve_handlers(self.clock.now()),
                done = &mut future => return WaitOutcome::Done(done),
                () = sleep_until(until) => return WaitOutcome::TimedOut,
            }
        }
    }

    /// Returns true when the command changed the next step of the reflector.
    fn handle_command(&mut self, command: Command) -> bool {
        match command {
            Command::ServeHandlers => {
                self.receiver.serve_handlers(self.clock.now());
                return false;
            }
            Command::ReopenForProof if !self.reflector.reopen_for_proof() => return false,
            Command::ReopenForProof => {}
            Command::RelistConsistently => self.reflector.relist_consistently(self.clock.now()),
        }
        self.read_state.lines = None;
        true
    }

    /// Decodes and handles frames in order. Each is dropped before the next is decoded.
    fn handle_lines(&mut self, lines: Vec<Bytes>, now: Instant) {
        let mut batch = Vec::new();
        for line in lines {
            if self.handle_frame(T::decode_frame(&line), &mut batch, now) {
                break;
            }
        }
        self.apply(batch);
    }

    /// Returns true when the stream must not be read further.
    fn handle_frame(&mut self, frame: Frame<T>, batch: &mut Vec<(Event, Decoded<T>)>, now: Instant) -> bool {
        let (event, object): (Event, Decoded<T>) = match frame {
            Frame::Object(event, object) => (event, Ok(object)),
            Frame::Unreadable(event, meta, why) => (event, Err((meta, why))),
            Frame::Bookmark { version, initial_end } => {
                let action = self.reflector.on_frame(&ReceivedFrame::Bookmark { version: &version, initial_end }, now);
                if let FrameAction::Complete { consistent } = action {
                    self.on_set_complete(consistent);
                }
                return false;
            }
            Frame::Error(status) => {
                let action = self.reflector.on_frame(&ReceivedFrame::Error(&status), now);
                let why = format!("{} {}", status.code, status.message);
                match action {
                    FrameAction::Stop { expired: true } => {
                        tracing::info!(err = why, path = self.path, "Watch expired: listing again")
                    }
                    _ => self.state.meter().report_failure("Watch ended by the server", &why),
                }
                self.read_state.lines = None;
                return true;
            }
            Frame::Garbage(why) => {
                self.reflector.on_frame(&ReceivedFrame::Garbage, now);
                self.state.meter().report_failure("Watch event does not decode", &why);
                self.mark_untrusted(&why);
                self.read_state.lines = None;
                return true;
            }
        };
        let version = version_of(&object).clone();
        match self.reflector.on_frame(&ReceivedFrame::Object(event, &version), now) {
            FrameAction::Collect => {
                if let Some(set) = &mut self.read_state.set {
                    set.collect(&*self.receiver, event, object, &version);
                }
                false
            }
            FrameAction::Apply => {
                batch.push((event, object));
                false
            }
            FrameAction::Complete { .. } | FrameAction::Progress => false,
            FrameAction::Stop { .. } => true,
        }
    }

    /// Applies the collected events and the new version to the store and calls the handlers.
    fn apply(&mut self, batch: Vec<(Event, Decoded<T>)>) {
        let version = self.reflector.version().clone();
        let nothing_new = self.state.store_version().is_none_or(|at| at == version);
        if batch.is_empty() && nothing_new {
            return;
        }
        let began = self.clock.now();
        let events = batch.len();
        if events > 0 {
            let versions = batch.iter().map(|(_, object)| version_of(object));
            let newest = versions.reduce(|a, b| if b.is_older_than(a) { a } else { b }).cloned();
            self.receiver.apply(batch);
            newest.into_iter().for_each(|it| self.state.record_event_version(it));
        }
        self.state.on_progress(version.clone());
        self.record_applied(events, began, &version);
    }

    /// Handles the end of a set: it becomes the content of the store.
    fn on_set_complete(&mut self, consistent: bool) {
        let Some(IncomingSet { set, newest }) = self.read_state.set.take() else { return };
        let began = self.clock.now();
        let missed_deletion = self.receiver.replace(set) && self.state.has_synced();
        let version = self.reflector.version().clone();
        if let Some(version) = if missed_deletion { Some(version.clone()) } else { newest } {
            self.state.record_event_version(version);
        }
        self.state.on_set_applied(version.clone(), self.read_state.requested_at, consistent);
        let (objects, _) = self.receiver.object_counts();
        self.record_applied(objects, began, &version);
        tracing::debug!(target: "v2", path = self.path, objects, %version, consistent, "Caches populated");
    }

    fn record_applied(&self, events: usize, began: Instant, version: &Version) {
        let took = self.clock.now().saturating_duration_since(began);
        let (objects, unreadable) = self.receiver.object_counts();
        self.state.set_objects(objects);
        self.state.meter().record_applied(events, took, version, unreadable);
    }

    fn on_silent(&mut self, lines: Lines) {
        match self.reflector.on_silent(self.clock.now()) {
            Silence::NoSet => {
                let why = "the stream brought none; listing instead for a while";
                self.state.meter().report_failure("No first set", &why);
            }
            Silence::Quiet => {}
            Silence::Frozen => {
                self.state.meter().count_frozen();
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
            self.state.meter().report_failure(what, err);
        }
        if failure != Failure::Unreachable {
            self.state.record_response(self.clock.now());
        }
        failure
    }

    fn mark_untrusted(&self, why: &str) {
        self.receiver.mark_untrusted(why);
    }
}

impl<T: Cached, F: ObjectReceiver<T>> ReadState<T, F> {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { lines: None, set: None, requested_at: clock.boot() }
    }
}

impl<S> IncomingSet<S> {
    fn new<T>(receiver: &impl ObjectReceiver<T, Set = S>) -> Self {
        Self { set: receiver.begin(), newest: None }
    }

    fn collect<T>(
        &mut self,
        receiver: &impl ObjectReceiver<T, Set = S>,
        event: Event,
        object: Decoded<T>,
        version: &Version,
    ) {
        if self.newest.as_ref().is_none_or(|it| it.is_older_than(version)) {
            self.newest = Some(version.clone());
        }
        receiver.collect(&mut self.set, event, object);
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
