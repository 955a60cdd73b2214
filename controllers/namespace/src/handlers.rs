//! Handles changes of namespaces: updates the recorded state and enqueues the key. The work for each event is constant.

use api::{Atom, Entry, MetaRef, Namespace};
use controller::{Lane, Queue};
use informer::{Cause, Change};

use crate::{Ctx, terminating::FirstObserved};

/// Records since when each namespace terminates. It runs from the start of the process, so that a new leader does not
/// wait the delay again.
pub(crate) fn record(ctx: &Ctx, change: &Change<'_, Namespace>) {
    if let Some(gone) = change.gone() {
        ctx.remove(&gone.meta());
    }
    if let Some(MetaRef { uid, deletion: Some(_), .. }) = change.new.map(Entry::meta) {
        let first_observed =
            if change.cause == Cause::Initial { FirstObserved::InInitialList } else { FirstObserved::DuringWatch };
        ctx.terminating.observe(uid, first_observed, ctx.clock.now());
    }
}

/// Enqueues a terminating namespace when it is first observed, when its spec.finalizers changed, and on a resync.
/// [`record`] has recorded the namespace before.
pub(crate) fn enqueue(ctx: &Ctx, queue: &Queue<Atom>, change: &Change<'_, Namespace>, lane: Lane) {
    let Some(new) = change.new.map(Entry::meta).filter(|it| it.deletion.is_some()) else { return };
    let Some(schedule) = ctx.terminating.schedule(new.uid) else { return };
    let name = Atom::from(new.name);
    let now = ctx.clock.now();
    if schedule.begin > now {
        queue.add_after(name, schedule.begin - now);
    } else if is_first_observed(change) || needs_sync(change) {
        queue.add_to(name, lane);
    }
}

fn is_first_observed(change: &Change<'_, Namespace>) -> bool {
    let known = |old: MetaRef<'_>| old.deletion.is_some() && change.new.is_some_and(|new| new.meta().uid == old.uid);
    change.cause == Cause::Initial || !change.old.map(Entry::meta).is_some_and(known)
}

/// True on a resync or a change of spec.finalizers. Most other updates are our own status writes, and every wait has
/// its own timer.
fn needs_sync(change: &Change<'_, Namespace>) -> bool {
    let held_by = |entry: Option<&Entry<Namespace>>| {
        let namespace = entry.and_then(Entry::readable);
        namespace.map(|it| it.spec_finalizers.clone())
    };
    change.cause == Cause::Resync || held_by(change.old) != held_by(change.new)
}
