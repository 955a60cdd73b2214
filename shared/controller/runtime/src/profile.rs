/// The permissions of a controller, and how its writes are recognized. Only the preflight checks read it, not the
/// controller itself.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// The requests of the controller itself.
    pub requests: &'static [Right],
    /// The non-resource paths that the controller itself reads.
    pub paths: &'static [&'static str],
    /// The reads of the manager's informers for the controller.
    pub watches: &'static [Right],
    /// Where the writes of another manager's controller of the same kind can be found.
    pub marks: &'static [Mark],
}

/// Verbs on one resource, in all namespaces.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// The API group; empty for core, `*` for all.
    pub group: &'static str,
    /// The plural name, followed by `/` and the subresource if there is one; `*` for all.
    pub resource: &'static str,
    /// The verbs of RBAC.
    pub verbs: &'static [&'static str],
}

/// Objects whose managedFields name the last writer.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// Path and query of a short list: the objects that the controller is processing.
    pub list: &'static str,
    /// The subresource that only this kind of controller writes.
    pub subresource: &'static str,
}

impl Profile {
    /// The profile of an absent controller.
    pub const NONE: Self = Self { requests: &[], paths: &[], watches: &[], marks: &[] };
}
