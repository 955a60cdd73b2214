//! The namespace controller on a real API server and on the embedded one. On a real one the upstream manager passes
//! these scenarios too (`E2E_MANAGER=go`); behaviour that only our manager has is asserted only for ours.
//!
//! Scenarios that do not disturb each other share one control plane and one manager and run in parallel, because most
//! of their time is the safety delay of five seconds.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

mod setup;

mod content;
mod pods;
mod trouble;
