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

/// One resource: where it is served, and the rules that differ between kinds. Built-in kinds are rows of a table,
/// custom ones are made from their definition.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// The group of its URLs.
    pub(crate) group: String,
    /// Key of the table that holds the objects. Another kind's where this one only shows its objects in another form.
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
    /// What the definition of a custom kind says of each version.
    pub(crate) declared: Arc<[Declared]>,
    pub(crate) rules: Rules,
}

/// What differs between kinds, beside their names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) status: StatusRule,
    /// Subresources that are served.
    pub(crate) subresources: &'static [&'static str],
    /// Subresources that a real server has: 501 rather than 404.
    pub(crate) unserved: &'static [&'static str],
    pub(crate) generation: Generation,
    /// A PUT without resourceVersion is refused.
    pub(crate) needs_version: bool,
    /// A PUT of what is not there creates it.
    pub(crate) put_creates: bool,
    /// A DELETE that removes answers with the object, not with a Status.
    pub(crate) delete_shows_object: bool,
    /// A DELETE without propagation policy means Orphan.
    pub(crate) orphans_by_default: bool,
    pub(crate) name: NameRule,
    /// Nothing is stored: a POST is answered, and that is all there is.
    pub(crate) create_only: bool,
    /// Field selectors beyond name and namespace: label, path, value when missing.
    pub(crate) fields: &'static [(&'static str, &'static str, &'static str)],
}

/// What a name must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    /// One DNS label.
    Label,
    /// A subdomain that leaves room for the suffix of its Jobs.
    CronJob,
    /// Anything that can be a segment of a path.
    Segment,
}

/// Who owns the field `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusRule {
    /// It is data like any other.
    Data,
    /// Only the subresource changes it; a creation sets it to this JSON (empty: none).
    Apart(&'static str),
    /// Only the subresource changes it, but a creation keeps it.
    KeptAtCreation,
}

/// What a change must touch to count as a new generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Not used: stays as it was created.
    Unused,
    Spec,
    SpecOrAnnotations,
    /// The template of a PodTemplate.
    Template,
    /// Set to 1 and never counted.
    Once,
    /// Labels, and everything but metadata.
    ContentOrLabels,
    /// Everything but metadata, and but status where that is apart.
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

    /// The group under which objects are stored, and under which messages name an invalid one.
    pub(crate) fn stored_group(&self) -> &str {
        self.table.split_once('/').map_or("", |it| it.0)
    }

    /// Key of the table that holds the objects.
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

    /// What the definition says of a version.
    pub(crate) fn declared(&self, version: &str) -> Option<&Declared> {
        self.declared.iter().find(|it| it.version == version)
    }

    /// Status has its own door.
    pub(crate) fn status_apart(&self) -> bool {
        self.rules.status != StatusRule::Data
    }

    pub(crate) fn serves(&self, version: &str) -> bool {
        self.versions.iter().any(|it| it == version)
    }

    /// What error messages call the Go package.
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

/// `group/version`, or the version alone for the core group.
pub(crate) fn join(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(crate) fn table_key(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// Plain data without status or generation: what a kind is unless its row says more.
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

/// Every built-in kind, made once for all clusters.
static BUILTIN: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| table::rows().map(Arc::new).collect());

static BY_ROUTE: LazyLock<BTreeMap<String, Arc<Kind>>> =
    LazyLock::new(|| BUILTIN.iter().map(|it| (table_key(&it.group, &it.plural), it.clone())).collect());

/// All built-in kinds, in the order of discovery within their group.
pub(crate) fn builtin() -> &'static [Arc<Kind>] {
    &BUILTIN
}

/// The built-in kind under `group/plural`.
pub(crate) fn by_route(route: &str) -> Option<&'static Arc<Kind>> {
    BY_ROUTE.get(route)
}

/// The kind of bodies and answers of a subresource that speaks of objects in another form than they have.
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
    /// It has a table of its own: not one that only shows another kind's objects, nor one that stores nothing.
    pub(crate) fn has_table(&self) -> bool {
        !self.rules.create_only && self.table == table_key(&self.group, &self.plural)
    }
}
