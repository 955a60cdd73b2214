//! What a controller is given, and what it declares to the manager.
//!
//! A controller's `start` gets a [`Builder`] and says which informers it reads, which handlers translate their changes
//! into keys, and which workers take the keys. Nothing acts yet: the manager keeps the [`Controller`] that comes out and
//! lets it [`run`](Controller::run) with the term. Informers are warm from the start; handlers that wake keys are added
//! with the term as late handlers, so every queue fills as at a first start. There is no second path for standbys. A
//! controller whose informers are found at run time has a [task](Builder::background) of its own, which is as warm.

mod builder;
mod page;
mod profile;
mod running;
mod timed_key;

pub use builder::{Builder, Deps, Factor, Proof};
pub use page::{Page, Query, Shown};
pub use profile::{Mark, Profile, Right};
pub use running::{Cache, Controller};
pub use timed_key::TimedKey;
