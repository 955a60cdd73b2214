//! A change of a Job → the key to wake. Constant work per event.

use api::{Entry, Job, ObjectKey};
use informer::Change;
use workqueue::{Lane, Queue};

use crate::expiry;

/// Wakes a Job that is to be cleaned up, now or later: everything else is decided when a worker has it. One that went
/// leaves at most a timer, which finds nothing to do.
pub(crate) fn wake(queue: &Queue<ObjectKey>, change: &Change<'_, Job>, lane: Lane) {
    let Some(job) = change.new.and_then(Entry::readable) else { return };
    if expiry::applies(job).is_some() {
        queue.add_to(job.meta.as_ref().key(), lane);
    }
}
