use std::collections::BTreeSet;

use clock::Timestamp;
use serde_json::Value;

use super::{
    AGE, Column, NAME, NONE, Printer, age, at_most, cells, list_at, name, or, pairs, scalar, text, text_at, wide,
};
use crate::meta;

pub(super) fn printer(plural: &str) -> Option<Printer> {
    Some(match plural {
        "services" => Printer { columns: SERVICE, cells: service },
        "endpoints" => Printer { columns: ENDPOINTS, cells: endpoints },
        "endpointslices" => Printer { columns: SLICE, cells: slice },
        _ => return None,
    })
}

const SERVICE: &[Column] =
    &[NAME, text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), AGE, wide("Selector")];

fn service(it: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list_at(it, "spec.ports").iter().map(port).collect();
    cells![
        name(it),
        text_at(it, "spec.type"),
        or(text_at(it, "spec.clusterIP"), NONE),
        external(it),
        or(&ports.join(","), NONE),
        age(it, now),
        pairs(&it["spec"]["selector"]),
    ]
}

/// `80/TCP` or `80:30080/TCP`
fn port(port: &Value) -> String {
    let protocol = or(text_at(port, "protocol"), "TCP");
    match port["nodePort"].as_i64() {
        Some(node @ 1..) => format!("{}:{node}/{protocol}", port["port"]),
        _ => format!("{}/{protocol}", port["port"]),
    }
}

/// The external addresses of a Service.
fn external(service: &Value) -> String {
    let given = meta::texts(&service["spec"], "externalIPs").join(",");
    match text_at(service, "spec.type") {
        "ExternalName" => text_at(service, "spec.externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = list_at(service, "status.loadBalancer.ingress").iter();
            let balanced: BTreeSet<&str> =
                ingress.map(|it| or(text_at(it, "ip"), text_at(it, "hostname"))).filter(|it| !it.is_empty()).collect();
            let all: Vec<&str> = balanced.into_iter().chain((!given.is_empty()).then_some(given.as_str())).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        _ => or(&given, NONE).to_owned(),
    }
}

const ENDPOINTS: &[Column] = &[NAME, text("Endpoints"), AGE];

fn endpoints(it: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list_at(it, "subsets") {
        let addresses = || list_at(subset, "addresses").iter().map(|it| text_at(it, "ip"));
        let ports = list_at(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            all.extend(addresses().map(|it| socket(it, &port["port"])));
        }
    }
    let shown = at_most(&all, 3, ",");
    cells![name(it), or(&shown, NONE), age(it, now)]
}

fn socket(ip: &str, port: &Value) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

const SLICE: &[Column] = &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE];
const UNSET: &str = "<unset>";

fn slice(it: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| match (&port["port"], text_at(port, "name")) {
        (Value::Null, "") => "*".to_owned(),
        (Value::Null, name) => name.to_owned(),
        (number, _) => scalar(number),
    };
    let ports: Vec<String> = list_at(it, "ports").iter().map(port).collect();
    let addresses = list_at(it, "endpoints").iter().flat_map(|it| meta::texts(it, "addresses"));
    let addresses: Vec<String> = addresses.map(str::to_owned).collect();
    cells![
        name(it),
        text_at(it, "addressType"),
        or(&at_most(&ports, 3, ","), UNSET),
        or(&at_most(&addresses, 3, ","), UNSET),
        age(it, now),
    ]
}
