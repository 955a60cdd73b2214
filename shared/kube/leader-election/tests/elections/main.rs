//! Whole electors against a server that holds one Lease, in virtual time: each rule by itself, then all of them under
//! random faults.

mod support;

mod races;
mod terms;
