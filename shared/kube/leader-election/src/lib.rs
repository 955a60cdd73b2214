//! Leadership by Lease: one manager of several writes at a time, and the next one takes over without delay.
//!
//! Rules and record are upstream's, so that a Go manager and ours take turns on one Lease. What is ours: a watch on the
//! Lease beside the polling, a [`client::Term`] that controllers carry with their writes, and two annotations by which a
//! leader of ours tells its successor how much it must verify.
//!
//! Reading order: `config` (what must hold between the durations), `record` (the Lease as we read and write it),
//! `signal` (what the manager is told), `machine` (who may take the Lease and when, without I/O), `watch` and `driver`
//! (the I/O around it), `elector` (what the manager speaks with), `health` and `release` (the orderly end).

mod config;
mod record;
mod signal;

mod machine;

mod watch;

mod driver;

mod elector;
mod health;
mod release;

pub use config::{Config, InvalidConfig, identity};
pub use elector::{Deps, EVENT_REASON, Elector, became_leader, stopped_leading};
pub use health::{Health, NotRenewed};
pub use record::Notes;
pub use release::ReleaseError;
pub use signal::{Signal, Takeover};
