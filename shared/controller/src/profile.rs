/// What a controller needs of the server, and what its work leaves on objects: read before it acts, never by itself.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// What it does in its own name.
    pub acts: &'static [Right],
    /// What it reads in its own name that is no resource: paths.
    pub paths: &'static [&'static str],
    /// What the manager's informers read for it.
    pub watches: &'static [Right],
    /// Where another manager that does the same work shows.
    pub marks: &'static [Mark],
}

/// Verbs on one resource, in every namespace.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// API group; empty for core, `*` for all.
    pub group: &'static str,
    /// Plural name, with `/` before a subresource; `*` for all.
    pub resource: &'static str,
    /// As RBAC names them.
    pub verbs: &'static [&'static str],
}

/// Objects that carry the name of who wrote them last.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// Path and query of a list that is short: of what is being worked on.
    pub list: &'static str,
    /// The subresource that only this kind of controller writes.
    pub subresource: &'static str,
}

impl Profile {
    /// Of a controller that is not there.
    pub const NONE: Self = Self { acts: &[], paths: &[], watches: &[], marks: &[] };
}
