use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    Failure, ResponseBody,
    apiservice::{self, Shown},
    cluster::Shared,
    faults::{DiscoveryFault, Groups},
    kinds::{self, Kind, join},
    openapi, response,
    rest::Exchange,
    store::State,
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const TEXT: &str = "text/plain; charset=utf-8";

/// Serves paths that are not resources: discovery, OpenAPI, version, health.
pub(crate) fn serve(shared: &Shared, exchange: &Exchange) -> Result<Response<ResponseBody>, Failure> {
    let path = exchange.path.trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping"] => {
            return Ok(response::respond(200, TEXT, Bytes::from_static(b"ok")));
        }
        ["version"] => {
            need_get(exchange)?;
            return Ok(response::json_answer(200, &version()));
        }
        ["openapi", ..] if exchange.header(openapi::COMMAND) == "kubectl explain" => return Err(openapi::no_fields()),
        ["openapi", "v3"] | ["openapi", "v3", ..] => return openapi(shared, exchange, path),
        ["openapi", "v2"] => return Ok(openapi::second(exchange.header(header::ACCEPT))),
        [] | ["metrics" | ".well-known", ..] => return Err(Failure::not_served(&exchange.path)),
        ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] => {}
        _ => return Err(Failure::no_group()),
    }
    // The root documents are served only without a trailing slash.
    let aggregated = matches!(exchange.path.as_str(), "/api" | "/apis");
    let aggregated = aggregated && wants_aggregated(exchange.header(header::ACCEPT));
    let document = shared.documents.get(shared, path, aggregated)?;
    match parts[..] {
        // Documents of groups are served for every method.
        ["apis"] | ["apis", _] => {}
        _ => need_get(exchange)?,
    }
    if aggregated {
        return Ok(document.tagged(exchange));
    }
    accepts_json(exchange.header(header::ACCEPT))?;
    Ok(response::respond(200, "application/json", document.bytes))
}

fn openapi(shared: &Shared, exchange: &Exchange, path: &str) -> Result<Response<ResponseBody>, Failure> {
    let document = shared.documents.get(shared, path, false)?;
    if path == "/openapi/v3" {
        return Ok(response::respond(200, TEXT, document.bytes));
    }
    let mut answer = document.tagged(exchange);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(answer)
}

fn need_get(exchange: &Exchange) -> Result<(), Failure> {
    if exchange.method == "GET" { Ok(()) } else { Err(Failure::method_not_allowed()) }
}

fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|element| {
        let has = |wanted: &str| element.split(';').any(|it| it.trim() == wanted);
        has("application/json") && has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
    })
}

