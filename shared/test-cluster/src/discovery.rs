use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    Failure, ResponseBody, answer,
    cluster::Shared,
    faults::{DiscoveryFault, Groups},
    kinds::{self, Kind, join},
    rest::Exchange,
};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers what is no resource: discovery, version, health.
pub(crate) fn serve(shared: &Shared, exchange: &Exchange) -> Result<Response<ResponseBody>, Failure> {
    let path = exchange.path.trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let known = matches!(parts[..], ["api" | "apis", ..] | ["version" | "healthz" | "livez" | "readyz", ..]);
    if !known {
        return Err(if path.starts_with("/openapi") { Failure::not_served("OpenAPI") } else { Failure::no_group() });
    }
    if exchange.method != "GET" {
        return Err(Failure::method_not_allowed());
    }
    let catalogue = Catalogue::read(shared);
    let aggregated = wants_aggregated(exchange.header(header::ACCEPT));
    match parts[..] {
        ["version"] => Ok(answer::json_answer(200, &version())),
        ["healthz" | "livez" | "readyz"] => {
            Ok(answer::respond(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok")))
        }
        ["api"] if aggregated => Ok(document(exchange, &catalogue.aggregated(true))),
        ["apis"] if aggregated => Ok(document(exchange, &catalogue.aggregated(false))),
        ["api"] => Ok(answer::json_answer(
            200,
            &json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443" }],
            }),
        )),
        ["apis"] => Ok(answer::json_answer(200, &catalogue.groups())),
        ["apis", group] => catalogue.group(group).map(|it| answer::json_answer(200, &it)),
        ["api", version] => catalogue.resources("", version).map(|it| answer::json_answer(200, &it)),
        ["apis", group, version] => catalogue.resources(group, version).map(|it| answer::json_answer(200, &it)),
        _ => Err(Failure::no_group()),
    }
}

fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|element| {
        let has = |wanted: &str| element.split(';').any(|it| it.trim() == wanted);
        has("application/json") && has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
    })
}

/// An aggregated document: cacheable by its tag.
fn document(exchange: &Exchange, body: &Value) -> Response<ResponseBody> {
    let bytes = answer::encode(body);
    // FNV-1a: any stable tag will do.
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let tag = format!("\"{hash:016X}\"");
    let fresh = exchange.header(header::IF_NONE_MATCH) == tag;
    let mut answer = answer::respond(200, AGGREGATED, if fresh { Bytes::new() } else { bytes });
    if fresh {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = answer.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    answer
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "test-cluster", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// What is served now, by group, in the order of discovery.
struct Catalogue {
    groups: Vec<(String, Vec<Arc<Kind>>)>,
    faults: Groups,
}

impl Catalogue {
    fn read(shared: &Shared) -> Self {
        let mut by_group = BTreeMap::<String, Vec<Arc<Kind>>>::new();
        let state = shared.state.lock();
        let custom = state.tables.values().map(|it| &it.kind).filter(|it| it.custom);
        for kind in kinds::builtin().iter().chain(custom) {
            by_group.entry(kind.group.clone()).or_default().push(kind.clone());
        }
        drop(state);
        let mut groups = Vec::new();
        for group in kinds::GROUPS {
            groups.extend(by_group.remove_entry(*group));
        }
        groups.extend(by_group);
        Self { groups, faults: shared.faults.groups() }
    }

    fn fault(&self, group: &str) -> Option<DiscoveryFault> {
        self.faults.discovery_fault(group)
    }

    /// Groups that documents mention; the core group stands in a document of its own.
    fn shown(&self, core: bool) -> impl Iterator<Item = &(String, Vec<Arc<Kind>>)> {
        let missing = Some(DiscoveryFault::Missing);
        self.groups.iter().filter(move |it| it.0.is_empty() == core && self.fault(&it.0) != missing)
    }

    fn aggregated(&self, core: bool) -> Value {
        let items: Vec<Value> = self
            .shown(core)
            .map(|(group, kinds)| {
                let stale = self.fault(group).is_some();
                let versions: Vec<Value> = versions(kinds)
                    .into_iter()
                    .map(|version| {
                        let served = kinds.iter().filter(|it| it.serves(version) && !stale);
                        let resources: Vec<Value> = served.map(|it| aggregated_resource(it)).collect();
                        let freshness = if stale { "Stale" } else { "Current" };
                        json!({ "version": version, "resources": resources, "freshness": freshness })
                    })
                    .collect();
                let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
                json!({ "metadata": metadata, "versions": versions })
            })
            .collect();
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        })
    }

    fn groups(&self) -> Value {
        let groups: Vec<Value> = self.shown(false).map(|(group, kinds)| legacy_group(group, kinds)).collect();
        json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
    }

    fn group(&self, name: &str) -> Result<Value, Failure> {
        let (group, kinds) = self.shown(false).find(|it| it.0 == name).ok_or_else(Failure::no_group)?;
        let mut document = legacy_group(group, kinds);
        document["kind"] = json!("APIGroup");
        document["apiVersion"] = json!("v1");
        Ok(document)
    }

    fn resources(&self, group: &str, version: &str) -> Result<Value, Failure> {
        let found = self.shown(group.is_empty()).find(|it| it.0 == group);
        let (_, kinds) = found.ok_or_else(Failure::no_group)?;
        if self.fault(group).is_some() {
            return Err(Failure::unavailable());
        }
        if !versions(kinds).contains(&version) {
            return Err(Failure::no_route());
        }
        let mut resources = Vec::new();
        for kind in kinds.iter().filter(|it| it.serves(version)) {
            let mut resource = json!({
                "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
                "verbs": kind.verbs(),
            });
            for (field, list) in [("shortNames", &kind.short), ("categories", &kind.categories)] {
                if !list.is_empty() {
                    resource[field] = json!(list);
                }
            }
            resources.push(resource);
            for sub in kind.rules.subresources {
                resources.push(json!({
                    "name": format!("{}/{sub}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                    "kind": kind.kind, "verbs": verbs_of(sub),
                }));
            }
        }
        Ok(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": join(group, version), "resources": resources,
        }))
    }
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response = json!({ "group": "", "version": "", "kind": kind.kind });
    let mut resource = json!({
        "resource": kind.plural, "responseKind": response, "singularResource": kind.singular,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": kind.verbs(),
    });
    for (field, list) in [("shortNames", &kind.short), ("categories", &kind.categories)] {
        if !list.is_empty() {
            resource[field] = json!(list);
        }
    }
    if !kind.rules.subresources.is_empty() {
        let sub = |it: &&str| json!({ "subresource": it, "responseKind": response, "verbs": verbs_of(it) });
        resource["subresources"] = kind.rules.subresources.iter().map(sub).collect();
    }
    resource
}

fn verbs_of(sub: &str) -> &'static [&'static str] {
    if sub == "finalize" { &["update"] } else { &["get", "patch", "update"] }
}

fn legacy_group(group: &str, kinds: &[Arc<Kind>]) -> Value {
    let versions: Vec<Value> = versions(kinds)
        .into_iter()
        .map(|version| json!({ "groupVersion": join(group, version), "version": version }))
        .collect();
    json!({ "name": group, "preferredVersion": versions.first(), "versions": versions })
}

/// All versions of a group's kinds, preferred first.
fn versions(kinds: &[Arc<Kind>]) -> Vec<&str> {
    let mut versions = Vec::new();
    for version in kinds.iter().flat_map(|it| &it.versions) {
        if !versions.contains(&version.as_str()) {
            versions.push(version.as_str());
        }
    }
    versions
}
