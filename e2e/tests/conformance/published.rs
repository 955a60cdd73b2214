//! The schema of the embedded server has exactly the fields that a real server publishes. To support a new release of
//! Kubernetes, fix what this test lists.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use e2e::{ControlPlane, Options, Rest, assets_or_skip};
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../shared/testing/test-cluster/src/schema.txt");

/// Published with its fields, but stored as free-form data by our server.
const HELD_WHOLE: &str = "apiextensions.v1.JSONSchemaProps";

/// Fields by type, each with its form.
type Types = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn the_schema_is_what_a_real_server_publishes() {
    let running = std::env::var_os("CONFORMANCE_SERVER").map(PathBuf::from);
    let assets = assets_or_skip("conformance: the schema is what a real API server publishes");
    let published = tokio::runtime::Runtime::new().unwrap().block_on(async {
        match (running, assets) {
            (Some(kubeconfig), _) => Some(published(&Rest::from_kubeconfig(&kubeconfig).await.unwrap()).await),
            (None, Some(assets)) => {
                let plane = ControlPlane::start(assets, Options::default()).await.unwrap();
                Some(published(&plane.admin().await.unwrap()).await)
            }
            (None, None) => None,
        }
    });
    let Some(published) = published else { return };
    let ours = ours();
    assert!(ours.len() > 300, "{} types", ours.len());
    let mut wrong = Vec::new();
    for (name, fields) in &ours {
        let Some(theirs) = published.get(name) else {
            wrong.push(format!("{name}: not published"));
            continue;
        };
        for field in fields.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            let (have, want) = (fields.get(field), theirs.get(field));
            if have != want && want.is_none_or(|it| it != HELD_WHOLE) {
                wrong.push(format!("{name}.{field}: ours {have:?}, published {want:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `schema.txt`, with the published names of types: group, version, name.
fn ours() -> Types {
    let mut types = Types::new();
    let mut current = String::new();
    for line in SCHEMA.lines().filter(|it| !it.starts_with('#')) {
        match line.strip_prefix("  ").and_then(|it| it.split_once(' ')) {
            Some((field, form)) => {
                // Whether a field may be absent or is printed when empty is not published.
                let form = form.trim_end_matches('!').replace('*', "");
                let (around, base) = form.split_at(form.rfind(['}', ']']).map_or(0, |it| it + 1));
                let base = if base.contains('.') { public_name(base) } else { base.to_owned() };
                types.entry(current.clone()).or_default().insert(field.to_owned(), format!("{around}{base}"));
            }
            None => current = public_name(line),
        }
    }
    // The body of any custom resource.
    types.remove("custom.v1.Resource");
    types
}

fn public_name(ours: &str) -> String {
    match ours.split_once('.').unwrap_or_default() {
        ("autoscalingv2", name) => format!("autoscaling.v2.{name}"),
        (group, name) => format!("{group}.v1.{name}"),
    }
}

async fn published(rest: &Rest) -> Types {
    let index = rest.get("/openapi/v3").await.unwrap();
    let mut types = Types::new();
    for document in index["paths"].as_object().unwrap().values() {
        let document = rest.get(document["serverRelativeURL"].as_str().unwrap()).await.unwrap();
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let fields = properties.map(|(field, schema)| (field.clone(), form(schema))).collect();
            types.insert(short(name), fields);
        }
    }
    types
}

/// `io.k8s.api.core.v1.Pod` becomes `core.v1.Pod`.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    parts[parts.len().saturating_sub(3)..].join(".")
}

fn form(schema: &Value) -> String {
    let schema = schema["allOf"].get(0).unwrap_or(schema);
    if let Some(name) = schema["$ref"].as_str() {
        let name = short(name.rsplit('/').next().unwrap_or_default());
        let known = match name.rsplit('.').next().unwrap_or_default() {
            "Quantity" => "quantity",
            "Time" => "time",
            "MicroTime" => "microtime",
            "IntOrString" => "intstr",
            "FieldsV1" | "RawExtension" => "any",
            _ => return name,
        };
        return known.to_owned();
    }
    let format = schema["format"].as_str();
    match (schema["type"].as_str(), format) {
        (Some("array"), _) => format!("[]{}", form(&schema["items"])),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            format!("{{}}{}", form(&schema["additionalProperties"]))
        }
        (Some("string"), Some("date-time")) => "time".to_owned(),
        (Some("string"), Some("byte")) => "bytes".to_owned(),
        (Some("string"), _) => "string".to_owned(),
        (Some("integer"), Some(format)) => format.to_owned(),
        (Some("boolean"), _) => "bool".to_owned(),
        _ => "any".to_owned(),
    }
}
