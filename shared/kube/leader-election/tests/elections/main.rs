//! Complete electors with a server that has one Lease, in virtual time: first each rule alone, then all of them under
//! random faults.

mod support;

mod races;
mod terms;
