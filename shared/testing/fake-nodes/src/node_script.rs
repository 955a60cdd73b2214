use std::collections::{BTreeMap, BTreeSet};

use crate::script::{PREFIX, ScriptError};

/// The resources of the key `pressure`.
const RESOURCES: [&str; 3] = ["memory", "disk", "pid"];

/// The behaviour of a kubelet, from the annotations of its node. Each key comes after [`PREFIX`]:
///
/// | key | meaning |
/// |---|---|
/// | `silent` | `true`: it renews, observes and writes nothing, while its containers continue |
/// | `not-ready` | `true`: its status says that it is not ready |
/// | `pressure` | such as `memory,disk,pid`: its status says that there is too little of these |
/// | `posts` | `lease`: it renews its Lease and writes no status; `status`: it writes its status and has no Lease |
///
/// A change takes effect at once. `kubectl annotate node <name> fake-nodes.mini-kcm.dev/silent=true` makes a node
/// silent, and `kubectl annotate node <name> fake-nodes.mini-kcm.dev/silent-` ends that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeScript {
    /// `silent`
    pub silent: bool,
    /// `not-ready`
    pub not_ready: bool,
    /// `pressure`
    pub pressure: BTreeSet<String>,
    /// False for `posts=status`.
    pub renews_lease: bool,
    /// False for `posts=lease`.
    pub posts_status: bool,
}

impl Default for NodeScript {
    fn default() -> Self {
        Self { silent: false, not_ready: false, pressure: BTreeSet::new(), renews_lease: true, posts_status: true }
    }
}

impl NodeScript {
    /// Parses the annotations of a node.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (key, value) in annotations {
            if let Some(key) = key.strip_prefix(PREFIX) {
                let error = |problem| ScriptError { key: key.to_owned(), value: value.clone(), problem };
                script.read(key, value).map_err(error)?;
            }
        }
        Ok(script)
    }

    fn read(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let flag = || value.parse().map_err(|_| "is neither true nor false");
        match key {
            "silent" => self.silent = flag()?,
            "not-ready" => self.not_ready = flag()?,
            "pressure" => {
                self.pressure = value.split(',').map(|it| it.trim().to_owned()).collect();
                if !self.pressure.iter().all(|it| RESOURCES.contains(&it.as_str())) {
                    return Err("is not a list of memory, disk and pid");
                }
            }
            "posts" => match value {
                "lease" => self.posts_status = false,
                "status" => self.renews_lease = false,
                _ => return Err("is neither lease nor status"),
            },
            _ => return Err("has an unknown key"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(lines: &[(&str, &str)]) -> Result<NodeScript, ScriptError> {
        let of_us = lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        NodeScript::of(&of_us.chain([("example.com/other".to_owned(), "x".to_owned())]).collect())
    }

    #[test]
    fn lines_are_parsed_and_other_annotations_ignored() {
        assert_eq!(script(&[]).unwrap(), NodeScript::default());
        assert!(script(&[("silent", "true")]).unwrap().silent);
        assert!(!script(&[("silent", "false")]).unwrap().silent);
        let posted = script(&[("not-ready", "true"), ("pressure", "disk, memory")]).unwrap();
        assert!(posted.not_ready && posted.pressure.iter().eq(["disk", "memory"]));
        assert!(!script(&[("posts", "lease")]).unwrap().posts_status);
        assert!(!script(&[("posts", "status")]).unwrap().renews_lease);
    }

    #[test]
    fn invalid_line_is_named() {
        for (key, value) in [("silent", "yes"), ("pressure", "cpu"), ("posts", "nothing"), ("loud", "true")] {
            let text = script(&[(key, value)]).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{PREFIX}{key}: {value:?} ")), "{text}");
        }
    }
}
