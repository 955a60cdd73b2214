//! The manager's cache of the cluster: list and watch, store, indexes and event handlers.
//!
//! [`Informers`] is the registry: one per manager, with at most one [`Informer`] per type. Each informer is one task.
//! In this task a reflector (a state machine without I/O) decides what to read, and a driver reads it. Each batch is
//! applied to the [`Store`] at once, and then the handlers are called with each [`Change`], in the same task.
//! [`Dynamic`] informers watch the metadata of any resource, can be stopped, and may write to a [`Sink`] of the caller.
//!
//! A "list" in the names of this crate's interface is what is called a "set" inside it: all objects. It comes as a
//! stream (WatchList), in pages, or in one response.
//!
//! Reading order: `reflector` (what is read, and when), `store` (what readers get), `handlers` (event handlers),
//! `receiver` (store and handlers together), `driver` (the I/O), then the public interface: `informer`, `registry`,
//! `dynamic`, `watched`, `proof`.

mod driver;
mod dynamic;
mod handlers;
mod informer;
mod metrics;
mod proof;
mod receiver;
mod reflector;
mod registry;
mod store;
mod watched;

pub use dynamic::{Dynamic, Scope, Sink};
pub use handlers::{Cause, Change, HandlerRegistration, MetaChange};
pub use informer::Informer;
pub use proof::{Proved, REOPEN_AHEAD, prove};
pub use registry::{Environment, Informers};
pub use store::{Index, Store, StoreError};
pub use watched::Watched;

/// A callback for the moment when a store has passed a version.
pub type Wake = Box<dyn FnOnce() + Send>;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod simulation;
