//! The handler for changes of nodes: it enqueues keys. Constant work per event.

use api::Node;
use controller::Lane;
use informer::Change;

use crate::{Ctx, Key};

/// Enqueues a node that is new or has changed. When the number of nodes leads to another value, a worker enqueues all
/// nodes. Without that an idle node would wait for its next update, which its kubelet sends every five minutes.
pub(crate) fn on_node(ctx: &Ctx, change: &Change<'_, Node>, lane: Lane) {
    if change.old.is_none() || change.new.is_none() {
        let mut step = ctx.step.lock();
        // The number is that of the cache, which contains the complete first list before its first event is handled.
        let next = step.after(ctx.nodes.len());
        if next != *step {
            *step = next;
            ctx.queue.add(Key::AllNodes);
        }
    }
    if let Some(node) = change.new {
        ctx.queue.add_to(Key::Node(node.meta().name.into()), lane);
    }
}
