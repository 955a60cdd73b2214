//! Which revision belongs to the present template, and the template of a revision.

use std::sync::Arc;

use api::ControllerRevision;
use revisions::{find_equal, is_same_data, next_number};
use serde_json::{Map, Value};

/// What to do so that a revision with the present template exists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UpdateRevision {
    /// The newest revision has it.
    Newest {
        /// Its position.
        at: usize,
    },
    /// The revision at this position has it, and gets a new number (a rollback).
    Renumber {
        /// Its position.
        at: usize,
        /// Its new number.
        number: i64,
    },
    /// A revision with this number is created.
    Create {
        /// Its number.
        number: i64,
    },
}

/// Finds the revision of the present template (`getStatefulSetRevisions`). `data` is the data of that template.
/// `semantic` is the feature gate StatefulSetSemanticRevisionComparison.
pub(crate) fn update_revision(sorted: &[Arc<ControllerRevision>], data: &str, semantic: bool) -> UpdateRevision {
    let Some(newest) = sorted.last() else { return UpdateRevision::Create { number: next_number(sorted) } };
    let at = sorted.len() - 1;
    if is_same_data(&newest.data, data) {
        return UpdateRevision::Newest { at };
    }
    if let Some(at) = find_equal(sorted, data).last() {
        return UpdateRevision::Renumber { at: *at, number: next_number(sorted) };
    }
    if semantic && is_same_after_defaults(&newest.data, data) {
        return UpdateRevision::Newest { at };
    }
    UpdateRevision::Create { number: next_number(sorted) }
}

/// Whether the data of an older server has the same meaning as `now`: every difference is a field that is absent in the
/// older data and has its default in `now` (k/k#134773). Upstream applies the older data to the set and sets defaults.
fn is_same_after_defaults(older: &str, now: &str) -> bool {
    match (serde_json::from_str(older), serde_json::from_str(now)) {
        (Ok(older), Ok(now)) => differs_by_defaults(&mut Vec::new(), &older, &now),
        _ => false,
    }
}

/// `path` has the names of the fields in which the values are.
fn differs_by_defaults<'a>(path: &mut Vec<&'a str>, older: &'a Value, now: &'a Value) -> bool {
    match (older, now) {
        (Value::Object(older), Value::Object(now)) => {
            let kept = older.iter().all(|(key, value)| match now.get(key) {
                Some(now) => {
                    path.push(key);
                    let is_same = differs_by_defaults(path, value, now);
                    path.pop();
                    is_same
                }
                None => value.is_null(),
            });
            kept && now.iter().all(|(key, value)| older.contains_key(key) || is_default(path, key, value))
        }
        (Value::Array(older), Value::Array(now)) => {
            let mut pairs = older.iter().zip(now);
            older.len() == now.len() && pairs.all(|(older, now)| differs_by_defaults(path, older, now))
        }
        _ => older == now,
    }
}

/// Whether a server sets this field to this value if it is absent (`pkg/apis/core/v1/defaults.go`). `path` is that of
/// the object in the data of a revision.
fn is_default(path: &[&str], field: &str, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty);
    let (text, number) = (value.as_str(), value.as_i64());
    match path {
        ["spec", "template", "spec"] => match field {
            "restartPolicy" => text == Some("Always"),
            "dnsPolicy" => text == Some("ClusterFirst"),
            "schedulerName" => text == Some("default-scheduler"),
            "terminationGracePeriodSeconds" => number == Some(30),
            "enableServiceLinks" => *value == true,
            "securityContext" => is_empty,
            _ => false,
        },
        ["spec", "template", "spec", "containers" | "initContainers"] => match field {
            "terminationMessagePath" => text == Some("/dev/termination-log"),
            "terminationMessagePolicy" => text == Some("File"),
            "imagePullPolicy" => matches!(text, Some("Always" | "IfNotPresent")),
            "resources" => is_empty,
            _ => false,
        },
        [.., "containers" | "initContainers", "ports"] => field == "protocol" && text == Some("TCP"),
        [.., "livenessProbe" | "readinessProbe" | "startupProbe"] => match field {
            "timeoutSeconds" | "successThreshold" => number == Some(1),
            "periodSeconds" => number == Some(10),
            "failureThreshold" => number == Some(3),
            _ => false,
        },
        [.., "livenessProbe" | "readinessProbe" | "startupProbe" | "postStart" | "preStop", "httpGet"] => match field {
            "path" => text == Some("/"),
            "scheme" => text == Some("HTTP"),
            _ => false,
        },
        [.., "livenessProbe" | "readinessProbe" | "startupProbe", "grpc"] => field == "service" && text == Some(""),
        [.., "valueFrom" | "items", "fieldRef"] => field == "apiVersion" && text == Some("v1"),
        ["spec", "template", "spec", "volumes", "secret" | "configMap" | "downwardAPI" | "projected"] => {
            field == "defaultMode" && number == Some(420)
        }
        ["spec", "template", "spec", "volumes", "hostPath"] => field == "type" && text == Some(""),
        [.., "sources", "serviceAccountToken"] => field == "expirationSeconds" && number == Some(3600),
        _ => false,
    }
}

