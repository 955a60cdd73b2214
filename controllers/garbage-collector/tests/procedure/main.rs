//! The real controller, with monitors, queues, workers and client, against the miniature API server, in virtual time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod background;
mod conflicts;
mod crashes;
mod foreground;
mod guards;
mod identity;
mod late_types;
mod monitors;
mod orphaning;
mod owner_reads;
mod pages;
mod refusals;
mod restore;
