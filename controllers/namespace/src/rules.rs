//! The decisions about a namespace: functions of values, without I/O.

pub(crate) mod conditions;
pub(crate) mod grace;
pub(crate) mod kinds;
pub(crate) mod remains;
