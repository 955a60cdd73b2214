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
    fn synced(&self) -> BoxFuture<'_, ()>;

    /// The time since the last sign of life of the server: a frame, a response, or the normal end of a stream. A
    /// healthy watch of an idle type is silent for up to 75 s.
    fn last_sign_of_life(&self) -> Option<Duration>;

    /// For how long a response has been due: requests without a response, or a stream that is silent after its timeout.
    /// `None` while no response is due, and while the rate limiter delays our request.
    fn unanswered(&self) -> Option<Duration> {
        None
    }

    /// For how long no list or watch has succeeded since the first failure. `None` while a watch is open.
    fn behind(&self) -> Option<Duration> {
        None
    }

    /// The version of the store; `None` before the first set. While a set or an event is handled it is the version before it.
    fn store_version(&self) -> Option<Version>;

    /// The version of the newest event that was applied and handled, or of the newest object in a set. Other than the
    /// version of a bookmark or list, another informer of this type reaches it even if nothing else happens. After a
    /// relist that showed a deletion it is the version of the list, because the version of the deletion is not known.
    /// `None` before the first object.
    fn last_event_version(&self) -> Option<Version>;

    /// See [`crate::Store::passed`].
    fn passed(&self, version: &Version) -> bool;

    /// See [`crate::Store::when_passed`].
    fn when_passed(&self, version: Version, wake: Wake) -> bool;

    /// True when a set, the first or a later one, was read as the most recent state and was requested at `instant` or
    /// later.
    fn first_set_was_consistent_after(&self, instant: BootInstant) -> bool;

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
pub(crate) struct Vitals {
    resource: Resource,
    clock: Clock,
    commands: mpsc::UnboundedSender<Command>,
    progress: Arc<Progress>,
    synced: watch::Sender<bool>,
    /// When the last consistent set was requested.
    consistent: Mutex<Option<BootInstant>>,
    last_event: Mutex<Option<Version>>,
    life: Mutex<Life>,
    objects: AtomicUsize,
    meter: Arc<Meter>,
}

#[derive(Default)]
struct Life {
    last_sign: Option<Instant>,
    unanswered: Option<Instant>,
    behind: Option<Instant>,
}

impl Vitals {
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
            last_event: Mutex::default(),
            life: Mutex::default(),
            objects: AtomicUsize::new(0),
            meter,
        }
    }

    pub(crate) fn command(&self, command: Command) {
        // A stopped informer ignores commands.
        let _ = self.commands.send(command);
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn record_sign_of_life(&self, now: Instant) {
        self.life.lock().last_sign = Some(now);
    }

    /// Records since when a response has been due, and since when no request has succeeded.
    pub(crate) fn set_trouble(&self, unanswered: Option<Instant>, behind: Option<Instant>) {
        let mut life = self.life.lock();
        (life.unanswered, life.behind) = (unanswered, behind);
    }

    pub(crate) fn set_objects(&self, count: usize) {
        self.objects.store(count, Ordering::Relaxed);
    }

    /// Records that an event or object of this version was applied and handled. Call it before [`Vitals::on_progress`].
    pub(crate) fn record_event_version(&self, version: Version) {
        let mut last = self.last_event.lock();
        if last.as_ref().is_none_or(|it| !version.is_older_than(it)) {
            *last = Some(version);
        }
    }

    /// Records that a set was applied and handled. `consistent` is when it was requested, if it was the most recent
    /// state then.
    pub(crate) fn on_set_applied(&self, version: Version, consistent: Option<BootInstant>) {
        if consistent.is_some() {
            *self.consistent.lock() = consistent;
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

impl Watched for Vitals {
    fn resource(&self) -> &Resource {
        &self.resource
    }

    fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(wait_for(&self.synced, |synced| *synced))
    }

    fn last_sign_of_life(&self) -> Option<Duration> {
        let last = self.life.lock().last_sign?;
        Some(self.clock.now().saturating_duration_since(last))
    }

    fn unanswered(&self) -> Option<Duration> {
        let since = self.life.lock().unanswered?;
        Some(self.clock.now().saturating_duration_since(since))
    }

    fn behind(&self) -> Option<Duration> {
        let since = self.life.lock().behind?;
        Some(self.clock.now().saturating_duration_since(since))
    }

    fn store_version(&self) -> Option<Version> {
        self.progress.version()
    }

    fn last_event_version(&self) -> Option<Version> {
        self.last_event.lock().clone()
    }

    fn passed(&self, version: &Version) -> bool {
        self.progress.passed(version)
    }

    fn when_passed(&self, version: Version, wake: Wake) -> bool {
        self.progress.when_passed(&version, wake)
    }

    fn first_set_was_consistent_after(&self, instant: BootInstant) -> bool {
        self.consistent.lock().is_some_and(|asked| asked >= instant)
    }

    fn reopen_for_proof(&self) {
        self.command(Command::ReopenForProof);
    }

    fn relist_consistently(&self) {
        self.command(Command::RelistConsistently);
    }

    fn len(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }
}
