use std::fmt;

use crate::Atom;

/// Namespace and name. The namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace, or empty.
    pub namespace: Atom,
    /// The object's name.
    pub name: Box<str>,
}

impl ObjectKey {
    /// A key from namespace and name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// `namespace/name`, or only the name: the form of log lines and of client-go's queue keys.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}
