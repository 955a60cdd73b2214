//! The decisions about a finished Job: functions of values, without I/O.

pub(crate) mod expiry;
