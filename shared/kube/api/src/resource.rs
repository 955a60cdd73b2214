use std::fmt;

use crate::{Atom, uri};

/// A resource type of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// API group; empty for core.
    pub group: Atom,
    /// API version, for example `v1`.
    pub version: Atom,
    /// Lower-case plural, for example `pods`.
    pub plural: Atom,
    /// Kind, for example `Pod`.
    pub kind: Atom,
    /// False for cluster-scoped types.
    pub namespaced: bool,
}

impl Resource {
    /// A namespaced type.
    #[must_use]
    pub fn namespaced(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced: true,
        }
    }

    /// A cluster-scoped type.
    #[must_use]
    pub fn cluster(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, version, plural, kind) }
    }

    /// The apiVersion, for example `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The URL path of the collection in `namespace`. For `None` or a cluster-scoped type, of the whole cluster.
    #[must_use]
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("{root}/{}/namespaces/{namespace}/{}", self.version, self.plural)
            }
            _ => format!("{root}/{}/{}", self.version, self.plural),
        }
    }

    /// The URL path of one object; `namespace` is ignored for cluster-scoped types.
    #[must_use]
    pub fn object(&self, namespace: &str, name: &str) -> String {
        let mut path = self.collection(Some(namespace));
        path.push('/');
        path.extend(uri::segment(name));
        path
    }
}

/// `pods`, `deployments.apps`: the form that users know.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_the_api_server() {
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        let jobs = Resource::namespaced("batch", "v1", "jobs", "Job");
        let nodes = Resource::cluster("", "v1", "nodes", "Node");
        let cases = [
            (pods.collection(None), "/api/v1/pods"),
            (pods.collection(Some("a")), "/api/v1/namespaces/a/pods"),
            (jobs.object("a", "b"), "/apis/batch/v1/namespaces/a/jobs/b"),
            (nodes.collection(Some("ignored")), "/api/v1/nodes"),
            (nodes.object("", "n1"), "/api/v1/nodes/n1"),
            (nodes.object("", "system:node-1.x"), "/api/v1/nodes/system:node-1.x"),
            (nodes.object("", "a/status?b#c %d"), "/api/v1/nodes/a%2Fstatus%3Fb%23c%20%25d"),
            (nodes.object("", "ä"), "/api/v1/nodes/%C3%A4"),
        ];
        for (got, want) in cases {
            assert_eq!(got, want);
        }
        assert_eq!((pods.to_string().as_str(), jobs.to_string().as_str()), ("pods", "jobs.batch"));
        assert_eq!((pods.api_version().as_str(), jobs.api_version().as_str()), ("v1", "batch/v1"));
    }
}
