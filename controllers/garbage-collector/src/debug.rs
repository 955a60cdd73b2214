//! What users see of the graph: the pages, and the errors of objects that cannot be handled.

pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod last_errors;
pub(crate) mod pages;
