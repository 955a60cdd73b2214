//! Nodes, ConfigMaps, Secrets, Services, volumes and claims.

use serde_json::{Value, json};

use super::{
    faults::Faults,
    list, number,
    pod::{EFFECTS, amount, check_port_number},
    text,
};
use crate::{
    kinds::{self, Kind},
    meta,
};

pub(super) fn check_node(faults: &mut Faults, object: &Value) {
    let taints = list(&object["spec"], "taints");
    for (at, taint) in taints.iter().enumerate() {
        let path = format!("metadata.taints[{at}]");
        faults.check_qualified_name(text(taint, "key"), &format!("{path}.key"));
        faults.check_label_value(text(taint, "value"), &format!("{path}.value"));
        faults.check_one_of(taint, "effect", &format!("{path}.effect"), &EFFECTS);
        let same = |it: &Value| it["key"] == taint["key"] && it["effect"] == taint["effect"];
        if taints[..at].iter().any(same) {
            let shown = format!(
                r#"{{"Key":{},"Value":{},"Effect":{},"TimeAdded":{}}}"#,
                taint["key"],
                json!(text(taint, "value")),
                taint["effect"],
                taint["timeAdded"]
            );
            let why = "taints must be unique by key and effect pair";
            faults.add("FieldValueDuplicate", path, format!("Duplicate value: {shown}: {why}"));
        }
    }
    for (at, range) in list(&object["spec"], "podCIDRs").iter().enumerate() {
        if !is_range(range.as_str().unwrap_or_default()) {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            faults.add_invalid(format!("spec.podCIDRs[{at}]"), range, why);
        }
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<std::net::IpAddr>() else { return false };
    bits.parse::<u8>().is_ok_and(|it| it <= if address.is_ipv4() { 32 } else { 128 })
}

pub(super) fn check_node_change(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after) = (&old["spec"], &new["spec"]);
    if !list(before, "podCIDRs").is_empty() && before["podCIDRs"] != after["podCIDRs"] {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        faults.add_forbidden("spec.podCIDRs", why);
    }
    if !text(before, "providerID").is_empty() && before["providerID"] != after["providerID"] {
        let why = "node updates may not change providerID except from \"\" to valid";
        faults.add_forbidden("spec.providerID", why);
    }
    if before["externalID"] != after["externalID"] {
        faults.add_forbidden("spec.externalID", "may not be updated");
    }
}

pub(super) fn check_config_map(faults: &mut Faults, object: &Value) {
    let (texts, bytes) = (&object["data"], &object["binaryData"]);
    for key in texts.as_object().into_iter().flatten().map(|it| it.0) {
        check_data_key(faults, key, "data");
        if !bytes[key].is_null() {
            faults.add_invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData");
        }
    }
    for key in bytes.as_object().into_iter().flatten().map(|it| it.0) {
        check_data_key(faults, key, "binaryData");
    }
}

fn check_data_key(faults: &mut Faults, key: &str, field: &str) {
    let path = format!("{field}[{key}]");
    let legal = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    if key.is_empty() || !key.bytes().all(legal) {
        let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                   'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
        faults.add_invalid(path, &json!(key), why);
    } else if key == "." || key == ".." {
        faults.add_invalid(path, &json!(key), &format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        faults.add_invalid(path, &json!(key), "must not start with '..'");
    }
}

pub(super) fn check_secret(faults: &mut Faults, object: &Value) {
    let data = &object["data"];
    for key in data.as_object().into_iter().flatten().map(|it| it.0) {
        check_data_key(faults, key, "data");
    }
    let needed: &[&str] = match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            if object["metadata"]["annotations"][ACCOUNT].as_str().unwrap_or_default().is_empty() {
                faults.add_required(format!("metadata.annotations[{ACCOUNT}]"), "");
            }
            &[]
        }
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/basic-auth" if data["username"].is_null() && data["password"].is_null() => {
            &["username", "password"]
        }
        _ => &[],
    };
    for key in needed.iter().filter(|it| data[**it].is_null()) {
        faults.add_required(format!("data[{key}]"), "");
    }
}

pub(super) fn check_data_change(faults: &mut Faults, kind: &Kind, old: &Value, new: &Value) {
    const FIXED: &str = "field is immutable when `immutable` is set";
    if kind.is(kinds::SECRETS) {
        faults.check_immutable(old, new, "type");
    }
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        faults.add_forbidden("immutable", FIXED);
    }
    for field in ["data", "binaryData"] {
        if old[field] != new[field] {
            faults.add_forbidden(field, FIXED);
        }
    }
}

pub(super) fn check_service(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    let kind = text(spec, "type");
    let address = text(spec, "clusterIP");
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    faults.check_one_of(spec, "type", "spec.type", &kinds);
    faults.check_one_of(spec, "sessionAffinity", "spec.sessionAffinity", &["ClientIP", "None"]);
    faults.check_labels(&spec["selector"], "spec.selector");
    if kind == "ExternalName" && text(spec, "externalName").is_empty() {
        faults.add_required("spec.externalName", "");
    }
    if !matches!(address, "" | "None") && address.parse::<std::net::IpAddr>().is_err() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        faults.add_invalid("spec.clusterIPs[0]", &json!(address), why);
    }
    let ports = list(spec, "ports");
    if ports.is_empty() && kind != "ExternalName" && address != "None" {
        faults.add_required("spec.ports", "");
    }
    for (at, port) in ports.iter().enumerate() {
        check_service_port(faults, port, &ports[..at], at, ports.len() > 1);
    }
}

