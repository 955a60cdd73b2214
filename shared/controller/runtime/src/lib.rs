//! The interface between a controller and the manager.
//!
//! A controller's `start` gets a [`Builder`] and declares its informers, the handlers that turn changes into keys, and
//! the workers for the keys. This alone starts no sync: the manager keeps the resulting [`Controller`] and calls
//! [`run`](Controller::run) when the term begins. Informers run from the start. Handlers that enqueue keys are added
//! when the term begins, so that every work queue is filled by the initial events, as at a first start. So a standby
//! that becomes leader needs no special code. A controller that finds its informers at run time uses a [background
//! task](Builder::background), which also runs on a standby.

mod builder;
mod page;
mod profile;
mod running;
mod timed_key;

pub use builder::{Builder, Deps, Factor, Proof};
pub use page::{Page, PageContent, Query};
pub use profile::{Mark, Profile, Right};
pub use running::{Cache, Controller};
pub use timed_key::TimedKey;
