//! The value of the annotation. Pure.

pub(crate) mod ttl_step;
