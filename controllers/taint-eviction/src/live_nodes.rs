//! Live reads of nodes. The pods of a node share a read, because many of them are due at the same time.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{Node, Typed};
use client::{Api, ApiError, READ_TIMEOUT, within};
use clock::{Clock, Instant};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;

/// A read is shared for this time after it was begun. So from the read of a node to the deletion of a pod it takes at
/// most this time and the time of the pod's own calls.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The reads that may still be shared.
pub(crate) struct LiveNodes {
    api: Api,
    clock: Clock,
    reads: Mutex<HashMap<Box<str>, NodeRead>>,
}

struct NodeRead {
    begun: Instant,
    answer: Shared<BoxFuture<'static, Answer>>,
}

/// `None` if the node does not exist.
type Answer = Result<Option<Arc<Node>>, ApiError>;

impl LiveNodes {
    pub(crate) fn new(api: Api, clock: Clock) -> Self {
        Self { api, clock, reads: Mutex::default() }
    }

    /// Reads a node for a pod that was due at `due`. The read is begun after that.
    pub(crate) async fn get(&self, name: &str, due: Instant) -> Answer {
        let now = self.clock.now();
        let answer = {
            let mut reads = self.reads.lock();
            reads.retain(|_, it| now.saturating_duration_since(it.begun) <= SHARED_FOR);
            match reads.get(name).filter(|it| it.begun >= due) {
                Some(read) => read.answer.clone(),
                None => {
                    let answer = read(self.api.clone(), name.into()).boxed().shared();
                    reads.insert(name.into(), NodeRead { begun: now, answer: answer.clone() });
                    answer
                }
            }
        };
        let answer = answer.await;
        if answer.is_err() {
            // The retry reads again.
            self.end_sharing(name);
        }
        answer
    }

    /// Ends the sharing of reads of a node that were begun before its observed state. Such a read may differ from that
    /// state. The pod would then wait for an event that does not come.
    pub(crate) fn end_sharing(&self, name: &str) {
        self.reads.lock().remove(name);
    }
}

async fn read(api: Api, name: Box<str>) -> Answer {
    let node = within(READ_TIMEOUT, api.get_opt::<Node>(&Node::resource(), "", &name)).await?;
    Ok(node.map(Arc::new))
}