/// The legacy documents have no conversions.
fn accepts_json(accept: &str) -> Result<(), Failure> {
    let json = |element: &str| {
        let mut parts = element.split(';').map(str::trim);
        let known = matches!(parts.next(), Some("application/json" | "*/*" | "application/*" | ""));
        known && !parts.any(|it| it.starts_with("as="))
    };
    if accept.split(',').any(json) {
        return Ok(());
    }
    let message = "only the following media types are accepted: application/json, application/yaml, \
                   application/vnd.kubernetes.protobuf";
    Err(Failure::new(406, "NotAcceptable", message, None))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "test-cluster", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
        "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}

/// The last documents, cached while nothing changes, because managers request them often.
#[derive(Default)]
pub(crate) struct Documents(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    served: u64,
    faults: Groups,
    documents: BTreeMap<(String, bool), Document>,
}

/// One document, encoded.
#[derive(Clone)]
struct Document {
    bytes: Bytes,
    tag: String,
}

impl Documents {
    fn get(&self, shared: &Shared, path: &str, aggregated: bool) -> Result<Document, Failure> {
        let faults = shared.faults.groups();
        let mut kept = self.0.lock();
        let state = shared.state.lock();
        if kept.served != state.served || kept.faults != faults {
            *kept = Kept { served: state.served, faults: faults.clone(), documents: BTreeMap::new() };
        }
        let key = (path.to_owned(), aggregated);
        if let Some(document) = kept.documents.get(&key) {
            return Ok(document.clone());
        }
        let catalogue = Catalogue::read(&state, faults);
        drop(state);
        let document = Document::new(&catalogue.document(path, aggregated)?);
        kept.documents.insert(key, document.clone());
        Ok(document)
    }
}

impl Document {
    fn new(body: &Value) -> Self {
        let bytes = response::encode(body);
        let hash = openapi::hash(&bytes);
        Self { bytes, tag: format!("\"{hash:016X}\"") }
    }

    /// An aggregated document with its ETag.
    fn tagged(self, exchange: &Exchange) -> Response<ResponseBody> {
        let fresh = exchange.header(header::IF_NONE_MATCH) == self.tag;
        let mut answer = response::respond(200, AGGREGATED, if fresh { Bytes::new() } else { self.bytes });
        if fresh {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            answer.headers_mut().remove(header::CONTENT_TYPE);
        }
        let headers = answer.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            headers.insert(header::ETAG, tag);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        answer
    }
}

/// What is served now, in the order of discovery.
pub(crate) struct Catalogue {
    shown: Vec<Shown>,
    /// By group, in the order of names.
    kinds: BTreeMap<String, Vec<Arc<Kind>>>,
    faults: Groups,
}

impl Catalogue {
    fn read(state: &State, faults: Groups) -> Self {
        let mut by_group = BTreeMap::<String, Vec<Arc<Kind>>>::new();
        let custom = state.tables.values().map(|it| &it.kind).filter(|it| it.custom);
        for kind in kinds::builtin().iter().chain(custom) {
            by_group.entry(kind.group.clone()).or_default().push(kind.clone());
        }
        for kinds in by_group.values_mut() {
            kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
        }
        Self { shown: apiservice::served_versions(state), kinds: by_group, faults }
    }

    fn document(&self, path: &str, aggregated: bool) -> Result<Value, Failure> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match parts[..] {
            ["api"] if aggregated => Ok(self.aggregated(true)),
            ["apis"] if aggregated => Ok(self.aggregated(false)),
            ["api"] => Ok(json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443" }],
            })),
            ["apis"] => Ok(self.group_list()),
            ["apis", group] => self.group(group),
            ["api", version] => self.resources("", version),
            ["apis", group, version] => self.resources(group, version),
            ["openapi", "v3"] => Ok(openapi::index(self)),
            ["openapi", "v3", "api", version] => openapi::document(self, "", version),
            ["openapi", "v3", "apis", group, version] => openapi::document(self, group, version),
            _ => Err(Failure::no_group()),
        }
    }

    fn fault(&self, group: &str) -> Option<DiscoveryFault> {
        self.faults.discovery_fault(group)
    }

    /// The groups of a document, in order. The core group has its own document.
    fn groups(&self, core: bool) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let wanted = self.shown.iter().map(|it| it.group.as_str()).filter(|it| it.is_empty() == core);
        let there = wanted.filter(|it| self.fault(it) != Some(DiscoveryFault::Missing));
        there.filter(|it| seen.insert(*it)).collect()
    }

    /// Every group-version, available or not.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Shown> {
        self.shown.iter().filter(|it| self.fault(&it.group) != Some(DiscoveryFault::Missing))
    }

    /// The versions of a group, preferred first.
    fn versions_of(&self, group: &str) -> Vec<&Shown> {
        self.versions().filter(|it| it.group == group).collect()
    }

    /// The kinds of a group-version, by plural.
    pub(crate) fn kinds(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.get(group).into_iter().flatten().filter(move |it| it.serves(version))
    }

    fn aggregated(&self, core: bool) -> Value {
        let group = |group: &str| {
            let versions = self.versions_of(group).into_iter().map(|it| self.aggregated_version(it));
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            json!({ "metadata": metadata, "versions": versions.collect::<Vec<_>>() })
        };
        let items: Vec<Value> = self.groups(core).into_iter().map(group).collect();
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        })
    }

    fn aggregated_version(&self, shown: &Shown) -> Value {
        let Shown { group, version, available } = shown;
        if !available || self.fault(group).is_some() {
            return json!({ "version": version, "freshness": "Stale" });
        }
        let resources: Vec<Value> = self.kinds(group, version).map(|it| aggregated_resource(it, version)).collect();
        json!({ "version": version, "resources": resources, "freshness": "Current" })
    }

    fn group_list(&self) -> Value {
        let groups: Vec<Value> = self.groups(false).into_iter().map(|it| self.legacy_group(it)).collect();
        json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
    }

    fn legacy_group(&self, group: &str) -> Value {
        let versions: Vec<Value> = self
            .versions_of(group)
            .into_iter()
            .map(|it| json!({ "groupVersion": join(group, &it.version), "version": it.version }))
            .collect();
        json!({ "name": group, "preferredVersion": versions.first(), "versions": versions })
    }

    fn group(&self, name: &str) -> Result<Value, Failure> {
        if name.is_empty() || !self.groups(false).contains(&name) {
            return Err(Failure::no_group());
        }
        let mut document = self.legacy_group(name);
        document["kind"] = json!("APIGroup");
        document["apiVersion"] = json!("v1");
        Ok(document)
    }

    /// Checks that a group-version is available.
    ///
    /// # Errors
    /// 404 when it does not exist, 503 when its server does not respond.
    pub(crate) fn available(&self, group: &str, version: &str) -> Result<(), Failure> {
        let versions = self.versions_of(group);
        let found = versions.iter().find(|it| it.version == version);
        if !versions.is_empty() && self.fault(group).is_some() || found.is_some_and(|it| !it.available) {
            return Err(Failure::unavailable());
        }
        match found {
            Some(_) => Ok(()),
            None if !versions.is_empty() && kinds::GROUPS.contains(&group) => Err(Failure::no_route()),
            None => Err(Failure::no_group()),
        }
    }

    fn resources(&self, group: &str, version: &str) -> Result<Value, Failure> {
        self.available(group, version)?;
        let resources: Vec<Value> = self.kinds(group, version).flat_map(|it| legacy_resources(it, version)).collect();
        Ok(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": join(group, version), "resources": resources,
        }))
    }
}

