//! Nodes without machines: kubelets and a scheduler that act by script, on any API server; never part of mini-kcm.
//!
//! A [`Fleet`] registers nodes, renews their Leases, binds pods and drives them through their phases as a kubelet writes
//! them. What a pod's containers do is said by its annotations or labels, see [`Script`]. The same code works on the
//! embedded API server ([`in_memory`]) and on a real one: it is built on kube's client and typed objects, on purpose not
//! on this project's own client and informers, which it helps to test.
//!
//! Decisions are values: [`sandbox`](self) says what containers do and when, `status` how a kubelet tells it, `schedule`
//! where pods go, `node` how a node describes itself. I/O is at the edge: `follow` (list and watch), `agent`,
//! `heartbeat`, `scheduler`. Time comes from the clock handed in, timers are tokio's, randomness comes from a seed: in
//! virtual time the same seed gives the same run.

mod quantity;
mod script;

mod sandbox;
mod status;

mod kubelet;
mod node;
mod schedule;

mod board;
mod calls;
mod follow;

mod agent;
mod fleet;
mod heartbeat;
mod scheduler;

pub use calls::in_memory;
pub use fleet::{Environment, Fleet, Options};
pub use follow::{Change, follow};
pub use node::NodeSpec;
pub use quantity::Room;
pub use script::{Acting, PREFIX, Script, ScriptError};
