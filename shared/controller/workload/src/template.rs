use std::fmt::Write as _;

use serde_json::{Map, Value, json, value::RawValue};

use crate::Owner;

/// A pod template of an owner, parsed once for many pods.
///
/// Labels, annotations, finalizers and spec are copied unchanged, including unknown fields. Other metadata of the
/// template is ignored.
#[derive(Debug, Clone)]
pub struct PodTemplate {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    finalizers: Vec<Value>,
    spec: Map<String, Value>,
}

/// The template cannot be used for pods.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It has no labels, so no selector would find its pods.
    #[error("unable to create pods, no labels")]
    NoLabels,
    /// It does not decode.
    #[error("the pod template does not decode")]
    Decode(#[source] serde_json::Error),
}

/// The fields of one pod that are not in the template.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodFields<'a> {
    /// The prefix of its name, see [`Owner::generate_name`].
    pub generate_name: &'a str,
    /// Its name; empty if the server chooses it.
    pub name: &'a str,
    /// Further labels.
    pub labels: &'a [(&'a str, &'a str)],
    /// Further annotations.
    pub annotations: &'a [(&'a str, &'a str)],
    /// `spec.hostname`.
    pub hostname: Option<&'a str>,
    /// `spec.affinity`, which the template must not have, see [`PodTemplate::take_affinity`].
    pub affinity: Option<&'a Value>,
}

/// A template with all fields that the pods of one owner share, as text. So only the metadata of each pod must be
/// encoded.
#[derive(Debug, Clone)]
pub struct PreparedTemplate {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    finalizers: Vec<Value>,
    owner: Value,
    /// The members of `spec`, without the braces.
    spec: Box<str>,
    /// The same without `hostname`.
    spec_without_hostname: Box<str>,
}

impl PodTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// If it does not decode or has no labels.
    pub fn parse(raw: &RawValue) -> Result<Self, TemplateError> {
        let parsed = Self::from_fields(serde_json::from_str(raw.get()).map_err(TemplateError::Decode)?);
        if parsed.labels.is_empty() { Err(TemplateError::NoLabels) } else { Ok(parsed) }
    }

    /// Takes a parsed template, which may have no labels.
    #[must_use]
    pub fn from_fields(mut template: Map<String, Value>) -> Self {
        let mut metadata = object(template.remove("metadata"));
        let labels = object(metadata.remove("labels"));
        let finalizers = match metadata.remove("finalizers") {
            Some(Value::Array(finalizers)) => finalizers,
            _ => Vec::new(),
        };
        let annotations = object(metadata.remove("annotations"));
        Self { labels, annotations, finalizers, spec: object(template.remove("spec")) }
    }

    /// Adds an environment variable with the value of a pod label to every container and init container, unless there
    /// is one of that name.
    pub fn set_env_from_label(&mut self, name: &str, label: &str) {
        let source = json!({ "fieldRef": { "fieldPath": format!("metadata.labels['{label}']") } });
        for list in ["initContainers", "containers"] {
            let containers = self.spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for container in containers.filter_map(Value::as_object_mut) {
                let env = container.entry("env").or_insert_with(|| json!([]));
                if env.is_null() {
                    *env = json!([]);
                }
                if let Value::Array(env) = env
                    && !env.iter().any(|it| it["name"] == name)
                {
                    env.push(json!({ "name": name, "valueFrom": source }));
                }
            }
        }
    }

    /// Sets `spec.subdomain`, also to nothing.
    pub fn set_subdomain(&mut self, subdomain: &str) {
        if subdomain.is_empty() {
            self.spec.remove("subdomain");
        } else {
            self.spec.insert("subdomain".to_owned(), subdomain.into());
        }
    }

    /// Adds a toleration of a taint with any value and without a limit of time. It replaces one that differs only in the
    /// limit (`v1helper.AddOrUpdateTolerationInPodSpec`).
    pub fn tolerate(&mut self, key: &str, effect: &str) {
        let added = json!({ "key": key, "operator": "Exists", "effect": effect });
        let tolerations = self.spec.entry("tolerations").or_insert_with(|| json!([]));
        if tolerations.is_null() {
            *tolerations = json!([]);
        }
        let Value::Array(tolerations) = tolerations else { return };
        let has_no_value = |it: &Value| it["value"].as_str().is_none_or(str::is_empty);
        let is_same = |it: &Value| ["key", "operator", "effect"].iter().all(|field| it[*field] == added[*field]);
        let is_known = |it: &Value| is_same(it) && has_no_value(it);
        let at = tolerations.iter().position(is_known).unwrap_or(tolerations.len());
        tolerations.retain(|it| !is_known(it));
        tolerations.insert(at, added);
    }

    /// Removes and returns `spec.affinity`, because each pod gets its own.
    pub fn take_affinity(&mut self) -> Map<String, Value> {
        object(self.spec.remove("affinity"))
    }

    /// Puts volumes before those of the template. They replace volumes of the same names.
    pub fn put_volumes(&mut self, mut volumes: Vec<Value>) {
        if volumes.is_empty() {
            return;
        }
        if let Some(Value::Array(others)) = self.spec.remove("volumes") {
            let is_replaced = |other: &Value| volumes.iter().any(|it| it["name"] == other["name"]);
            let others: Vec<Value> = others.into_iter().filter(|it| !is_replaced(it)).collect();
            volumes.extend(others);
        }
        self.spec.insert("volumes".to_owned(), volumes.into());
    }

    /// Prepares the template for the pods of `owner`, and adds its finalizer.
    #[must_use]
    pub fn prepare(self, owner: &Owner) -> PreparedTemplate {
        let Self { labels, annotations, mut finalizers, mut spec } = self;
        if let Some(finalizer) = owner.finalizer
            && !finalizers.iter().any(|it| it == finalizer)
        {
            finalizers.push(finalizer.into());
        }
        let whole = members(&spec);
        spec.remove("hostname");
        let spec_without_hostname = members(&spec);
        let owner = owner.controller_reference();
        PreparedTemplate { labels, annotations, finalizers, owner, spec: whole, spec_without_hostname }
    }
}

