//! Nodes without machines: kubelets and a scheduler that act by script, on any API server; never part of mini-kcm.
//!
//! A [`Fleet`] registers nodes, renews their Leases, binds pods and moves them through their phases with the status
//! writes of a kubelet. Annotations or labels of a pod set the behaviour of its containers, see [`Script`]; annotations
//! of a node set the behaviour of its kubelet, see [`NodeScript`]. The same code works on the embedded API server
//! ([`in_memory`]) and on a real one. It uses kube's client and typed objects and not this project's own client and
//! informers, because it is used to test them.
//!
//! Decisions are values: [`sandbox`](self) decides what containers do and when, `status` builds the kubelet's status,
//! `schedule` chooses nodes, `node` builds the node object. I/O is separate: `follow` (list and watch), `agent`,
//! `heartbeat`, `scheduler`. Time comes from a given clock, timers are tokio's, randomness comes from a seed: in
//! virtual time the same seed gives the same run.

mod node_script;
mod quantity;
mod script;

mod sandbox;
mod status;

mod kubelet;
mod node;
mod schedule;

mod calls;
mod cluster_state;
mod list_watch;

mod agent;
mod fleet;
mod heartbeat;
mod scheduler;

pub use calls::in_memory;
pub use fleet::{Environment, Fleet, Options};
pub use list_watch::{Change, list_and_watch};
pub use node::NodeSpec;
pub use node_script::NodeScript;
pub use quantity::Resources;
pub use script::{Behaviour, PREFIX, Script, ScriptError};
