//! The result of a workload, without what differs between any two runs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    observed_objects::{Kind, NamespaceObjects, ObservedObject},
    times::Zero,
};
use crate::fields::{is_deleting, name, text};

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The prefix of the script keys of pods.
const SCRIPT: &str = fake_nodes::PREFIX;
/// Topology labels of nodes, which the API server copies to their pods.
const TOPOLOGY: &str = "topology.kubernetes.io/";
/// The length of the suffix of generated names.
const SUFFIX: usize = 5;

/// The result of a workload: its object, pods, Jobs and events. `leave_out` has reasons of events to omit, or
/// `gone-pods`.
#[must_use]
pub fn comparable(objects: &NamespaceObjects, kind: Kind, own: &str, zero: Zero, leave_out: &[String]) -> Value {
    let seen = objects.seen();
    let replacements = Replacements::from_objects(&seen, own, zero);
    let of = |kind: Kind, gone: bool| seen.iter().filter(move |it| it.kind == kind && it.gone == gone);
    let left_out = |what: &str| leave_out.iter().any(|it| it == what);
    let is_own = |it: &ObservedObject| it.kind == kind && name(&it.last) == own;

    let object = of(kind, false).find(|it| is_own(it));
    let object = object.map_or_else(|| json!("gone"), |it| replacements.whole(&it.last));
    let pods = grouped(of(Kind::Pod, false).map(|it| replacements.pod(&it.last)));
    let gone_pods = grouped(of(Kind::Pod, true).map(|it| replacements.new_pod(&it.first)));
    let jobs = grouped(of(Kind::Job, false).filter(|it| !is_own(it)).map(|it| replacements.job(&it.last)));
    let gone_jobs = grouped(of(Kind::Job, true).filter(|it| !is_own(it)).map(|it| replacements.new_job(&it.first)));
    let mut whole = Map::new();
    whole.insert("object".to_owned(), object);
    for (key, list) in [("pods", pods), ("gone-pods", gone_pods), ("jobs", jobs), ("gone-jobs", gone_jobs)] {
        if !list.is_empty() && !left_out(key) {
            whole.insert(key.to_owned(), Value::Array(list));
        }
    }
    let events = of(Kind::Event, false).map(|it| &it.last).filter(|it| !left_out(text(&it["reason"])));
    whole.insert("events".to_owned(), Value::Array(replacements.events(events)));
    Value::Object(whole)
}

/// Equal ones are counted together.
fn grouped(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut times: BTreeMap<String, (u64, Value)> = BTreeMap::new();
    for item in items {
        times.entry(item.to_string()).or_insert((0, item)).0 += 1;
    }
    let with_times = |(times, mut item): (u64, Value)| {
        item["times"] = json!(times);
        item
    };
    times.into_values().map(with_times).collect()
}

/// The replacements for values that servers and controllers choose.
struct Replacements {
    /// The texts to replace, the longest first.
    replaced: Vec<(String, String)>,
    own: String,
    zero: Zero,
}

impl Replacements {
    fn from_objects(seen: &[ObservedObject], own: &str, zero: Zero) -> Self {
        let mut replaced = BTreeSet::new();
        for it in seen {
            let meta = &it.first["metadata"];
            let mut called = text(&meta["name"]).to_owned();
            if let Some(generated) = meta["generateName"].as_str() {
                called = format!("{generated}*");
                replaced.insert((text(&meta["name"]).to_owned(), called.clone()));
            } else if it.kind == Kind::Job
                && let Some((prefix, number)) = called.clone().rsplit_once('-')
                && let Some(minutes) = zero.relative_number(number)
            {
                replaced.insert((called, format!("{prefix}-{minutes}")));
                called = format!("{prefix}-{minutes}");
            }
            if it.kind != Kind::Event {
                replaced.insert((text(&meta["uid"]).to_owned(), format!("<uid of {:?} {called}>", it.kind)));
            }
        }
        let mut replaced: Vec<_> = replaced.into_iter().filter(|(it, _)| !it.is_empty()).collect();
        replaced.sort_by_key(|(it, _)| std::cmp::Reverse(it.len()));
        Self { replaced, own: own.to_owned(), zero }
    }

