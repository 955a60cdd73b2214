use clock::Timestamp;
use serde_json::Value;

use super::{AGE, Column, NAME, Printer, age, cells, containers, name, pairs, scalar, text, text_at};
use crate::meta;

pub(super) fn printer(plural: &str) -> Option<Printer> {
    Some(match plural {
        "namespaces" => Printer { columns: NAMESPACE, cells: namespace },
        "configmaps" => Printer { columns: CONFIG_MAP, cells: config_map },
        "secrets" => Printer { columns: SECRET, cells: secret },
        "serviceaccounts" => Printer { columns: ACCOUNT, cells: account },
        "resourcequotas" => Printer { columns: QUOTA, cells: quota },
        "podtemplates" => Printer { columns: POD_TEMPLATE, cells: pod_template },
        _ => return None,
    })
}

const NAMESPACE: &[Column] = &[NAME, text("Status"), AGE];

fn namespace(it: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(it), text_at(it, "status.phase"), age(it, now)]
}

const CONFIG_MAP: &[Column] = &[NAME, text("Data"), AGE];

fn config_map(it: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(it), keys(&it["data"]) + keys(&it["binaryData"]), age(it, now)]
}

const SECRET: &[Column] = &[NAME, text("Type"), text("Data"), AGE];

fn secret(it: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(it), text_at(it, "type"), keys(&it["data"]), age(it, now)]
}

fn keys(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

const ACCOUNT: &[Column] = &[NAME, AGE];

fn account(it: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(it), age(it, now)]
}

const QUOTA: &[Column] = &[NAME, text("Request"), text("Limit"), AGE];

/// The used and the allowed amounts; limits are separate from the rest.
fn quota(it: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in meta::at(it, "status.hard").as_object().into_iter().flatten() {
        let used = &it["status"]["used"][resource];
        let used = if used.is_null() { "0".into() } else { scalar(used) };
        let part = format!("{resource}: {used}/{}", scalar(hard));
        let side = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        side.push(part);
    }
    cells![name(it), requests.join(", "), limits.join(", "), age(it, now)]
}

const POD_TEMPLATE: &[Column] = &[NAME, text("Containers"), text("Images"), text("Pod Labels")];

fn pod_template(it: &Value, _: Timestamp) -> Vec<Value> {
    let [names, images] = containers(&it["template"]["spec"]);
    cells![name(it), names, images, pairs(&it["template"]["metadata"]["labels"])]
}
