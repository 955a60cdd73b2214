//! The real controller, with monitors, queues, workers and client, against the miniature API server, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

mod world;

mod apart;
mod background;
mod conflicts;
mod crashes;
mod foreground;
mod guards;
mod identity;
mod monitors;
mod orphaning;
mod pages;
mod questions;
mod refusals;
mod restore;
