//! The Deployment controller: an update that replaces the pods step by step, and the way back.

use fake_nodes::PREFIX;
use serde_json::{Value, json};

use super::{Act, Progress, Sample, SampleContext, Step};
use crate::observed::Observed;

const NAME: &str = "shop";
const REPLICAS: i64 = 3;
const OLD_IMAGE: &str = "example.com/main:1";
const NEW_IMAGE: &str = "example.com/main:2";
/// The revision of the rollback: the first one, with the next number.
const LAST_REVISION: &str = "3";

pub(super) const ROLLOUT: Sample = Sample {
    name: "deployment",
    shows: "a Deployment of three pods: a new image, pod by pod without a gap; then the rollback to the old one",
    needs: &["deployment-controller", "replicaset-controller"],
    objects: |context| {
        let labels = json!({ "app": NAME });
        let annotations = json!({ format!("{PREFIX}start-after"): "300ms", format!("{PREFIX}stop-after"): "300ms" });
        vec![json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "namespace": context.home, "name": NAME },
            "spec": {
                "replicas": REPLICAS, "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels, "annotations": annotations },
                    "spec": { "containers": [{ "name": "main", "image": OLD_IMAGE }] },
                },
            },
        })]
    },
    watched_kinds: &[("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")],
    steps: &[
        Step {
            when: |context, observed| is_rolled_out(context, observed, OLD_IMAGE),
            command: |context| format!("kubectl set image deployment/{NAME} -n {} main={NEW_IMAGE}", context.home),
            act: |context| Act::set_image("Deployment", &context.home, NAME, NEW_IMAGE),
        },
        Step {
            when: |context, observed| is_rolled_out(context, observed, NEW_IMAGE),
            command: |context| format!("kubectl rollout undo deployment/{NAME} -n {}", context.home),
            // The templates of the two revisions differ in the image only.
            act: |context| Act::set_image("Deployment", &context.home, NAME, OLD_IMAGE),
        },
    ],
    progress: |context, observed| {
        let Some(deployment) = deployment(context, observed) else {
            let is_gone = observed.is_gone("Deployment", &context.home, NAME);
            return if is_gone { Progress::failed("deleted") } else { Progress::going("created") };
        };
        let prefix = format!("{NAME}-");
        let sets = observed.named("ReplicaSet", &context.home, &prefix).count();
        let with_image = |image: &str| {
            let pods = observed.named("Pod", &context.home, &prefix);
            pods.filter(|it| image_of(it, "/spec") == image).count()
        };
        let (old, new) = (with_image(OLD_IMAGE), with_image(NEW_IMAGE));
        let revision = deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
        let text = format!(
            "revision {}, {sets} ReplicaSets; {} pods ready; {old} with the old image, {new} with the new",
            revision.unwrap_or("none"),
            count(deployment, "readyReplicas"),
        );
        let is_back = revision == Some(LAST_REVISION) && new == 0 && is_rolled_out(context, observed, OLD_IMAGE);
        if is_back { Progress::done(format!("{text}; rolled back")) } else { Progress::going(text) }
    },
};

/// Whether the template has this image, and all pods come from it and are ready.
fn is_rolled_out(context: &SampleContext, observed: &Observed, image: &str) -> bool {
    deployment(context, observed).is_some_and(|it| {
        let is_observed = it["status"]["observedGeneration"] == it["metadata"]["generation"];
        let counters = ["replicas", "updatedReplicas", "readyReplicas"];
        is_observed
            && image_of(it, "/spec/template/spec") == image
            && counters.iter().all(|field| count(it, field) == REPLICAS)
    })
}

fn deployment<'a>(context: &SampleContext, observed: &'a Observed) -> Option<&'a Value> {
    observed.get("Deployment", &context.home, NAME)
}

/// The image of the only container of a pod or of a template.
fn image_of<'a>(object: &'a Value, spec: &str) -> &'a str {
    object.pointer(&format!("{spec}/containers/0/image")).and_then(Value::as_str).unwrap_or_default()
}

fn count(deployment: &Value, field: &str) -> i64 {
    deployment["status"][field].as_i64().unwrap_or_default()
}
