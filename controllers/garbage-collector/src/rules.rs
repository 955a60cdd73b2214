//! The decisions about one object: functions of values, without I/O.

pub(crate) mod evidence;
pub(crate) mod refs;
pub(crate) mod verdict;
