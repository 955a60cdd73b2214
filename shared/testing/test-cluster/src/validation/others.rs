//! PodDisruptionBudgets, autoscalers, classes, EndpointSlices, roles.

use serde_json::{Value, json};

use super::{faults::Faults, list, number, text};
use crate::{
    kinds::{self, Kind},
    meta,
};

pub(super) fn check_budget(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let shown = format!(
            r#"{{"MinAvailable":{least},"Selector":{},"MaxUnavailable":{most},"UnhealthyPodEvictionPolicy":{}}}"#,
            spec["selector"], spec["unhealthyPodEvictionPolicy"]
        );
        faults.add_wrong("spec", &format!("{shown}: minAvailable and maxUnavailable cannot be both set"));
    }
    for (value, path) in [(least, "spec.minAvailable"), (most, "spec.maxUnavailable")] {
        faults.check_quantity(value, path);
        faults.check_percentage(value, path);
    }
    faults.check_selector(&spec["selector"], "spec.selector");
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    faults.check_one_of(spec, "unhealthyPodEvictionPolicy", "spec.unhealthyPodEvictionPolicy", &policies);
}

pub(super) fn check_autoscaler(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    let (least, most) = (spec["minReplicas"].as_i64().unwrap_or(1), number(spec, "maxReplicas"));
    if least < 1 {
        faults.add_invalid("spec.minReplicas", &json!(least), "must be greater than or equal to 1");
    }
    if most < 1 {
        faults.add_required("spec.maxReplicas", "must be set and greater than 0");
    }
    if most < least {
        faults.add_invalid("spec.maxReplicas", &json!(most), "must be greater than or equal to `minReplicas`");
    }
    let target = &spec["scaleTargetRef"];
    for field in ["kind", "name"] {
        if text(target, field).is_empty() {
            faults.add_required(format!("spec.scaleTargetRef.{field}"), "");
        }
    }
    // ReplicationControllers have no group.
    if !text(target, "apiVersion").contains('/') && text(target, "kind") != "ReplicationController" {
        let why = "apiVersion must specify API group";
        faults.add_invalid("spec.scaleTargetRef.apiVersion", &json!(text(target, "apiVersion")), why);
    }
    let metrics = list(spec, "metrics");
    for (at, metric) in metrics.iter().enumerate() {
        let kinds = ["ContainerResource", "External", "Object", "Pods", "Resource"];
        faults.check_one_of(metric, "type", &format!("spec.metrics[{at}].type"), &kinds);
    }
    let outside = metrics.iter().any(|it| matches!(text(it, "type"), "Object" | "External"));
    if least == 0 && !outside {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        faults.add_forbidden("spec.metrics", why);
    }
}

pub(super) fn check_priority_class(faults: &mut Faults, object: &Value) {
    const MOST: i64 = 1_000_000_000;
    let name = meta::name(object);
    if name.starts_with("system-") {
        if !matches!(name, "system-node-critical" | "system-cluster-critical") {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a \
                 known system priority class"
            );
            faults.add_forbidden("metadata.name", &why);
        }
    } else if number(object, "value") > MOST {
        faults.add_forbidden("value", &format!("maximum allowed value of a user defined priority is {MOST}"));
    }
    faults.check_one_of(object, "preemptionPolicy", "preemptionPolicy", &["PreemptLowerPriority", "Never"]);
}

pub(super) fn check_priority_class_change(faults: &mut Faults, old: &Value, new: &Value) {
    if number(old, "value") != number(new, "value") {
        faults.add_forbidden("value", "may not be changed in an update.");
    }
    faults.check_immutable(old, new, "preemptionPolicy");
}

pub(super) fn check_storage_class(faults: &mut Faults, object: &Value) {
    if text(object, "provisioner").is_empty() {
        faults.add_required("provisioner", "");
    }
}

pub(super) fn check_endpoint_slice(faults: &mut Faults, object: &Value) {
    match text(object, "addressType") {
        "" => faults.add_required("addressType", ""),
        "FQDN" | "IPv4" | "IPv6" => {}
        other => faults.add_unsupported("addressType", &json!(other), &["FQDN", "IPv4", "IPv6"]),
    }
    for (at, endpoint) in list(object, "endpoints").iter().enumerate() {
        let path = format!("endpoints[{at}].addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            faults.add_required(path.clone(), "must contain at least 1 address");
        }
        let numeric = object["addressType"] != "FQDN";
        for (at, address) in addresses.iter().enumerate().filter(|_| numeric) {
            if address.as_str().is_none_or(|it| it.parse::<std::net::IpAddr>().is_err()) {
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                faults.add_invalid(format!("{path}[{at}]"), address, why);
            }
        }
    }
    let ports = list(object, "ports");
    for (at, port) in ports.iter().enumerate() {
        if ports[..at].iter().any(|it| text(it, "name") == text(port, "name")) {
            faults.add_duplicate(format!("ports[{at}].name"), &json!(text(port, "name")));
        }
    }
}

pub(super) fn check_role(faults: &mut Faults, kind: &Kind, object: &Value) {
    for (at, rule) in list(object, "rules").iter().enumerate() {
        let path = format!("rules[{at}]");
        let paths = list(rule, "nonResourceURLs");
        if list(rule, "verbs").is_empty() {
            faults.add_required(format!("{path}.verbs"), "verbs must contain at least one value");
        }
        if !paths.is_empty() {
            if kind.is(kinds::ROLES) {
                let why = "namespaced rules cannot apply to non-resource URLs";
                faults.add_invalid(format!("{path}.nonResourceURLs"), &json!(paths), why);
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            faults.add_required(format!("{path}.apiGroups"), "resource rules must supply at least one api group");
        }
        if list(rule, "resources").is_empty() {
            faults.add_required(format!("{path}.resources"), "resource rules must supply at least one resource");
        }
    }
}

pub(super) fn check_binding(faults: &mut Faults, object: &Value) {
    let role = &object["roleRef"];
    if !matches!(text(role, "kind"), "Role" | "ClusterRole") {
        faults.add_unsupported("roleRef.kind", &json!(text(role, "kind")), &["Role", "ClusterRole"]);
    }
    if text(role, "name").is_empty() {
        faults.add_required("roleRef.name", "");
    }
    for (at, subject) in list(object, "subjects").iter().enumerate() {
        let path = format!("subjects[{at}]");
        if text(subject, "name").is_empty() {
            faults.add_required(format!("{path}.name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                let everywhere = meta::namespace(object).is_empty();
                if everywhere && text(subject, "namespace").is_empty() {
                    faults.add_required(format!("{path}.namespace"), "");
                }
            }
            "User" | "Group" => {}
            other => {
                faults.add_unsupported(format!("{path}.kind"), &json!(other), &["ServiceAccount", "User", "Group"])
            }
        }
    }
}

pub(super) fn check_binding_change(faults: &mut Faults, old: &Value, new: &Value) {
    let role = &new["roleRef"];
    if *role != old["roleRef"] {
        let shown = format!(r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#, role["apiGroup"], role["kind"], role["name"]);
        faults.add_wrong("roleRef", &format!("{shown}: cannot change roleRef"));
    }
}