impl PreparedTemplate {
    /// The request body of one pod.
    ///
    /// # Errors
    /// Never for a parsed template.
    pub fn pod(&self, fields: PodFields<'_>) -> Result<Box<RawValue>, serde_json::Error> {
        let PodFields { generate_name, name, labels, annotations, hostname, affinity } = fields;
        let mut metadata = Map::new();
        metadata.insert("generateName".to_owned(), generate_name.into());
        if !name.is_empty() {
            metadata.insert("name".to_owned(), name.into());
        }
        metadata.insert("labels".to_owned(), merged(&self.labels, labels));
        if !self.annotations.is_empty() || !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), merged(&self.annotations, annotations));
        }
        if !self.finalizers.is_empty() {
            metadata.insert("finalizers".to_owned(), self.finalizers.clone().into());
        }
        metadata.insert("ownerReferences".to_owned(), json!([self.owner]));
        let mut body = r#"{"apiVersion":"v1","kind":"Pod","metadata":"#.to_owned();
        body.push_str(&serde_json::to_string(&metadata)?);
        body.push_str(r#","spec":{"#);
        let shared = if hostname.is_some() { &self.spec_without_hostname } else { &self.spec };
        let hostname = hostname.map(|it| ("hostname", Value::from(it)));
        let own = hostname.into_iter().chain(affinity.map(|it| ("affinity", it.clone())));
        let mut comma = "";
        for (field, value) in own {
            // Writing into a string cannot fail.
            let _ = write!(body, r#"{comma}"{field}":{value}"#);
            comma = ",";
        }
        if !shared.is_empty() {
            body.push_str(comma);
            body.push_str(shared);
        }
        body.push_str("}}");
        RawValue::from_string(body)
    }
}

