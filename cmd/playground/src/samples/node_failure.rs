//! The node lifecycle and taint eviction controllers: the pods of a node that falls silent are evicted and replaced.

use fake_nodes::PREFIX;
use serde_json::{Value, json};

use super::{Act, FAILING, Operation, Progress, Sample, SampleContext, Step, true_condition};
use crate::observed::Observed;

const NAME: &str = "courier";
const PODS: usize = 4;
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

pub(super) const NODE_FAILURE: Sample = Sample {
    name: "kill-node",
    shows: "a node falls silent: it is tainted, its pods are evicted, and the Job replaces them; then it is back",
    needs: &["taint-eviction-controller"],
    objects: |context| {
        let lines = [("run-for", "25s"), ("start-after", "300ms"), ("stop-after", "300ms")];
        let annotations: serde_json::Map<String, Value> =
            lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
        // Without these the pods would tolerate it for five minutes.
        let briefly =
            json!({ "key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 });
        let failing = json!({ "key": FAILING, "operator": "Exists", "effect": "NoSchedule" });
        // The node that falls silent and one other, so that the first has some of the pods.
        let terms = json!([{ "matchExpressions": [{ "key": FAILING, "operator": "Exists" }] }]);
        let affinity = json!({ "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
        vec![json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "namespace": context.home, "name": NAME },
            "spec": {
                "completions": PODS, "parallelism": PODS,
                // The evicted pods count as failed. Together they would delay their replacements by 80 seconds.
                "completionMode": "Indexed", "backoffLimitPerIndex": 6,
                "template": {
                    "metadata": { "annotations": annotations },
                    "spec": {
                        "restartPolicy": "Never", "tolerations": [briefly, failing], "affinity": affinity,
                        "containers": [{ "name": "main", "image": "example.com/main:1" }],
                    },
                },
            },
        })]
    },
    watched_kinds: &[("batch/v1", "Job")],
    steps: &[
        Step {
            when: |context, observed| {
                let pods = PodCounts::of(context, observed);
                pods.here > 0 && pods.here_running + pods.elsewhere_started == PODS
            },
            command: |context| format!("kubectl annotate node {} {PREFIX}silent=true", context.failing_node),
            act: |context| annotate(context, json!("true")),
        },
        Step {
            when: |context, observed| {
                let pods = PodCounts::of(context, observed);
                pods.evicted > 0 && pods.elsewhere_started == PODS
            },
            command: |context| format!("kubectl annotate node {} {PREFIX}silent-", context.failing_node),
            act: |context| annotate(context, Value::Null),
        },
    ],
    progress: |context, observed| {
        let Some(job) = observed.get("Job", &context.home, NAME) else {
            let is_gone = observed.is_gone("Job", &context.home, NAME);
            return if is_gone { Progress::failed("deleted") } else { Progress::going("created") };
        };
        let node = observed.get("Node", "", &context.failing_node);
        let PodCounts { here, evicted, elsewhere, .. } = PodCounts::of(context, observed);
        let (ready, taints) = (node.map_or("absent", ready_word), node.map(taint_words).unwrap_or_default());
        let is_back = ready == "Ready" && taints.is_empty() && here == 0;
        let tainted = if taints.is_empty() { String::new() } else { format!(", tainted {}", taints.join(" ")) };
        let text = format!(
            "{} {ready}{tainted}; {here} pods on it, {evicted} evicted; {elsewhere} elsewhere; {} of {PODS} succeeded",
            context.failing_node,
            job["status"]["succeeded"].as_u64().unwrap_or_default()
        );
        match (true_condition(job, "Complete"), true_condition(job, "Failed")) {
            (_, Some(failed)) => Progress::failed(format!("{text}; Failed: {}", failed["reason"])),
            (Some(_), None) if is_back => Progress::done(format!("{text}; Complete")),
            _ => Progress::going(text),
        }
    },
};

/// The pods of the Job, on the node that falls silent and elsewhere.
struct PodCounts {
    here: usize,
    here_running: usize,
    /// Those on the node that are being deleted.
    evicted: usize,
    elsewhere: usize,
    /// Those elsewhere that run or have succeeded.
    elsewhere_started: usize,
}

impl PodCounts {
    fn of(context: &SampleContext, observed: &Observed) -> Self {
        let pods: Vec<&Value> = observed.named("Pod", &context.home, &format!("{NAME}-")).collect();
        let (here, elsewhere): (Vec<&Value>, Vec<&Value>) =
            pods.into_iter().partition(|it| it["spec"]["nodeName"] == *context.failing_node);
        let phase = |it: &Value| it["status"]["phase"].as_str().unwrap_or("Pending").to_owned();
        let has_started = |it: &&&Value| matches!(phase(it).as_str(), "Running" | "Succeeded");
        Self {
            here_running: here.iter().filter(|it| phase(it) == "Running").count(),
            evicted: here.iter().filter(|it| it["metadata"]["deletionTimestamp"].is_string()).count(),
            elsewhere_started: elsewhere.iter().filter(has_started).count(),
            here: here.len(),
            elsewhere: elsewhere.len(),
        }
    }
}

fn ready_word(node: &Value) -> &'static str {
    let all = node["status"]["conditions"].as_array();
    match all.into_iter().flatten().find(|it| it["type"] == "Ready").and_then(|it| it["status"].as_str()) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    }
}

/// The taints of the node lifecycle controller, without their prefix.
fn taint_words(node: &Value) -> Vec<String> {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let all = node["spec"]["taints"].as_array().into_iter().flatten();
    let ours = all.filter_map(|it| Some((text(&it["key"]).strip_prefix("node.kubernetes.io/")?.to_owned(), it)));
    ours.map(|(key, it)| format!("{key}:{}", text(&it["effect"]))).collect()
}

fn annotate(context: &SampleContext, value: Value) -> Act {
    Act {
        api_version: "v1",
        kind: "Node",
        namespace: String::new(),
        name: context.failing_node.clone(),
        operation: Operation::Merge(json!({ "metadata": { "annotations": { format!("{PREFIX}silent"): value } } })),
    }
}
