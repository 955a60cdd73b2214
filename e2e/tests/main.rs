//! The scenarios of which most wait for other processes. They are one program, so that those of one topic wait while those
//! of another use the processors. `failover`, `nodes`, `serving` and `swap` measure or use both processors, and each kind of
//! workload has a comparison with the upstream manager: these are programs of their own, so that nothing runs beside them.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

mod support;

mod conformance;
mod cronjob_skew;
mod garbage;
mod informers;
mod jobs;
mod leadership;
mod manager;
mod manifests;
mod namespace;
mod process;
