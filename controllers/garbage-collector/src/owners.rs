//! How an owner is read, and which proofs of absence are kept.

pub(crate) mod absence_proofs;
pub(crate) mod kinds;
pub(crate) mod owner_reads;
pub(crate) mod owner_waits;
