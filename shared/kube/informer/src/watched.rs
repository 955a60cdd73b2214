//! The freshness of an informer, independent of its type.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use api::{Resource, Version};
use clock::{BootInstant, Clock, Instant};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::{Wake, handlers::wait_for, metrics::Meter, store::Progress};

/// The freshness of an informer: for readiness, for the consistency gate and for the proof of a new leader.
pub trait Watched: Send + Sync {
    /// The resource that it watches.
    fn resource(&self) -> &Resource;

    /// True once the first set is in the store and all handlers of that time were called with it.
    fn has_synced(&self) -> bool;

    /// Waits until [`Watched::has_synced`]. Waits for ever if the informer is stopped before.
    fn wait_for_sync(&self) -> BoxFuture<'_, ()>;

    /// The time since the last response of the server: a frame, a response, or the normal end of a stream. A
    /// healthy watch of an idle type is silent for up to 75 s.
    fn silent_for(&self) -> Option<Duration>;

    /// For how long a response has been due: requests without a response, or a stream that is silent after its timeout.
    /// `None` while no response is due, and while the rate limiter delays our request.
    fn unanswered_for(&self) -> Option<Duration> {
        None
    }

    /// For how long no list or watch has succeeded since the first failure. `None` while a watch is open.
    fn failing_for(&self) -> Option<Duration> {
        None
    }

    /// The version of the store; `None` before the first set. While a set or an event is handled it is the version
    /// before it.
    fn store_version(&self) -> Option<Version>;

    /// The version of the newest event that was applied and handled, or of the newest object in a set. Other than the
    /// version of a bookmark or list, another informer of this type reaches it even if nothing else happens. After a
    /// relist that showed a deletion it is the version of the list, because the version of the deletion is not known.
    /// `None` before the first object.
    fn last_event_version(&self) -> Option<Version>;

    /// See [`crate::Store::has_passed`].
    fn has_passed(&self, version: &Version) -> bool;

    /// See [`crate::Store::call_when_passed`].
    fn call_when_passed(&self, version: Version, wake: Wake) -> bool;

    /// True when a list, the first or a later one, was read as the most recent state and was requested at `instant` or
    /// later.
    fn has_consistent_list_since(&self, instant: BootInstant) -> bool;

    /// True when any list, the first or a later one, was requested at `instant` or later. A list does not show objects
    /// that were created and deleted while no watch observed them.
    fn has_list_since(&self, instant: BootInstant) -> bool;

    /// Closes the informer's own watch and reopens it from its version for three seconds. Near their end the server
    /// sends a bookmark. Has no effect while a set is being read.
    fn reopen_for_proof(&self);

    /// Requests the most recent set now.
    fn relist_consistently(&self);

    /// How many objects are stored.
    fn len(&self) -> usize;

    /// True when no object is stored.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Commands to the informer's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// A handler was added.
    ServeHandlers,
    ReopenForProof,
    RelistConsistently,
}

/// The state of one informer, written by its task and read by other tasks.
pub(crate) struct InformerState {
    resource: Resource,
    clock: Clock,
    commands: mpsc::UnboundedSender<Command>,
    progress: Arc<Progress>,
    synced: watch::Sender<bool>,
    /// When the last consistent list was requested.
    consistent: Mutex<Option<BootInstant>>,
    /// When the last list was requested.
    requested: Mutex<Option<BootInstant>>,
    last_event: Mutex<Option<Version>>,
    liveness: Mutex<Liveness>,
    objects: AtomicUsize,
    meter: Arc<Meter>,
}

#[derive(Default)]
struct Liveness {
    last_response: Option<Instant>,
    unanswered_since: Option<Instant>,
    failing_since: Option<Instant>,
}

impl InformerState {
    pub(crate) fn new(
        resource: Resource,
        clock: Clock,
        commands: mpsc::UnboundedSender<Command>,
        progress: Arc<Progress>,
        meter: Arc<Meter>,
    ) -> Self {
        Self {
            resource,
            clock,
            commands,
            progress,
            synced: watch::Sender::new(false),
            consistent: Mutex::default(),
            requested: Mutex::default(),
            last_event: Mutex::default(),
            liveness: Mutex::default(),
            objects: AtomicUsize::new(0),
            meter,
        }
    }

    pub(crate) fn send_command(&self, command: Command) {
        // A stopped informer ignores commands.
        let _ = self.commands.send(command);
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn record_response(&self, now: Instant) {
        self.liveness.lock().last_response = Some(now);
    }

    /// Records since when a response has been due, and since when no request has succeeded.
    pub(crate) fn set_liveness(&self, unanswered_since: Option<Instant>, failing_since: Option<Instant>) {
        let mut liveness = self.liveness.lock();
        (liveness.unanswered_since, liveness.failing_since) = (unanswered_since, failing_since);
    }

    pub(crate) fn set_objects(&self, count: usize) {
        self.objects.store(count, Ordering::Relaxed);
    }

    /// Records that an event or object of this version was applied and handled. Call it before
    /// [`InformerState::on_progress`].
    pub(crate) fn record_event_version(&self, version: Version) {
        let mut last = self.last_event.lock();
        if last.as_ref().is_none_or(|it| !version.is_older_than(it)) {
            *last = Some(version);
        }
    }

    /// Records that a set was applied and handled. `consistent` means that it was the most recent state when it was
    /// requested.
    pub(crate) fn on_set_applied(&self, version: Version, requested_at: BootInstant, consistent: bool) {
        *self.requested.lock() = Some(requested_at);
        if consistent {
            *self.consistent.lock() = Some(requested_at);
        }
        self.progress.advance(version);
        if self.synced.send_replace(true) {
            self.meter.count_relist();
        }
    }

    /// Records that everything up to `version` was applied and handled.
    pub(crate) fn on_progress(&self, version: Version) {
        self.progress.advance(version);
    }
}

impl Watched for InformerState {
    fn resource(&self) -> &Resource {
        &self.resource
    }

    fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    fn wait_for_sync(&self) -> BoxFuture<'_, ()> {
        Box::pin(wait_for(&self.synced, |synced| *synced))
    }

    fn silent_for(&self) -> Option<Duration> {
        let last = self.liveness.lock().last_response?;
        Some(self.clock.now().saturating_duration_since(last))
    }

    fn unanswered_for(&self) -> Option<Duration> {
        let since = self.liveness.lock().unanswered_since?;
        Some(self.clock.now().saturating_duration_since(since))
    }

    fn failing_for(&self) -> Option<Duration> {
        let since = self.liveness.lock().failing_since?;
        Some(self.clock.now().saturating_duration_since(since))
    }

    fn store_version(&self) -> Option<Version> {
        self.progress.version()
    }

    fn last_event_version(&self) -> Option<Version> {
        self.last_event.lock().clone()
    }

    fn has_passed(&self, version: &Version) -> bool {
        self.progress.has_passed(version)
    }

    fn call_when_passed(&self, version: Version, wake: Wake) -> bool {
        self.progress.call_when_passed(&version, wake)
    }

    fn has_consistent_list_since(&self, instant: BootInstant) -> bool {
        self.consistent.lock().is_some_and(|requested_at| requested_at >= instant)
    }

    fn has_list_since(&self, instant: BootInstant) -> bool {
        self.requested.lock().is_some_and(|requested_at| requested_at >= instant)
    }

    fn reopen_for_proof(&self) {
        self.send_command(Command::ReopenForProof);
    }

    fn relist_consistently(&self) {
        self.send_command(Command::RelistConsistently);
    }

    fn len(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }
}
