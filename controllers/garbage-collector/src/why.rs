//! What people are told of one object.