/// A subresource with its verbs.
struct Sub {
    name: &'static str,
    /// Group, version and kind of its objects, if they differ from its parent's.
    kind: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
}

/// The subresources of a kind in one version: ordered by name, or in the order of declaration.
fn subresources(kind: &Kind, version: &str) -> Vec<Sub> {
    let mut names: Vec<&'static str> = kind.rules.subresources.to_vec();
    if let Some(declared) = kind.declared(version) {
        let status = declared.status.then_some("status");
        names = status.into_iter().chain(declared.scale.is_some().then_some("scale")).collect();
    } else {
        names.sort_unstable();
    }
    names.into_iter().map(sub).collect()
}

fn sub(name: &'static str) -> Sub {
    const CHANGED: &[&str] = &["get", "patch", "update"];
    let (kind, verbs): (_, &'static [&'static str]) = match name {
        "finalize" => (None, &["update"]),
        "scale" => (Some(("autoscaling", "v1", "Scale")), CHANGED),
        "binding" => (Some(("", "", "Binding")), &["create"]),
        "eviction" => (Some(("policy", "v1", "Eviction")), &["create"]),
        "token" => (Some(("authentication.k8s.io", "v1", "TokenRequest")), &["create"]),
        _ => (None, CHANGED),
    };
    Sub { name, kind, verbs }
}

/// The verbs in the order in which each server lists them.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.custom {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    kind.verbs()
}

fn aggregated_resource(kind: &Kind, version: &str) -> Value {
    // Built-in groups omit what equals their own group and version.
    let own = if kind.custom { (kind.group.as_str(), version) } else { ("", "") };
    let response = json!({ "group": own.0, "version": own.1, "kind": kind.kind });
    let mut resource = json!({
        "resource": kind.plural, "responseKind": response, "singularResource": kind.singular,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": verbs(kind),
    });
    add_words(&mut resource, kind);
    let subresources: Vec<Value> = subresources(kind, version)
        .into_iter()
        .map(|it| {
            let response = match it.kind {
                Some((group, version, kind)) => json!({ "group": group, "version": version, "kind": kind }),
                None => response.clone(),
            };
            json!({ "subresource": it.name, "responseKind": response, "verbs": it.verbs })
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}

fn add_words(resource: &mut Value, kind: &Kind) {
    for (field, list) in [("shortNames", &kind.short), ("categories", &kind.categories)] {
        if !list.is_empty() {
            resource[field] = json!(list);
        }
    }
}

fn legacy_resources(kind: &Kind, version: &str) -> Vec<Value> {
    let mut resource = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": verbs(kind),
    });
    add_words(&mut resource, kind);
    let mut resources = vec![resource];
    for it in subresources(kind, version) {
        let (group, version, kind_name) = it.kind.unwrap_or(("", "", kind.kind.as_str()));
        let mut resource = json!({
            "name": format!("{}/{}", kind.plural, it.name), "singularName": "", "namespaced": kind.namespaced,
            "kind": kind_name, "verbs": it.verbs,
        });
        if !version.is_empty() {
            resource["group"] = group.into();
            resource["version"] = version.into();
        }
        resources.push(resource);
    }
    resources
}
