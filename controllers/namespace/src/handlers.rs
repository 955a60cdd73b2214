//! A change of a namespace → what is remembered of it, and the key to wake. Constant work per event.

use api::{Atom, Entry, MetaRef, Namespace};
use informer::{Cause, Change};
use workqueue::{Lane, Queue};

use crate::{Ctx, memory::Sight};

/// Hears of one change.
pub(crate) fn hear(ctx: &Ctx, queue: &Queue<Atom>, change: &Change<'_, Namespace>, lane: Lane) {
    let (old, new) = (change.old.map(Entry::meta), change.new.map(Entry::meta));
    if let Some(gone) = old.filter(|old| new.is_none_or(|new| new.uid != old.uid)) {
        ctx.forget(&gone);
    }
    let Some(MetaRef { uid, name, deletion: Some(_), .. }) = new else { return };
    let name = Atom::from(name);
    let now = ctx.clock.now();
    let sight = if change.cause == Cause::Initial { Sight::Present } else { Sight::News };
    match ctx.memory.observe(uid, sight, now) {
        Some(begin) if begin > now => queue.add_after(name, begin - now),
        Some(_) => queue.add_to(name, lane),
        None if wakes(change) => queue.add_to(name, lane),
        None => {}
    }
}

/// True where a namespace that is known to terminate needs another look. Most of its updates are our own status writes,
/// and whatever we wait for has its own time.
fn wakes(change: &Change<'_, Namespace>) -> bool {
    let held_by = |entry: Option<&Entry<Namespace>>| {
        let namespace = entry.and_then(Entry::readable);
        namespace.map(|it| it.spec_finalizers.clone())
    };
    change.cause == Cause::Resync || held_by(change.old) != held_by(change.new)
}
