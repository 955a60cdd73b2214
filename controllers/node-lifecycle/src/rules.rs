//! The decisions about nodes and zones: functions of values, without I/O.

pub(crate) mod conditions;
pub(crate) mod taints;
pub(crate) mod zones;
