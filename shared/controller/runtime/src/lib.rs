//! The interface between a controller and the manager.
//!
//! A controller's `start` gets a [`Builder`] and declares its informers, the handlers that turn changes into keys, and
//! the workers for the keys. This alone starts no sync: the manager keeps the resulting [`Controller`] and calls
//! [`run`](Controller::run) when the term begins. Informers run from the start. Handlers that enqueue keys are added
//! when the term begins, so that every work queue is filled by the initial events, as at a first start. So a standby
//! that becomes leader needs no special code. A controller that finds its informers at run time uses a [background
//! task](Builder::background), which also runs on a standby.
//!
//! Reading order: [`Registration`], [`Builder`], [`Controller`], then the modules `workqueue`, `runner` and
//! `consistency`.

mod builder;
mod consistency;
mod page;
mod profile;
mod registration;
mod runner;
mod running;
mod timed_key;
mod workqueue;

pub use builder::{Builder, Deps, Factor, Proof};
pub use consistency::ConsistencyStore;
pub use page::{Page, PageContent, Query};
pub use profile::{Mark, Profile, Right};
pub use registration::{ByDefault, ControllerFlag, FlagKind, FlagValue, Registration, Settings};
pub use runner::{Environment, Outcome, STALL, Stuck, WorkerHealth, WorkerStatus, Workers};
pub use running::{Cache, Controller};
pub use timed_key::TimedKey;
pub use workqueue::{Backoff, Lane, Queue};