impl Owner {
    /// The prefix of its pods' names: its own name and a dash. If that is longer than a name may be, the dash is
    /// omitted.
    #[must_use]
    pub fn generate_name(&self) -> String {
        /// The longest name of a pod.
        const MAX_NAME: usize = 253;
        let dash = if self.name.len() < MAX_NAME { "-" } else { "" };
        format!("{}{dash}", self.name)
    }
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn merged(common: &Map<String, Value>, own: &[(&str, &str)]) -> Value {
    let mut all = common.clone();
    for (key, value) in own {
        all.insert((*key).to_owned(), (*value).into());
    }
    all.into()
}

/// The JSON text of an object without the braces.
fn members(object: &Map<String, Value>) -> Box<str> {
    let text = Value::Object(object.clone()).to_string();
    text.strip_prefix('{').and_then(|it| it.strip_suffix('}')).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use api::{Meta, Resource, Uid};

    use super::*;

    fn owner(name: &str) -> Owner {
        let meta = Meta { name: name.into(), namespace: "n".into(), uid: Uid::new("u"), ..Meta::default() };
        let resource = Resource::namespaced("batch", "v1", "jobs", "Job");
        Owner::new(resource, meta.as_ref(), Some("example.com/ours"))
    }

    fn template(value: &Value) -> Result<PodTemplate, TemplateError> {
        PodTemplate::parse(&RawValue::from_string(value.to_string()).unwrap())
    }

    fn made(prepared: &PreparedTemplate, fields: PodFields<'_>) -> Value {
        serde_json::from_str(prepared.pod(fields).unwrap().get()).unwrap()
    }

    #[test]
    fn a_pod_has_the_template_fields_and_its_owner_reference() {
        let template = template(&json!({
            "metadata": { "name": "not this", "namespace": "nor this", "creationTimestamp": null,
                "labels": { "app": "x" }, "annotations": { "a": "b" }, "finalizers": ["foo/bar"] },
            "spec": { "restartPolicy": "Never", "hostname": "own", "fieldFromTomorrow": { "x": [1, 2.5] },
                "containers": [{ "name": "{c}" }] },
        }));
        let prepared = template.unwrap().prepare(&owner("job"));
        let want = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": "job-", "labels": { "app": "x" }, "annotations": { "a": "b" },
                "finalizers": ["foo/bar", "example.com/ours"],
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true }],
            },
            "spec": { "restartPolicy": "Never", "hostname": "own", "fieldFromTomorrow": { "x": [1, 2.5] },
                "containers": [{ "name": "{c}" }] },
        });
        assert_eq!(made(&prepared, PodFields { generate_name: "job-", ..PodFields::default() }), want);
        let fields = PodFields {
            generate_name: "job-3-",
            labels: &[("index", "3")],
            annotations: &[("index", "3"), ("a", "own")],
            hostname: Some("job-3"),
            ..PodFields::default()
        };
        let indexed = made(&prepared, fields);
        assert_eq!(indexed["metadata"]["labels"], json!({ "app": "x", "index": "3" }));
        assert_eq!(indexed["metadata"]["annotations"], json!({ "a": "own", "index": "3" }));
        assert_eq!(indexed["spec"]["hostname"], "job-3");
        assert_eq!(indexed["spec"]["containers"], want["spec"]["containers"]);
    }

    #[test]
    fn an_existing_finalizer_is_not_added_twice_and_an_empty_spec_is_valid() {
        let template =
            template(&json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["example.com/ours"] } })).unwrap();
        let prepared = template.prepare(&owner("job"));
        let pod = made(&prepared, PodFields { hostname: Some("h"), ..PodFields::default() });
        assert_eq!(pod["metadata"]["finalizers"], json!(["example.com/ours"]));
        assert_eq!(pod["metadata"].get("annotations"), None);
        assert_eq!(pod["spec"], json!({ "hostname": "h" }));
        assert_eq!(made(&prepared, PodFields::default())["spec"], json!({}));
    }

    #[test]
    fn acceptance_common_053_an_added_toleration_replaces_one_with_a_limit() {
        let limited = json!({ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
        let equal = json!({ "key": "k", "operator": "Equal", "effect": "NoExecute" });
        let of = |tolerations: Value| {
            let metadata = json!({ "labels": { "a": "b" } });
            let spec = json!({ "tolerations": tolerations });
            let mut template = template(&json!({ "metadata": metadata, "spec": spec })).unwrap();
            template.tolerate("k", "NoExecute");
            made(&template.prepare(&owner("ds")), PodFields::default())["spec"]["tolerations"].clone()
        };
        let added = json!({ "key": "k", "operator": "Exists", "effect": "NoExecute" });
        assert_eq!(of(json!([limited])), json!([added]));
        assert_eq!(of(json!([limited, equal, limited])), json!([added, equal]), "each of them");
        assert_eq!(of(json!([equal])), json!([equal, added]), "another operator");
        assert_eq!(of(Value::Null), json!([added]));
    }

    #[test]
    fn each_pod_may_have_its_own_affinity() {
        let spec = json!({ "hostname": "h", "affinity": { "podAffinity": {} } });
        let mut template = template(&json!({ "metadata": { "labels": { "a": "b" } }, "spec": spec })).unwrap();
        assert_eq!(Value::from(template.take_affinity()), json!({ "podAffinity": {} }));
        let prepared = template.prepare(&owner("ds"));
        let own = json!({ "nodeAffinity": {} });
        let pod = made(&prepared, PodFields { affinity: Some(&own), ..PodFields::default() });
        assert_eq!(pod["spec"], json!({ "affinity": own, "hostname": "h" }));
        let both = made(&prepared, PodFields { affinity: Some(&own), hostname: Some("x"), ..PodFields::default() });
        assert_eq!(both["spec"], json!({ "affinity": own, "hostname": "x" }));
    }

    #[test]
    fn acceptance_common_043_a_template_without_labels_is_an_error() {
        for metadata in [json!({}), json!({ "labels": {} }), json!({ "labels": null }), Value::Null] {
            let err = template(&json!({ "metadata": metadata, "spec": {} })).unwrap_err();
            assert_eq!(err.to_string(), "unable to create pods, no labels");
        }
    }

    #[test]
    fn every_container_gets_the_variable_unless_it_has_one_of_that_name() {
        let mut template = template(&json!({
            "metadata": { "labels": { "a": "b" } },
            "spec": {
                "initContainers": [{ "name": "i", "env": null }],
                "containers": [{ "name": "c", "env": [{ "name": "X", "value": "y" }] },
                    { "name": "d", "env": [{ "name": "INDEX", "value": "mine" }] }],
            },
        }))
        .unwrap();
        template.set_env_from_label("INDEX", "example.com/index");
        let pod = made(&template.prepare(&owner("job")), PodFields::default());
        let ours = json!({ "name": "INDEX",
            "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['example.com/index']" } } });
        assert_eq!(pod["spec"]["initContainers"][0]["env"], json!([ours]));
        assert_eq!(pod["spec"]["containers"][0]["env"], json!([{ "name": "X", "value": "y" }, ours]));
        assert_eq!(pod["spec"]["containers"][1]["env"], json!([{ "name": "INDEX", "value": "mine" }]));
    }

    #[test]
    fn a_pod_with_an_identity_has_its_name_domain_and_volumes() {
        let mut template = template(&json!({
            "metadata": { "labels": { "a": "b" } },
            "spec": { "hostname": "other", "subdomain": "other",
                "volumes": [{ "name": "data", "emptyDir": {} }, { "name": "tmp", "emptyDir": {} }] },
        }))
        .unwrap();
        let claim = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data-web-0" } });
        template.put_volumes(vec![claim.clone()]);
        template.set_subdomain("svc");
        let fields = PodFields { name: "web-0", hostname: Some("web-0"), ..PodFields::default() };
        let pod = made(&template.clone().prepare(&owner("web")), fields);
        assert_eq!((&pod["metadata"]["name"], &pod["spec"]["hostname"]), (&json!("web-0"), &json!("web-0")));
        assert_eq!(pod["spec"]["subdomain"], "svc");
        assert_eq!(pod["spec"]["volumes"], json!([claim, { "name": "tmp", "emptyDir": {} }]));
        template.set_subdomain("");
        template.put_volumes(Vec::new());
        let pod = made(&template.prepare(&owner("web")), fields);
        assert_eq!((&pod["spec"]["subdomain"], pod["spec"]["volumes"].as_array().unwrap().len()), (&Value::Null, 2));
    }

    #[test]
    fn pod_names_begin_with_the_owner_name_and_a_dash_if_it_fits() {
        assert_eq!(owner("job").generate_name(), "job-");
        assert_eq!(owner(&"a".repeat(252)).generate_name().len(), 253);
        assert_eq!(owner(&"a".repeat(253)).generate_name().len(), 253);
    }
}
