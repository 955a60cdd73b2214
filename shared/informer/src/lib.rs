//! The manager's view of the cluster: list and watch, store, indexes and handler delivery.
//!
//! [`Informers`] is the registry: one per manager, at most one [`Informer`] a type. An informer is one task. In it a
//! reflector, a state machine without I/O, says what to read; a driver reads it; what came is put into the [`Store`] all
//! at once, and then the handlers are told of each [`Change`], inline. [`Dynamic`] informers watch metadata of any
//! resource, can be stopped, and may feed a [`Sink`] of the consumer's own.
//!
//! Reading order: `reflector` (what is read, and when), `store` (what readers see), `handlers` (who is told), `hub` (store
//! and handlers as one), `driver` (the I/O), then the surface: `informer`, `registry`, `dynamic`, `watched`, `proof`.

mod driver;
mod dynamic;
mod handlers;
mod hub;
mod informer;
mod metrics;
mod proof;
mod reflector;
mod registry;
mod store;
mod watched;

pub use dynamic::{Dynamic, Scope, Sink};
pub use handlers::{Cause, Change, MetaChange, Registration};
pub use informer::Informer;
pub use proof::{AHEAD, Proved, prove};
pub use registry::{Environment, Informers};
pub use store::{Store, StoreError};
pub use watched::Watched;

/// What is called when a store has passed a version.
pub type Wake = Box<dyn FnOnce() + Send>;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod simulation;
