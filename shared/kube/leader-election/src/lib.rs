//! Leader election with a Lease: only one of several managers writes, and a standby takes over without delay.
//!
//! The rules and the record are those of client-go, so that a Go manager and ours can use the same Lease. This crate
//! adds three things: a watch on the Lease besides the polling; a [`client::Term`] that controllers attach to their
//! writes; and two annotations, in which a leader of ours records how much its successor must verify.
//!
//! Reading order: `config` (the durations and their rules), `record` (how the Lease is read and written), `signal` (the
//! signals to the manager), `machine` (which process may take the Lease and when, without I/O), `watch` and `driver`
//! (the I/O around it), `elector` (the interface for the manager), `health` and `release` (the health check and the end
//! of a term).

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
