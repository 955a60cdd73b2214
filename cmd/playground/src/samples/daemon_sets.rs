//! The DaemonSet controller: one pod on each node that allows it, and an update that goes through the nodes.

use fake_nodes::PREFIX;
use serde_json::{Value, json};

use super::{Act, DEDICATED, Progress, Sample, SampleContext, Step};
use crate::observed::Observed;

const NAME: &str = "agent";
const NEW_IMAGE: &str = "example.com/main:2";

pub(super) const ROLLOUT: Sample = Sample {
    name: "daemonset",
    shows: "a DaemonSet: a pod on each node but the tainted one; then a new image, one node after the other",
    needs: &["daemonset-controller"],
    objects: |context| {
        let labels = json!({ "app": NAME });
        let annotations = json!({ format!("{PREFIX}start-after"): "300ms", format!("{PREFIX}stop-after"): "300ms" });
        // Where no node lifecycle controller runs, each node keeps the taint with which it was registered.
        let registered = json!({ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule" });
        vec![json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "namespace": context.home, "name": NAME },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels, "annotations": annotations },
                    "spec": {
                        "tolerations": [registered],
                        "containers": [{ "name": "main", "image": "example.com/main:1" }],
                    },
                },
            },
        })]
    },
    watched_kinds: &[("apps/v1", "DaemonSet")],
    steps: &[Step {
        when: |context, observed| {
            let counters = ["desiredNumberScheduled", "numberReady"];
            set(context, observed).is_some_and(|it| counters.iter().all(|name| count(it, name) == context.open_nodes))
        },
        command: |context| format!("kubectl set image daemonset/{NAME} -n {} main={NEW_IMAGE}", context.home),
        act: |context| Act::set_image("DaemonSet", &context.home, NAME, NEW_IMAGE),
    }],
    progress: |context, observed| {
        let Some(set) = set(context, observed) else {
            let is_gone = observed.is_gone("DaemonSet", &context.home, NAME);
            return if is_gone { Progress::failed("deleted") } else { Progress::going("created") };
        };
        let wanted = context.open_nodes;
        let pods: Vec<&Value> = observed.named("Pod", &context.home, &format!("{NAME}-")).collect();
        let is_new = |it: &&&Value| it["spec"]["containers"][0]["image"] == NEW_IMAGE;
        let (ready, new) = (count(set, "numberReady"), pods.iter().filter(is_new).count());
        let mut text = format!("{ready} of {wanted} ready, {new} pods with the new image");
        if pods.iter().any(|it| is_on_tainted_node(it, observed)) {
            return Progress::failed(format!("{text}; a pod is on the tainted node"));
        }
        if wanted < context.nodes {
            text += ", none on the tainted node";
        }
        let is_whole = [ready, new, pods.len(), count(set, "updatedNumberScheduled")].iter().all(|it| *it == wanted);
        if is_whole { Progress::done(format!("{text}; rolled out")) } else { Progress::going(text) }
    },
};

fn is_on_tainted_node(pod: &Value, observed: &Observed) -> bool {
    let mut nodes = observed.named("Node", "", "");
    nodes.any(|it| it["metadata"]["name"] == pod["spec"]["nodeName"] && it["metadata"]["labels"][DEDICATED] == "true")
}

fn set<'a>(context: &SampleContext, observed: &'a Observed) -> Option<&'a Value> {
    observed.get("DaemonSet", &context.home, NAME)
}

fn count(set: &Value, field: &str) -> usize {
    set["status"][field].as_u64().and_then(|it| it.try_into().ok()).unwrap_or_default()
}