fn check_service_port(faults: &mut Faults, port: &Value, before: &[Value], at: usize, several: bool) {
    let path = format!("spec.ports[{at}]");
    let name = text(port, "name");
    if name.is_empty() {
        if several {
            faults.add_required(format!("{path}.name"), "");
        }
    } else {
        faults.check_label_name(name, &format!("{path}.name"));
        if before.iter().any(|it| text(it, "name") == name) {
            faults.add_duplicate(format!("{path}.name"), &json!(name));
        }
    }
    check_port_number(faults, number(port, "port"), &format!("{path}.port"));
    if let Some(target) = port["targetPort"].as_i64() {
        check_port_number(faults, target, &format!("{path}.targetPort"));
    } else if port["targetPort"].is_null() && number(port, "port") == 0 {
        check_port_number(faults, 0, &format!("{path}.targetPort"));
    }
    faults.check_one_of(port, "protocol", &format!("{path}.protocol"), &["SCTP", "TCP", "UDP"]);
    let same = |it: &Value| it["port"] == port["port"] && it["protocol"] == port["protocol"];
    if before.iter().any(same) {
        let shown = format!(
            r#"{{"Name":"","Protocol":{},"AppProtocol":null,"Port":{},"TargetPort":0,"NodePort":0}}"#,
            port["protocol"], port["port"]
        );
        faults.add("FieldValueDuplicate", path.clone(), format!("Duplicate value: {shown}"));
    }
    let node_port = number(port, "nodePort");
    if node_port != 0 && !(30_000..=32_767).contains(&node_port) {
        let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
        faults.add_invalid(format!("{path}.nodePort"), &json!(node_port), why);
    }
}

pub(super) fn check_service_change(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after) = (&old["spec"]["clusterIP"], &new["spec"]["clusterIP"]);
    let external = |it: &Value| it["spec"]["type"] == "ExternalName";
    if !external(old) && !external(new) && before != after && !text(&old["spec"], "clusterIP").is_empty() {
        faults.add_invalid("spec.clusterIPs[0]", &json!([after]), "may not change once set");
    }
}

pub(super) fn check_claim(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        faults.add_required("spec.accessModes", "at least 1 access mode is required");
    }
    check_access_modes(faults, modes);
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => faults.add_required("spec.resources[storage]", ""),
        size if amount(size).is_some_and(|it| it <= 0) => {
            faults.add_invalid("spec.resources[storage]", size, "must be greater than zero");
        }
        _ => {}
    }
    faults.check_one_of(spec, "volumeMode", "spec.volumeMode", &["Block", "Filesystem"]);
}

fn check_access_modes(faults: &mut Faults, modes: &[Value]) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in modes.iter().filter(|it| !it.as_str().is_some_and(|it| MODES.contains(&it))) {
        faults.add_unsupported("spec.accessModes", mode, &MODES);
    }
}

pub(super) fn check_claim_change(faults: &mut Faults, old: &Value, new: &Value) {
    let bound = old["status"]["phase"] == "Bound";
    let (before, after) = (&old["spec"], &new["spec"]);
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        let fields = meta::as_map(&mut spec);
        if text(before, "volumeName").is_empty() {
            fields.remove("volumeName");
        }
        // A storage class may be set later.
        if before["storageClassName"].is_null() {
            fields.remove("storageClassName");
        }
        if bound {
            fields.remove("volumeAttributesClassName");
            if let Some(resources) = fields.get_mut("resources").and_then(Value::as_object_mut) {
                resources.remove("requests");
            }
        }
        spec
    };
    if fixed(before) != fixed(after) {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                   claims";
        faults.add_forbidden("spec", why);
    }
    let size = |of: &Value| amount(&of["storage"]);
    if let (Some(asked), Some(had)) = (size(&after["resources"]["requests"]), size(&old["status"]["capacity"]))
        && asked < had
        && before["resources"] != after["resources"]
    {
        faults.add_forbidden("spec.resources.requests.storage", "field can not be less than status.capacity");
    }
}

/// Fields of a volume that are not a source.
const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn source(volume: &Value) -> Value {
    let mut spec = volume["spec"].clone();
    meta::as_map(&mut spec).retain(|field, value| !NO_SOURCE.contains(&field.as_str()) && !value.is_null());
    spec
}

pub(super) fn check_volume(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        faults.add_required("spec.accessModes", "");
    }
    check_access_modes(faults, modes);
    if spec["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
        faults.add_required("spec.capacity", "");
    }
    if spec["capacity"]["storage"].is_null() {
        faults.add_unsupported("spec.capacity", &spec["capacity"], &["storage"]);
    }
    if source(object) == json!({}) {
        faults.add_required("spec", "must specify a volume type");
    }
    let policies = ["Delete", "Recycle", "Retain"];
    faults.check_one_of(spec, "persistentVolumeReclaimPolicy", "spec.persistentVolumeReclaimPolicy", &policies);
}

pub(super) fn check_volume_change(faults: &mut Faults, old: &Value, new: &Value) {
    if source(old) != source(new) {
        let why = "spec.persistentvolumesource is immutable after creation";
        faults.add_forbidden("spec.persistentvolumesource", why);
    }
    let mode = &new["spec"]["volumeMode"];
    if *mode != old["spec"]["volumeMode"] {
        faults.add_invalid("volumeMode", mode, "field is immutable");
    }
}
