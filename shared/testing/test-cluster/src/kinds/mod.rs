mod fields;
mod keys;
mod table;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::{Value, json};

use crate::crd::Declared;

pub(crate) use keys::*;
pub(crate) use table::GROUPS;

/// One resource: its URLs, and the rules that differ between kinds. Built-in kinds are rows of a table; custom kinds
/// are created from their definitions.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// The group of its URLs.
    pub(crate) group: String,
    /// The key of the table with its objects. It is another kind's table if this kind only shows those objects in
    /// another form.
    pub(crate) table: String,
    /// Served versions, preferred first.
    pub(crate) versions: Vec<String>,
    /// The version in which objects are stored.
    pub(crate) stored: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) custom: bool,
    /// What the definition of a custom kind declares for each version.
    pub(crate) declared: Arc<[Declared]>,
    pub(crate) rules: Rules,
}

/// The differences between kinds, except their names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) status: StatusRule,
    /// Subresources that are served.
    pub(crate) subresources: &'static [&'static str],
    /// Subresources that a real server has: 501 and not 404.
    pub(crate) unserved: &'static [&'static str],
    pub(crate) generation: Generation,
    /// A PUT without resourceVersion is refused.
    pub(crate) needs_version: bool,
    /// A PUT of a missing object creates it.
    pub(crate) put_creates: bool,
    /// A DELETE that removes the object returns the object and not a Status.
    pub(crate) delete_shows_object: bool,
    /// A DELETE without propagation policy means Orphan.
    pub(crate) orphans_by_default: bool,
    pub(crate) name: NameRule,
    /// Nothing is stored: a POST is only answered.
    pub(crate) create_only: bool,
    /// Field selectors other than name and namespace: label, path, value when missing.
    pub(crate) fields: &'static [(&'static str, &'static str, &'static str)],
}

/// Which names are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    /// One DNS label.
    Label,
    /// A subdomain that is short enough for the suffix of its Jobs.
    CronJob,
    /// Any valid path segment.
    Segment,
}

/// How the field `status` is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusRule {
    /// It is an ordinary field.
    Data,
    /// Only the status subresource changes it; a create sets it to this JSON (empty: none).
    Apart(&'static str),
    /// Only the status subresource changes it, but a create keeps it.
    KeptAtCreation,
}

/// Which changes increase the generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Not used: it stays as it was created.
    Unused,
    Spec,
    SpecOrAnnotations,
    /// A change of the template of a PodTemplate.
    Template,
    /// Set to 1 and never increased.
    Once,
    /// A change of labels or of anything outside of the metadata.
    ContentOrLabels,
    /// A change of anything outside of the metadata, and outside of the status if that has a subresource.
    Content,
}

impl Kind {
    /// `plural.group`, as messages name the resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `group/version` as stored.
    pub(crate) fn api_version(&self) -> String {
        join(self.stored_group(), &self.stored)
    }

    /// The group under which objects are stored, which messages about invalid objects name.
    pub(crate) fn stored_group(&self) -> &str {
        self.table.split_once('/').map_or("", |it| it.0)
    }

    /// The key of the table with its objects.
    pub(crate) fn table(&self) -> String {
        self.table.clone()
    }

    pub(crate) fn details(&self, name: &str) -> Value {
        let mut details = json!({ "name": name, "kind": self.plural });
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        details
    }

    pub(crate) fn is(&self, table: &str) -> bool {
        self.table == table
    }

    /// What the definition declares for a version.
    pub(crate) fn declared(&self, version: &str) -> Option<&Declared> {
        self.declared.iter().find(|it| it.version == version)
    }

    /// True when the status is written through its subresource.
    pub(crate) fn status_apart(&self) -> bool {
        self.rules.status != StatusRule::Data
    }

    pub(crate) fn serves(&self, version: &str) -> bool {
        self.versions.iter().any(|it| it == version)
    }

    /// The name of the Go package in error messages.
    pub(crate) fn go_package(&self) -> &str {
        match self.stored_group().split('.').next() {
            _ if self.custom => "unstructured",
            None | Some("") => "core",
            Some(first) => first,
        }
    }

    /// Verbs in the order of discovery.
    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        if self.rules.create_only {
            return vec!["create"];
        }
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        all.into_iter().filter(|it| *it != "deletecollection" || !self.is(NAMESPACES)).collect()
    }
}

/// `group/version`, or only the version for the core group.
pub(crate) fn join(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(crate) fn table_key(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// The default of a row: no status and no generation.
pub(crate) const DATA: Rules = Rules {
    status: StatusRule::Data,
    subresources: &[],
    unserved: &[],
    generation: Generation::Unused,
    needs_version: false,
    put_creates: false,
    delete_shows_object: false,
    orphans_by_default: false,
    name: NameRule::Subdomain,
    create_only: false,
    fields: &[],
};

/// Every built-in kind, created once for all clusters.
static BUILTIN: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| table::rows().map(Arc::new).collect());

static BY_ROUTE: LazyLock<BTreeMap<String, Arc<Kind>>> =
    LazyLock::new(|| BUILTIN.iter().map(|it| (table_key(&it.group, &it.plural), it.clone())).collect());

/// All built-in kinds, in the order of discovery within their group.
pub(crate) fn builtin() -> &'static [Arc<Kind>] {
    &BUILTIN
}

/// The built-in kind of `group/plural`.
pub(crate) fn by_route(route: &str) -> Option<&'static Arc<Kind>> {
    BY_ROUTE.get(route)
}

/// The kind of the bodies of a subresource whose objects have another kind than their parent.
pub(crate) fn of_subresource(group: &str, kind: &str) -> Kind {
    let plural = format!("{}s", kind.to_lowercase());
    Kind {
        group: group.to_owned(),
        table: table_key(group, &plural),
        versions: vec!["v1".into()],
        stored: "v1".into(),
        singular: kind.to_lowercase(),
        plural,
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        short: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        custom: false,
        declared: Arc::from([]),
        rules: DATA,
    }
}

impl Kind {
    /// True when it has a table of its own: it does not show another kind's objects, and it stores something.
    pub(crate) fn has_table(&self) -> bool {
        !self.rules.create_only && self.table == table_key(&self.group, &self.plural)
    }
}