    fn replace_names(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, word) in &self.replaced {
            text = text.replace(name, word);
        }
        self.unseen_pods(&text)
    }

    /// Replaces the names of pods that were refused and so never observed.
    fn unseen_pods(&self, text: &str) -> String {
        let begins = format!("\"{}-", self.own);
        let Some((before, rest)) = text.split_once(&begins) else { return text.to_owned() };
        match rest.split_at_checked(SUFFIX) {
            Some((_, behind)) if behind.starts_with('"') => format!("{before}{begins}*{}", self.unseen_pods(behind)),
            _ => text.to_owned(),
        }
    }

    fn value(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::String(text) if key == SCHEDULED || key == "lastScheduleTime" => {
                Value::String(self.zero.relative(text).unwrap_or_else(|| text.clone()))
            }
            Value::String(text) if text.contains('T') && text.parse::<Timestamp>().is_ok() => json!("<time>"),
            Value::String(text) if key == "uid" && self.replace_names(text) == *text => json!("<uid>"),
            Value::String(text) => Value::String(self.replace_names(text)),
            Value::Array(items) => items.iter().map(|it| self.value(key, it)).collect(),
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| {
                    let dropped = ["managedFields", "resourceVersion", "observedGeneration"];
                    !dropped.contains(&key.as_str()) && !key.starts_with(SCRIPT) && !key.starts_with(TOPOLOGY)
                });
                kept.map(|(key, it)| (self.replace_names(key), self.value(key, it))).collect()
            }
            other => other.clone(),
        }
    }

    /// The fields of the metadata that controllers write.
    fn meta(&self, object: &Value, fields: &[&str]) -> Map<String, Value> {
        let meta = &object["metadata"];
        let mut kept = Map::new();
        for field in fields {
            let value = self.value(field, &meta[*field]);
            let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
            if !is_empty {
                kept.insert((*field).to_owned(), value);
            }
        }
        kept
    }

    fn whole(&self, object: &Value) -> Value {
        let mut kept = self.meta(object, &["finalizers"]);
        if is_deleting(object) {
            kept.insert("deleting".to_owned(), json!(true));
        }
        kept.insert("status".to_owned(), self.value("status", &object["status"]));
        Value::Object(kept)
    }

    /// A pod as it was created.
    fn new_pod(&self, pod: &Value) -> Value {
        let mut kept = self.meta(pod, &["generateName", "labels", "annotations", "ownerReferences"]);
        let hostname = &pod["spec"]["hostname"];
        if !hostname.is_null() {
            kept.insert("hostname".to_owned(), self.value("", hostname));
        }
        let mut env = Map::new();
        for list in ["initContainers", "containers"] {
            for container in pod["spec"][list].as_array().into_iter().flatten().filter(|it| !it["env"].is_null()) {
                env.insert(text(&container["name"]).to_owned(), self.value("", &container["env"]));
            }
        }
        if !env.is_empty() {
            kept.insert("env".to_owned(), Value::Object(env));
        }
        Value::Object(kept)
    }

    fn pod(&self, pod: &Value) -> Value {
        let mut kept = self.new_pod(pod);
        kept["phase"] = pod["status"]["phase"].clone();
        if !pod["metadata"]["finalizers"].is_null() {
            kept["finalizers"] = pod["metadata"]["finalizers"].clone();
        }
        if is_deleting(pod) {
            kept["deleting"] = json!(true);
        }
        kept
    }

    /// A Job as it was created.
    fn new_job(&self, job: &Value) -> Value {
        let fields = ["name", "labels", "annotations", "ownerReferences"];
        let mut kept = Value::Object(self.meta(job, &fields));
        kept["spec"] = self.value("", &job["spec"]);
        kept
    }

    fn job(&self, job: &Value) -> Value {
        let mut kept = self.new_job(job);
        kept["left"] = self.whole(job);
        kept
    }

    /// A time at the end of a message is a time of the schedule.
    fn message(&self, text: &str) -> String {
        let at = text.rsplit_once(": ").and_then(|(before, at)| {
            let time = jiff::fmt::rfc2822::parse(at).ok()?.timestamp();
            Some(format!("{before}: {}", self.zero.relative(&time.to_string())?))
        });
        at.unwrap_or_else(|| self.replace_names(text))
    }

    /// Events that differ only in replaced values are counted together.
    fn events<'a>(&self, events: impl Iterator<Item = &'a Value>) -> Vec<Value> {
        let mut counts: BTreeMap<String, (u64, Value)> = BTreeMap::new();
        for event in events {
            let about = &event["involvedObject"];
            // Many similar events are combined into one, with this text before the last message.
            let text_of_event = text(&event["message"]);
            let message = text_of_event.strip_prefix("(combined from similar events): ");
            let described = json!({
                "type": event["type"],
                "reason": event["reason"],
                "message": self.message(message.unwrap_or(text_of_event)),
                "from": event["source"]["component"],
                // Upstream omits the reporting component of combined events.
                "reporting": if message.is_some() { &event["source"]["component"] } else { &event["reportingComponent"] },
                "about": format!("{} {}", text(&about["kind"]), self.replace_names(text(&about["name"]))),
            });
            let count = event["count"].as_u64().unwrap_or(1);
            counts.entry(described.to_string()).or_insert((0, described)).0 += count;
        }
        let with_count = |(count, mut event): (u64, Value)| {
            event["count"] = json!(count);
            event
        };
        counts.into_values().map(with_count).collect()
    }
}
