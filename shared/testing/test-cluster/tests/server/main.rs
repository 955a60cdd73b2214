//! The responses of the server, one module per topic, in virtual time.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod kinds;
mod kit;

mod custom;
mod deleting;
mod discovery;
mod expiring;
mod faults;
mod limits;
mod listing;
mod loopback;
mod namespaces;
mod objects;
mod observing;
mod patching;
mod services;
mod tables;
mod watching;
