//! Parses discovery documents, aggregated and legacy, into a `Discovery`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use api::Resource;
use serde::{Deserialize, Deserializer};

use crate::discovery::{Discovery, ServedResource};

/// Where the core group is listed.
pub(crate) const CORE: &str = "/api";
/// Where all other groups are listed.
pub(crate) const NAMED: &str = "/apis";

/// The response to `/api` or `/apis`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// Groups with all their resources.
    Aggregated(Vec<ListedGroup>),
    /// Names only, one list for each group: its versions, the preferred one first.
    Names(Vec<Vec<GroupVersion>>),
}

/// One API group, its versions in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedGroup {
    pub(crate) versions: Vec<ListedVersion>,
}

/// One version of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedVersion {
    pub(crate) at: GroupVersion,
    /// Its resources, or why they are not known.
    pub(crate) resources: Result<Vec<ListedResource>, String>,
}

/// A resource as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedResource {
    plural: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
}

/// `v1`, `apps/v1`, as written by the server: it may be neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupVersion(pub(crate) String);

impl GroupVersion {
    fn of(group: &str, version: &str) -> Self {
        Self(if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") })
    }

    fn parts(&self) -> Result<(&str, &str), String> {
        let parts = match self.0.split_once('/') {
            None => ("", self.0.as_str()),
            Some(parts) => parts,
        };
        if parts.1.is_empty() || parts.1.contains('/') {
            return Err(format!("unexpected GroupVersion string: {self}"));
        }
        Ok(parts)
    }

    /// Where its resources are listed.
    pub(crate) fn path(&self) -> String {
        if self.0.contains('/') { format!("{NAMED}/{self}") } else { format!("{CORE}/{self}") }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses the response to `/api` or `/apis`, in any form that a server may return.
pub(crate) fn root(bytes: &[u8]) -> Result<Root, String> {
    let document: Document = serde_json::from_slice(bytes).map_err(|err| err.to_string())?;
    match document.kind.as_str() {
        "APIGroupDiscoveryList" => Ok(Root::Aggregated(document.items.into_iter().map(aggregated).collect())),
        "APIVersions" => {
            let versions = document.versions.into_iter().map(GroupVersion).collect();
            Ok(Root::Names(vec![versions]))
        }
        "APIGroupList" => Ok(Root::Names(document.groups.into_iter().map(versions_by_preference).collect())),
        other => Err(format!("unexpected kind {other:?}")),
    }
}

/// Parses the resources of one group version in the legacy form.
pub(crate) fn resources(bytes: &[u8]) -> Result<Vec<ListedResource>, String> {
    let list: LegacyResources = serde_json::from_slice(bytes).map_err(|err| err.to_string())?;
    let listed = list.resources.into_iter().filter(|it| !it.name.contains('/')).map(|it| {
        let LegacyResource { name, namespaced, kind, verbs } = it;
        ListedResource { plural: name, kind, namespaced, verbs }
    });
    Ok(listed.collect())
}

/// Combines the resources of all groups. What could not be read is kept by name.
pub(crate) fn assemble(groups: Vec<ListedGroup>, broken: BTreeMap<&'static str, String>) -> Discovery {
    let mut discovery = Discovery { broken, ..Discovery::default() };
    for group in groups {
        add_group(&mut discovery, group);
    }
    discovery.unparsable.sort();
    discovery
}

fn add_group(discovery: &mut Discovery, group: ListedGroup) {
    let mut preferred = BTreeSet::new();
    for ListedVersion { at, resources } in group.versions {
        let (group, version) = match at.parts() {
            Ok(parts) => parts,
            Err(err) => {
                discovery.unparsable.push(err);
                continue;
            }
        };
        let resources = match resources {
            Ok(resources) => resources,
            Err(why) => {
                discovery.failed.insert(at.0, why);
                continue;
            }
        };
        for ListedResource { plural, kind, namespaced, verbs } in resources {
            let resource = Resource { namespaced, ..Resource::namespaced(group, version, &plural, &kind) };
            let verbs = verbs.iter().map(String::as_str);
            discovery.served.push(ServedResource::new(resource, preferred.insert(plural), verbs));
        }
    }
}

fn aggregated(item: Item) -> ListedGroup {
    let name = item.metadata.name;
    let versions = item.versions.into_iter().map(|it| {
        let at = GroupVersion::of(&name, &it.version);
        let resources = if it.freshness == "Stale" {
            Err(format!("stale GroupVersion discovery: {at}"))
        } else {
            let listed = it.resources.into_iter().map(|it| {
                let ItemResource { resource, response_kind, scope, verbs } = it;
                let namespaced = scope == "Namespaced";
                ListedResource { plural: resource, kind: response_kind.kind, namespaced, verbs }
            });
            Ok(listed.collect())
        };
        ListedVersion { at, resources }
    });
    ListedGroup { versions: versions.collect() }
}

fn versions_by_preference(group: LegacyGroup) -> Vec<GroupVersion> {
    let preferred = group.preferred_version.group_version;
    let mut versions: Vec<String> = group.versions.into_iter().map(|it| it.group_version).collect();
    // A stable sort: the others stay in the server's order.
    versions.sort_by_key(|it| *it != preferred);
    versions.into_iter().map(GroupVersion).collect()
}

/// Go writes empty lists and structs as null.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// All forms of a root document in one: `kind` says which fields count.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    items: Vec<Item>,
    #[serde(default, deserialize_with = "or_default")]
    versions: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    groups: Vec<LegacyGroup>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default, deserialize_with = "or_default")]
    metadata: ItemMetadata,
    #[serde(default, deserialize_with = "or_default")]
    versions: Vec<ItemVersion>,
}

#[derive(Deserialize, Default)]
struct ItemMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ItemVersion {
    #[serde(default)]
    version: String,
    #[serde(default, deserialize_with = "or_default")]
    resources: Vec<ItemResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemResource {
    #[serde(default)]
    resource: String,
    #[serde(default, deserialize_with = "or_default")]
    response_kind: ResponseKind,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "or_default")]
    verbs: Vec<String>,
}

#[derive(Deserialize, Default)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroup {
    #[serde(default, deserialize_with = "or_default")]
    versions: Vec<LegacyVersion>,
    #[serde(default, deserialize_with = "or_default")]
    preferred_version: LegacyVersion,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct LegacyVersion {
    #[serde(default)]
    group_version: String,
}

#[derive(Deserialize)]
struct LegacyResources {
    #[serde(default, deserialize_with = "or_default")]
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
struct LegacyResource {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "or_default")]
    verbs: Vec<String>,
}

#[cfg(test)]
mod tests;
