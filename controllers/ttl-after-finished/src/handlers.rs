//! The handler for changes of Jobs: it enqueues keys. Constant work per event.

use api::{Entry, Job};
use clock::Drift;
use controller::TimedKey;
use informer::Change;
use workqueue::Lane;

use crate::{Ctx, expiry, telling};

/// Enqueues a Job that must be deleted now or later; the worker decides the rest. A deleted Job leaves at most a timer,
/// whose sync finds nothing to do.
pub(crate) fn wake(ctx: &Ctx, change: &Change<'_, Job>, lane: Lane) {
    let Some(job) = change.new.and_then(Entry::readable) else { return };
    if expiry::is_unclear(job) {
        let was = change
            .old
            .and_then(Entry::readable)
            .is_some_and(|it| it.meta.uid == job.meta.uid && expiry::is_unclear(it));
        if !was {
            telling::unclear(&ctx.recorder, job);
        }
    } else if expiry::applies(job).is_some() {
        ctx.queue.add_after(TimedKey::Clock, Drift::EVERY);
        ctx.queue.add_to(TimedKey::Object(job.meta.as_ref().key()), lane);
    }
}
