//! Writes the graph as DOT, in the format of upstream's `dump.go`.

use std::{collections::BTreeMap, fmt::Write};

use api::{OwnerRef, Uid};

use crate::graph::{ObjectState, Vertex};

/// Draws vertices by uid, and edges from dependents to owners. An owner that is gone is drawn with the coordinates from
/// its dependents' references, once, under its own uid.
pub(crate) fn dot(vertices: &[Vertex]) -> String {
    let mut nodes: BTreeMap<String, DotNode<'_>> = BTreeMap::new();
    for vertex in vertices {
        if let Some(drawn) = DotNode::of(vertex) {
            nodes.insert(vertex.uid.to_string(), drawn);
        }
    }
    let mut edges: Vec<(String, String)> = Vec::new();
    let mut dependents: Vec<(String, &Vertex)> = vertices.iter().map(|it| (it.uid.to_string(), it)).collect();
    dependents.sort_by(|one, other| one.0.cmp(&other.0));
    for (uid, vertex) in dependents {
        for owner in vertex.owners.iter() {
            let to = owner.uid.to_string();
            nodes.entry(to.clone()).or_insert_with(|| DotNode::missing(owner));
            edges.push((uid.clone(), to));
        }
    }
    edges.sort();
    write(&nodes, &edges)
}

fn write(nodes: &BTreeMap<String, DotNode<'_>>, edges: &[(String, String)]) -> String {
    let mut text = "strict digraph full {\n".to_owned();
    if !nodes.is_empty() {
        text.push_str("  // Node definitions.\n");
    }
    for (uid, node) in nodes {
        let _ = writeln!(text, "  {} [", quoted(uid));
        for (name, value) in node.attributes(uid) {
            let _ = writeln!(text, "    {name}={}", quoted(&value));
        }
        text.push_str("  ];\n");
    }
    if !edges.is_empty() {
        text.push_str("  // Edge definitions.\n");
    }
    for (from, to) in edges {
        let _ = writeln!(text, "  {} -> {};", quoted(from), quoted(to));
    }
    text.push_str("}\n");
    text
}

/// The attributes of one vertex.
struct DotNode<'a> {
    api_version: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    is_missing: bool,
    is_virtual: bool,
    deleting: bool,
    deleting_dependents: bool,
}

impl<'a> DotNode<'a> {
    fn of(vertex: &'a Vertex) -> Option<Self> {
        let coordinates = vertex.coordinates.as_ref()?;
        Some(Self {
            api_version: &coordinates.api_version,
            kind: &coordinates.kind,
            namespace: &coordinates.namespace,
            name: &coordinates.name,
            is_missing: false,
            is_virtual: vertex.state != ObjectState::Observed,
            deleting: vertex.deleting,
            deleting_dependents: vertex.deleting_dependents,
        })
    }

    fn missing(named: &'a OwnerRef) -> Self {
        Self {
            api_version: &named.api_version,
            kind: &named.kind,
            namespace: "",
            name: &named.name,
            is_missing: true,
            is_virtual: false,
            deleting: false,
            deleting_dependents: false,
        }
    }

    fn attributes(&self, uid: &str) -> [(&'static str, String); 11] {
        let (group, version) = group_version(self.api_version);
        let Self { kind, namespace, name, .. } = *self;
        let dotted = if group.is_empty() { format!("{kind}.{version}") } else { format!("{kind}.{version}.{group}") };
        let mut label = format!("uid={uid}\nnamespace={namespace}\n{dotted}/{name}\n");
        let states = [
            (self.deleting, "beingDeleted"),
            (self.deleting_dependents, "deletingDependents"),
            (self.is_virtual, "virtual"),
            (self.is_missing, "missingFromGraph"),
        ];
        let states: Vec<&str> = states.into_iter().filter(|(holds, _)| *holds).map(|(_, state)| state).collect();
        if !states.is_empty() {
            label += &states.join(",");
            label.push('\n');
        }
        [
            ("label", label),
            ("group", group.to_owned()),
            ("version", version.to_owned()),
            ("kind", kind.to_owned()),
            ("namespace", namespace.to_owned()),
            ("name", name.to_owned()),
            ("uid", uid.to_owned()),
            ("missing", self.is_missing.to_string()),
            ("beingDeleted", self.deleting.to_string()),
            ("deletingDependents", self.deleting_dependents.to_string()),
            ("virtual", self.is_virtual.to_string()),
        ]
    }
}

/// The uids of a query. An unknown uid draws nothing.
pub(crate) fn uids_of_query<'a>(uids: impl Iterator<Item = &'a str>) -> Vec<Uid> {
    uids.map(Uid::new).collect()
}

/// Splits an apiVersion as the API does. Text that is neither `version` nor `group/version` gives empty parts.
fn group_version(api_version: &str) -> (&str, &str) {
    match api_version.split_once('/') {
        None => ("", api_version),
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(both) => both,
    }
}

/// Quotes a string as upstream's `dump.go` does.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            it if it.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(it));
            }
            it if it.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(it));
            }
            it => quoted.push(it),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