/// The template of a revision, whose data is a patch that replaces the whole template (`ApplyRevision`). `None` for
/// other data.
pub(crate) fn template(data: &str) -> Option<Map<String, Value>> {
    let mut data: Value = serde_json::from_str(data).ok()?;
    let Value::Object(mut template) = data.pointer_mut("/spec/template")?.take() else { return None };
    (template.remove("$patch")? == "replace").then_some(template)
}

#[cfg(test)]
mod tests {
    use api::{Cached, ControllerRevision};
    use serde_json::json;

    use super::*;

    fn revision(number: i64, data: &Value) -> Arc<ControllerRevision> {
        let object = json!({ "metadata": { "name": format!("web-{number}"), "namespace": "n", "uid": format!("u{number}"),
            "resourceVersion": "1" }, "revision": number, "data": data });
        Arc::new(ControllerRevision::decode_object(object.to_string().as_bytes()).unwrap())
    }

    fn data(template: &Value) -> Value {
        let mut template = template.clone();
        template["$patch"] = "replace".into();
        json!({ "spec": { "template": template } })
    }

    fn image(name: &str) -> Value {
        data(&json!({ "spec": { "containers": [{ "name": "c", "image": name }] } }))
    }

    #[test]
    fn a_new_set_gets_the_first_revision_and_an_unchanged_template_no_other() {
        let (one, two) = (image("1"), image("2"));
        let decide =
            |sorted: &[Arc<ControllerRevision>], data: &Value| update_revision(sorted, &data.to_string(), true);
        assert_eq!(decide(&[], &one), UpdateRevision::Create { number: 1 });
        let all = [revision(1, &one)];
        assert_eq!(decide(&all, &one), UpdateRevision::Newest { at: 0 });
        assert_eq!(decide(&all, &two), UpdateRevision::Create { number: 2 });
        let all = [revision(1, &one), revision(2, &two)];
        assert_eq!(decide(&all, &two), UpdateRevision::Newest { at: 1 });
    }

    #[test]
    fn the_newest_equal_revision_is_renumbered() {
        let all = [revision(1, &image("1")), revision(2, &image("1")), revision(5, &image("2"))];
        let decided = update_revision(&all, &image("1").to_string(), true);
        assert_eq!(decided, UpdateRevision::Renumber { at: 1, number: 6 });
    }

