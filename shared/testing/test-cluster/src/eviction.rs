//! Evicting a pod: a delete that checks the PodDisruptionBudgets first.

use std::{
    ops::Bound,
    sync::{Arc, LazyLock},
};

use clock::Timestamp;
use http::Response;
use serde_json::{Value, json};

use crate::{
    Failure, ResponseBody,
    cluster::Shared,
    decode,
    delete::{self, DeleteOptions},
    kinds::{self, Kind},
    label_selector, meta, namespace,
    options::{Verb, WriteOptions},
    pod_status, response,
    rest::Exchange,
    store::State,
    write::{self, Target},
};

const VERSION: &str = "policy/v1";
const OLD_VERSION: &str = "policy/v1beta1";
/// `Retry-After` in seconds while the disruption controller has not processed a budget.
const RETRY: u64 = 10;
/// One budget never has more disrupted pods than this at once.
const MOST_DISRUPTED: usize = 2000;

static EVICTION: LazyLock<Kind> = LazyLock::new(|| kinds::of_subresource("policy", "Eviction"));

/// Serves a POST to `pods/<name>/eviction`.
pub(crate) fn serve(shared: &Shared, exchange: &Exchange, target: &Target) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = WriteOptions::parse(Verb::Create, &exchange.query)?;
    let sent = decode::body(&EVICTION, VERSION, &modern(&exchange.body), options.strictness)?;
    write::check_namespace(target, &sent.object)?;
    if meta::name(&sent.object) != target.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut wanted = DeleteOptions::from_object(&sent.object["deleteOptions"])?;
    wanted.dry_run |= options.dry_run;
    let now = shared.clock.wall();
    shared.state.lock().act(wanted.dry_run, |state| evict(state, target, wanted, now))?;
    Ok(response::warn(response::json_answer(201, &response::created()), &sent.warnings))
}

/// The old version of an Eviction has the same fields.
fn modern(body: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut eviction) if eviction["apiVersion"] == OLD_VERSION => {
            eviction["apiVersion"] = VERSION.into();
            eviction.to_string().into_bytes()
        }
        _ => body.to_vec(),
    }
}

fn evict(state: &mut State, target: &Target, mut options: DeleteOptions, now: Timestamp) -> Result<(), Failure> {
    namespace::admit_create(state, &target.kind, &target.namespace, &target.name)?;
    let pod = target.current(state)?;
    if needs_budget(&pod) {
        use_budget(state, &pod, now)?;
    }
    delete::check_preconditions(&target.kind, &pod, &options)?;
    let mut marked = Value::clone(&pod);
    pod_status::set_condition(&mut marked, "DisruptionTarget", "EvictionByEvictionAPI", "Eviction API: evicting", now);
    if marked != *pod {
        state.put(&target.table, &target.key(), marked)?;
    }
    // The precondition was checked before this eviction changed the pod.
    options.version = None;
    delete::delete(state, target, &options, now).map(drop)
}

/// A pod that is not running, or is being deleted, needs no budget.
fn needs_budget(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed")) && !meta::is_deleting(pod)
}

/// Uses one disruption of the pod's budget, if it has one and needs it.
fn use_budget(state: &mut State, pod: &Value, now: Timestamp) -> Result<(), Failure> {
    let budgets = budgets_of(state, pod);
    let budget = match &budgets[..] {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::internal(why));
        }
    };
    if !pod_status::is_ready(pod) && allows_unready(budget) {
        return Ok(());
    }
    let next = with_disruption(budget, meta::name(pod), now)?;
    let key = format!("{}/{}", meta::namespace(budget), meta::name(budget));
    state.put(kinds::BUDGETS, &key, next).map(drop)
}

fn budgets_of(state: &State, pod: &Value) -> Vec<Arc<Value>> {
    let namespace = meta::namespace(pod);
    let Ok(table) = state.table(kinds::BUDGETS) else { return Vec::new() };
    let prefix = format!("{namespace}/");
    let here = table.objects.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded)).map(|it| it.1);
    let here = here.take_while(|it| it.key.starts_with(&prefix));
    let chosen = |budget: &Value| label_selector::matches(&budget["spec"]["selector"], &pod["metadata"]["labels"]);
    here.map(|it| Arc::new(it.decode())).filter(|it| chosen(it)).collect()
}

/// True when unready pods may be evicted without using the budget.
fn allows_unready(budget: &Value) -> bool {
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let (healthy, desired) = (count("currentHealthy"), count("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (healthy >= desired && desired > 0)
}

/// The budget with one disruption less and with this pod in its status.
fn with_disruption(budget: &Value, pod: &str, now: Timestamp) -> Result<Value, Failure> {
    let name = meta::name(budget);
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(&why, Some(RETRY)));
    }
    let allowed = count("disruptionsAllowed");
    let forbidden = |why: &str| {
        let details = json!({ "name": name, "group": "policy", "kind": "poddisruptionbudgets" });
        let message = format!("poddisruptionbudgets.policy {name:?} is forbidden: {why}");
        Failure::new(403, "Forbidden", message, Some(details))
    };
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    let mut disrupted = budget["status"]["disruptedPods"].as_object().cloned().unwrap_or_default();
    if disrupted.len() > MOST_DISRUPTED {
        return Err(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        let (healthy, desired) = (count("currentHealthy"), count("desiredHealthy"));
        return Err(if healthy <= desired {
            let why = format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
            too_many(&why, None)
        } else {
            too_many(&format!("The disruption budget {name} does not allow evicting pods currently"), None)
        });
    }
    disrupted.insert(pod.to_owned(), meta::stamp(now).into());
    let mut next = budget.clone();
    next["status"]["disruptionsAllowed"] = (allowed - 1).into();
    next["status"]["disruptedPods"] = disrupted.into();
    if allowed == 1 {
        set_exhausted(&mut next, now);
    }
    Ok(next)
}

fn set_exhausted(budget: &mut Value, now: Timestamp) {
    let mut condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": budget["metadata"]["generation"], "lastTransitionTime": meta::stamp(now),
    });
    let list = meta::map(budget, "status").entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    match list.iter_mut().find(|it| it["type"] == "DisruptionAllowed") {
        None => list.push(condition),
        Some(stored) => {
            if stored["status"] == "False" {
                condition["lastTransitionTime"] = stored["lastTransitionTime"].take();
            }
            *stored = condition;
        }
    }
}

fn too_many(why: &str, retry: Option<u64>) -> Failure {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
    if let Some(seconds) = retry {
        details["retryAfterSeconds"] = seconds.into();
    }
    Failure::new(429, "TooManyRequests", message, Some(details))
}
