//! Pods and pod templates, whose defaults are nearly the same.

use serde_json::{Value, json};

use super::{each, or, part, protocol, volume, within};

/// A pod: its spec, and the fields that templates do not have.
pub(super) fn pod(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "enableServiceLinks", true);
    let host_network = spec["hostNetwork"] == true;
    for field in ["containers", "initContainers"] {
        each(spec, field, |container| {
            requests_from_limits(container);
            if host_network {
                each(container, "ports", |port| {
                    let number = port["containerPort"].clone();
                    or(port, "hostPort", number);
                });
            }
        });
    }
    pod_spec(spec);
}

/// A template: `metadata` and `spec` of later pods.
pub(super) fn template(template: &mut Value) {
    pod_spec(part(template, "spec"));
}

fn pod_spec(spec: &mut Value) {
    or(spec, "restartPolicy", "Always");
    or(spec, "dnsPolicy", "ClusterFirst");
    or(spec, "terminationGracePeriodSeconds", 30);
    or(spec, "schedulerName", "default-scheduler");
    or(spec, "securityContext", json!({}));
    same(spec, "serviceAccountName", "serviceAccount");
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, field, container);
    }
    each(spec, "volumes", volume::of_pod);
}

/// The old name of a field gets the value of the new one.
fn same(spec: &mut Value, new: &str, old: &str) {
    if let Some(value) = spec.get(old).filter(|it| !it.is_null()).cloned() {
        or(spec, new, value);
    }
    if let Some(value) = spec.get(new).filter(|it| !it.is_null()).cloned() {
        spec[old] = value;
    }
}

fn container(it: &mut Value) {
    or(it, "terminationMessagePath", "/dev/termination-log");
    or(it, "terminationMessagePolicy", "File");
    let policy = if is_latest(it["image"].as_str().unwrap_or_default()) { "Always" } else { "IfNotPresent" };
    or(it, "imagePullPolicy", policy);
    each(it, "ports", protocol);
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        within(it, field, probe);
    }
    within(it, "lifecycle", |it| {
        for hook in ["postStart", "preStop"] {
            within(it, hook, |it| within(it, "httpGet", http_get));
        }
    });
    each(it, "env", |it| within(it, "valueFrom", field_of));
}

/// The default version of a `fieldRef`.
pub(super) fn field_of(source: &mut Value) {
    within(source, "fieldRef", |it| or(it, "apiVersion", "v1"));
}

/// True when the image may change under its name: it has no digest, and no tag or the tag `latest`.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !name.contains('@') && name.split_once(':').is_none_or(|it| it.1 == "latest")
}

fn probe(it: &mut Value) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        or(it, field, value);
    }
    within(it, "httpGet", http_get);
    within(it, "grpc", |it| or(it, "service", ""));
}

fn http_get(it: &mut Value) {
    or(it, "path", "/");
    or(it, "scheme", "HTTP");
}

/// A resource with a limit but without a request gets the limit as its request.
fn requests_from_limits(container: &mut Value) {
    let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    let requests = part(part(container, "resources"), "requests");
    for (resource, amount) in limits {
        or(requests, &resource, amount);
    }
}
