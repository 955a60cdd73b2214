//! Nodes without a controller: pods that complete, crash, and wait for free resources.

use fake_nodes::PREFIX;
use serde_json::{Value, json};

use super::{DEDICATED, Progress, Sample, SampleContext};
use crate::observed::Observed;

pub(super) const COMPLETION: Sample = Sample {
    name: "completion",
    shows: "three pods that run for two seconds and succeed",
    needs: &[],
    objects: |context| {
        let pods = (1..=3).map(|it| pod(context, &format!("task-{it}"), "Never", &[("run-for", "2s"), CREATING]));
        pods.collect()
    },
    watched_kinds: &[],
    steps: &[],
    progress: |context, observed| all_succeed(observed.named("Pod", &context.home, "task-"), 3),
};

pub(super) const CRASHES: Sample = Sample {
    name: "crash-loop",
    shows: "a pod that crashes twice, backs off longer each time, and succeeds",
    needs: &[],
    objects: |context| {
        let lines = [("run-for", "1s"), ("crashes", "2"), ("backoff", "1s"), CREATING];
        vec![pod(context, "flaky", "OnFailure", &lines)]
    },
    watched_kinds: &[],
    steps: &[],
    progress: |context, observed| match observed.get("Pod", &context.home, "flaky") {
        None => gone_or_new(observed, context, "flaky"),
        Some(pod) => {
            let container = &pod["status"]["containerStatuses"][0];
            let restarts = container["restartCount"].as_i64().unwrap_or(0);
            let waiting = container["state"]["waiting"]["reason"].as_str();
            let phase = phase(pod);
            let text = format!("{}, {restarts} restarts", waiting.unwrap_or(phase));
            match phase {
                "Succeeded" => Progress::done(text),
                "Failed" => Progress::failed(text),
                _ => Progress::going(text),
            }
        }
    },
};

pub(super) const CAPACITY: Sample = Sample {
    name: "capacity",
    shows: "big pods: one more than fits, which waits for free resources; one for the tainted node",
    needs: &[],
    objects: |context| {
        let lines = [("run-for", "2s"), CREATING];
        let big = (0..=context.open_nodes).map(|it| {
            let mut pod = pod(context, &format!("big-{it:04}"), "Never", &lines);
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3");
            pod
        });
        let mut pods: Vec<Value> = big.collect();
        if context.open_nodes < context.nodes {
            let mut special = pod(context, "big-special", "Never", &lines);
            special["spec"]["nodeSelector"] = json!({ DEDICATED: "true" });
            special["spec"]["tolerations"] = json!([{ "key": DEDICATED, "operator": "Exists" }]);
            pods.push(special);
        }
        pods
    },
    watched_kinds: &[],
    steps: &[],
    progress: |context, observed| {
        let wanted = context.open_nodes + 1 + usize::from(context.open_nodes < context.nodes);
        let mut progress = all_succeed(observed.named("Pod", &context.home, "big-"), wanted);
        let waits = observed.named("Pod", &context.home, "big-").filter_map(unschedulable).next();
        if let Some(why) = waits {
            progress.text += &format!("; one waits: {why}");
        }
        progress
    },
};

/// A real container needs some time to be created too.
const CREATING: (&str, &str) = ("start-after", "300ms");

/// A pod without an owner, with this script.
pub(super) fn pod(context: &SampleContext, name: &str, policy: &str, lines: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<String, Value> =
        lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": context.home, "name": name, "annotations": annotations },
        "spec": { "restartPolicy": policy, "containers": [{ "name": "main", "image": "example.com/main:1" }] },
    })
}

fn all_succeed<'a>(pods: impl Iterator<Item = &'a Value>, wanted: usize) -> Progress {
    let (mut running, mut succeeded, mut failed) = (0, 0, 0);
    for pod in pods {
        match phase(pod) {
            "Running" => running += 1,
            "Succeeded" => succeeded += 1,
            "Failed" => failed += 1,
            _ => {}
        }
    }
    let text = format!("{succeeded} of {wanted} succeeded, {running} running");
    match (succeeded, failed) {
        (_, 1..) => Progress::failed(format!("{text}, {failed} failed")),
        (all, 0) if all == wanted => Progress::done(text),
        _ => Progress::going(text),
    }
}

fn gone_or_new(observed: &Observed, context: &SampleContext, name: &str) -> Progress {
    if observed.is_gone("Pod", &context.home, name) { Progress::failed("deleted") } else { Progress::going("created") }
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or("Pending")
}

fn unschedulable(pod: &Value) -> Option<&str> {
    let all = pod["status"]["conditions"].as_array()?;
    let scheduled = all.iter().find(|it| it["type"] == "PodScheduled" && it["status"] == "False")?;
    scheduled["message"].as_str()
}
