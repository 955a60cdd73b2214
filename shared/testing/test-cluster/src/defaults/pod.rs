//! Pods and pod templates, whose defaults are nearly the same.

use serde_json::{Value, json};

use super::{ensure_map, fill_protocol, set_default, visit_list, visit_map, volume};

/// A pod: its spec, and the fields that templates do not have.
pub(super) fn fill_pod(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "enableServiceLinks", true);
    let host_network = spec["hostNetwork"] == true;
    for field in ["containers", "initContainers"] {
        visit_list(spec, field, |container| {
            fill_requests_from_limits(container);
            if host_network {
                visit_list(container, "ports", |port| {
                    let number = port["containerPort"].clone();
                    set_default(port, "hostPort", number);
                });
            }
        });
    }
    fill_pod_spec(spec);
}

/// A template: `metadata` and `spec` of later pods.
pub(super) fn fill_template(template: &mut Value) {
    fill_pod_spec(ensure_map(template, "spec"));
}

fn fill_pod_spec(spec: &mut Value) {
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "schedulerName", "default-scheduler");
    set_default(spec, "securityContext", json!({}));
    fill_both_names(spec, "serviceAccountName", "serviceAccount");
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        visit_list(spec, field, fill_container);
    }
    visit_list(spec, "volumes", volume::fill_pod_volume);
}

/// The old name of a field gets the value of the new one.
fn fill_both_names(spec: &mut Value, new: &str, old: &str) {
    if let Some(value) = spec.get(old).filter(|it| !it.is_null()).cloned() {
        set_default(spec, new, value);
    }
    if let Some(value) = spec.get(new).filter(|it| !it.is_null()).cloned() {
        spec[old] = value;
    }
}

fn fill_container(it: &mut Value) {
    set_default(it, "terminationMessagePath", "/dev/termination-log");
    set_default(it, "terminationMessagePolicy", "File");
    let policy = if is_latest(it["image"].as_str().unwrap_or_default()) { "Always" } else { "IfNotPresent" };
    set_default(it, "imagePullPolicy", policy);
    visit_list(it, "ports", fill_protocol);
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        visit_map(it, field, fill_probe);
    }
    visit_map(it, "lifecycle", |it| {
        for hook in ["postStart", "preStop"] {
            visit_map(it, hook, |it| visit_map(it, "httpGet", fill_http_get));
        }
    });
    visit_list(it, "env", |it| visit_map(it, "valueFrom", fill_field_ref));
}

/// The default version of a `fieldRef`.
pub(super) fn fill_field_ref(source: &mut Value) {
    visit_map(source, "fieldRef", |it| set_default(it, "apiVersion", "v1"));
}

/// True when the image may change under its name: it has no digest, and no tag or the tag `latest`.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !name.contains('@') && name.split_once(':').is_none_or(|it| it.1 == "latest")
}

fn fill_probe(it: &mut Value) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        set_default(it, field, value);
    }
    visit_map(it, "httpGet", fill_http_get);
    visit_map(it, "grpc", |it| set_default(it, "service", ""));
}

fn fill_http_get(it: &mut Value) {
    set_default(it, "path", "/");
    set_default(it, "scheme", "HTTP");
}

/// A resource with a limit but without a request gets the limit as its request.
fn fill_requests_from_limits(container: &mut Value) {
    let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let requests = ensure_map(ensure_map(container, "resources"), "requests");
    for (resource, amount) in limits {
        set_default(requests, &resource, amount);
    }
}
