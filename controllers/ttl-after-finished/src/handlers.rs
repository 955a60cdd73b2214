//! The handler for changes of Jobs: it enqueues keys. Constant work per event.

use api::{Entry, Job};
use clock::Drift;
use controller::{Lane, TimedKey};
use informer::Change;

use crate::{Ctx, metrics, rules::expiry};

/// Enqueues a Job that must be deleted now or later; the worker decides the rest. A deleted Job leaves at most a timer,
/// whose sync finds nothing to do.
pub(crate) fn enqueue(ctx: &Ctx, change: &Change<'_, Job>, lane: Lane) {
    let Some(job) = change.new.and_then(Entry::readable) else { return };
    if expiry::has_unknown_finish_time(job) {
        let was = change
            .old
            .and_then(Entry::readable)
            .is_some_and(|it| it.meta.uid == job.meta.uid && expiry::has_unknown_finish_time(it));
        if !was {
            metrics::report_unknown_finish_time(&ctx.recorder, job);
        }
    } else if expiry::active_ttl(job).is_some() {
        ctx.queue.add_after(TimedKey::Clock, Drift::EVERY);
        ctx.queue.add_to(TimedKey::Object(job.meta.as_ref().key()), lane);
    }
}
