//! The StatefulSet controller: pods with claims, created and updated in order.

use fake_nodes::PREFIX;
use serde_json::{Value, json};

use super::{Act, Progress, Sample, SampleContext, Step};
use crate::observed::Observed;

const NAME: &str = "ledger";
const REPLICAS: i64 = 2;
const NEW_IMAGE: &str = "example.com/main:2";

pub(super) const ROLLOUT: Sample = Sample {
    name: "statefulset",
    shows: "a StatefulSet of two pods with claims: they start in order, and get a new image from the highest down",
    needs: &["statefulset-controller"],
    objects: |context| {
        let labels = json!({ "app": NAME });
        let annotations = json!({ format!("{PREFIX}start-after"): "300ms", format!("{PREFIX}stop-after"): "300ms" });
        let claim = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        vec![json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "namespace": context.home, "name": NAME },
            "spec": {
                "replicas": REPLICAS, "serviceName": NAME, "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels, "annotations": annotations },
                    "spec": { "containers": [{ "name": "main", "image": "example.com/main:1" }] },
                },
                "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }],
                "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Retain" },
            },
        })]
    },
    watched_kinds: &[("apps/v1", "StatefulSet"), ("v1", "PersistentVolumeClaim")],
    steps: &[Step {
        when: |context, observed| set(context, observed).is_some_and(|it| count(it, "readyReplicas") == REPLICAS),
        command: |context| format!("kubectl set image statefulset/{NAME} -n {} main={NEW_IMAGE}", context.home),
        act: |context| Act::set_image("StatefulSet", &context.home, NAME, NEW_IMAGE),
    }],
    progress: |context, observed| {
        let Some(set) = set(context, observed) else {
            let is_gone = observed.is_gone("StatefulSet", &context.home, NAME);
            return if is_gone { Progress::failed("deleted") } else { Progress::going("created") };
        };
        let claims = observed.named("PersistentVolumeClaim", &context.home, &format!("data-{NAME}-")).count();
        let pods: Vec<&Value> = observed.named("Pod", &context.home, &format!("{NAME}-")).collect();
        let is_new = |it: &&&Value| it["spec"]["containers"][0]["image"] == NEW_IMAGE;
        let (ready, new) = (count(set, "readyReplicas"), pods.iter().filter(is_new).count());
        let text = format!("{ready} of {REPLICAS} ready, {claims} claims, {new} pods with the new image");
        let has_ended = set["status"]["currentRevision"] == set["status"]["updateRevision"] && ready == REPLICAS;
        let is_whole = i64::try_from(new).is_ok_and(|it| it == REPLICAS);
        if is_whole && has_ended { Progress::done(format!("{text}; rolled out")) } else { Progress::going(text) }
    },
};

fn set<'a>(context: &SampleContext, observed: &'a Observed) -> Option<&'a Value> {
    observed.get("StatefulSet", &context.home, NAME)
}

fn count(set: &Value, field: &str) -> i64 {
    set["status"][field].as_i64().unwrap_or_default()
}
