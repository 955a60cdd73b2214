//! An informer as those see it who ask how fresh it is, without knowing its type.

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

/// An informer's freshness: for readiness, for the consistency gate and for a new leader's proof.
pub trait Watched: Send + Sync {
    /// What it watches.
    fn resource(&self) -> &Resource;

    /// True once the first set is in the store and all handlers of that time have handled it.
    fn has_synced(&self) -> bool;

    /// Waits for that; for ever if the informer is stopped before.
    fn synced(&self) -> BoxFuture<'_, ()>;

    /// How long ago the server gave a sign of life: a frame, an answer, the clean end of a stream. A healthy watch of
    /// an idle type is silent for up to 75 s.
    fn last_sign_of_life(&self) -> Option<Duration>;

    /// For how long an answer has been due: a request that nothing came back for, again and again, or a stream silent
    /// beyond its time. `None` while nothing is due, and while our own budget keeps us from asking.
    fn unanswered(&self) -> Option<Duration> {
        None
    }

    /// For how long it has tried in vain to see more: a list or a watch failed, and none has come since. `None` while it
    /// watches.
    fn behind(&self) -> Option<Duration> {
        None
    }

    /// How far the store is; `None` before the first set. While a set or an event is handled it is as before.
    fn store_version(&self) -> Option<Version>;

    /// The version of the newest event that was applied and handled, or of the newest object in a set: unlike a bookmark
    /// or the version of a list, another informer of this type reaches it even if nothing else happens. After a relist
    /// that showed a deletion, whose version nobody knows, it is the list's own. `None` before anything was seen.
    fn last_event_version(&self) -> Option<Version>;

    /// As [`crate::Store::passed`].
    fn passed(&self, version: &Version) -> bool;

    /// As [`crate::Store::when_passed`].
    fn when_passed(&self, version: Version, wake: Wake) -> bool;

    /// True when a whole set, the first or a later one, was read as the most recent state and asked for at `instant`
    /// or later.
    fn first_set_was_consistent_after(&self, instant: BootInstant) -> bool;

    /// Closes the informer's own watch and reopens it from its version for three seconds, near the end of which the
    /// server tells how far it has shown everything. Without effect while a set is being fetched.
    fn reopen_for_proof(&self);

    /// Fetches the most recent set at once.
    fn relist_consistently(&self);

    /// How many objects are held.
    fn len(&self) -> usize;

    /// True when none is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What others may ask of an informer's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Look after the handlers: somebody joined.
    Tend,
    ReopenForProof,
    RelistConsistently,
}

/// The signs of life of one informer, written by its task and read by everybody.
pub(crate) struct Vitals {
    resource: Resource,
    clock: Clock,
    commands: mpsc::UnboundedSender<Command>,
    progress: Arc<Progress>,
    synced: watch::Sender<bool>,
    /// When the last consistent set was asked for.
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
        // A stopped informer obeys no more.
        let _ = self.commands.send(command);
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn alive(&self, now: Instant) {
        self.life.lock().last_sign = Some(now);
    }

    /// Since when an answer is due, and since when more is asked for in vain.
    pub(crate) fn set_trouble(&self, unanswered: Option<Instant>, behind: Option<Instant>) {
        let mut life = self.life.lock();
        (life.unanswered, life.behind) = (unanswered, behind);
    }

    pub(crate) fn set_objects(&self, count: usize) {
        self.objects.store(count, Ordering::Relaxed);
    }

    /// Something of this version was applied and handled. Told before the progress that it means.
    pub(crate) fn showed(&self, version: Version) {
        let mut last = self.last_event.lock();
        if last.as_ref().is_none_or(|it| !version.is_older_than(it)) {
            *last = Some(version);
        }
    }

    /// A whole set was applied and handled; `consistent` says when it was asked for, if it was the most recent then.
    pub(crate) fn set_came(&self, version: Version, consistent: Option<BootInstant>) {
        if consistent.is_some() {
            *self.consistent.lock() = consistent;
        }
        self.progress.reached(version);
        if self.synced.send_replace(true) {
            self.meter.relisted();
        }
    }

    /// Everything up to `version` was applied and handled.
    pub(crate) fn reached(&self, version: Version) {
        self.progress.reached(version);
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