    #[test]
    fn acceptance_sts_036_data_of_an_older_server_is_no_new_revision() {
        let now = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "1",
            "resources": {}, "terminationMessagePolicy": "File", "ports": [{ "containerPort": 80, "protocol": "TCP" }] }],
            "restartPolicy": "Always" } });
        let older = json!({ "metadata": { "labels": { "a": "b" }, "creationTimestamp": null },
            "spec": { "containers": [{ "name": "c", "image": "1", "ports": [{ "containerPort": 80 }] }] } });
        let all = [revision(1, &data(&older))];
        assert_eq!(update_revision(&all, &data(&now).to_string(), true), UpdateRevision::Newest { at: 0 });
        assert_eq!(
            update_revision(&all, &data(&now).to_string(), false),
            UpdateRevision::Create { number: 2 },
            "without the gate"
        );
        let null_only = json!({ "metadata": { "labels": { "a": "b" }, "creationTimestamp": null }, "spec": {} });
        let without = json!({ "metadata": { "labels": { "a": "b" } }, "spec": {} });
        let all = [revision(1, &data(&null_only))];
        assert_eq!(update_revision(&all, &data(&without).to_string(), false), UpdateRevision::Newest { at: 0 });
    }

    #[test]
    fn a_change_that_is_no_default_is_a_new_revision() {
        let template = |extra: Value| {
            let mut template = json!({ "spec": { "containers": [{ "name": "c", "image": "1" }] } });
            for (key, value) in extra.as_object().unwrap() {
                template["spec"][key] = value.clone();
            }
            data(&template).to_string()
        };
        let older = template(json!({}));
        for (extra, same) in [
            (json!({ "dnsPolicy": "ClusterFirst" }), true),
            (json!({ "dnsPolicy": "Default" }), false),
            (json!({ "automountServiceAccountToken": false }), false),
            (json!({ "hostNetwork": true }), false),
            (json!({ "affinity": {} }), false),
            (json!({ "tolerations": [] }), false),
            (json!({ "terminationGracePeriodSeconds": 30 }), true),
            (json!({ "terminationGracePeriodSeconds": 0 }), false),
        ] {
            assert_eq!(is_same_after_defaults(&older, &template(extra.clone())), same, "{extra}");
            // A field that was removed is a change of the user.
            assert!(!is_same_after_defaults(&template(extra.clone()), &older), "{extra}");
        }
    }

    #[test]
    fn a_default_counts_only_in_its_place() {
        let data_of = |spec: Value| data(&json!({ "spec": spec })).to_string();
        let probe = |extra: Value| {
            let mut container = json!({ "name": "c", "livenessProbe": { "httpGet": { "port": 80 } } });
            for (path, value) in extra.as_object().unwrap() {
                *container.pointer_mut(path).unwrap() = value.clone();
            }
            container
        };
        let older = data_of(
            json!({ "initContainers": [{ "name": "i" }], "nodeSelector": {}, "containers": [probe(json!({}))] }),
        );
        let with = |extra: Value| json!({ "/livenessProbe": extra });
        for (now, same) in [
            (
                json!({ "initContainers": [{ "name": "i", "restartPolicy": "Always" }], "nodeSelector": {},
                "containers": [probe(json!({}))] }),
                false,
            ),
            (
                json!({ "initContainers": [{ "name": "i" }], "nodeSelector": { "type": "" },
                "containers": [probe(json!({}))] }),
                false,
            ),
            (
                json!({ "initContainers": [{ "name": "i" }], "nodeSelector": {}, "containers":
                [probe(with(json!({ "httpGet": { "port": 80 }, "terminationGracePeriodSeconds": 30 })))] }),
                false,
            ),
            (
                json!({ "initContainers": [{ "name": "i", "terminationMessagePolicy": "File" }], "nodeSelector": {},
                "containers": [probe(with(json!({ "httpGet": { "port": 80, "path": "/" }, "periodSeconds": 10 })))] }),
                true,
            ),
        ] {
            assert_eq!(is_same_after_defaults(&older, &data_of(now.clone())), same, "{now}");
        }
        let labels = |labels: Value| data(&json!({ "metadata": { "labels": labels } })).to_string();
        assert!(!is_same_after_defaults(&labels(json!({})), &labels(json!({ "protocol": "TCP" }))));
    }

    #[test]
    fn the_template_of_a_revision_is_its_data_without_the_directive() {
        let read = template(&image("1").to_string()).unwrap();
        assert_eq!(Value::Object(read), json!({ "spec": { "containers": [{ "name": "c", "image": "1" }] } }));
        for other in [json!({}), json!({ "spec": { "template": { "spec": {} } } }), json!([])] {
            assert!(template(&other.to_string()).is_none(), "{other}");
        }
    }
}
