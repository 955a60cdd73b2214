use std::sync::Arc;

use clock::Timestamp;
use serde_json::Value;

use crate::{
    Failure, crd, json_patch,
    kinds::{self, Kind},
    meta, namespace, options,
    reader::{self, Notes, Wrong},
    response::Fault,
    rest::Query,
    schema,
    store::State,
    write::Target,
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The options of a DELETE.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<String>,
    pub(crate) orphan: Option<bool>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
}

/// The result of a delete.
#[derive(Debug, Clone)]
pub(crate) enum Deleted {
    /// It was removed: its last state, with the version of the removal.
    Gone(Arc<Value>),
    /// It remains until its grace period ends or its finalizers are removed.
    Remains(Arc<Value>),
}

impl DeleteOptions {
    /// From the body, or from the query if there is no body.
    ///
    /// # Errors
    /// 400 and 422, as a real server returns them.
    pub(crate) fn parse(body: &[u8], query: &Query) -> Result<Self, Failure> {
        if body.is_empty() {
            return Self::from_query(query)?.checked();
        }
        let body: Value = serde_json::from_slice(body).map_err(|err| unreadable(&err.to_string()))?;
        if !body.is_object() && !body.is_null() {
            let shape = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                         \"json:\\\"kind,omitempty\\\"\" }";
            let word = json_patch::word(&body);
            return Err(unreadable(&format!("json: cannot unmarshal {word} into Go value of type {shape}")));
        }
        let said = |field: &str, otherwise: &'static str| body[field].as_str().unwrap_or(otherwise).to_owned();
        let kind = said("kind", "DeleteOptions");
        if kind != "DeleteOptions" {
            let version = said("apiVersion", "meta.k8s.io/v1");
            let why = format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \
                 \"pkg/apis/meta/internalversion/scheme/register.go:27\""
            );
            return Err(Failure::bad_request(why));
        }
        Self::from_object(&body)
    }

    /// From an object of any kind, or from null.
    ///
    /// # Errors
    /// 400 and 422, as a real server returns them.
    pub(crate) fn from_object(object: &Value) -> Result<Self, Failure> {
        let read = schema::named("meta.DeleteOptions").map(|it| reader::read(it, object));
        let object = match read {
            Some((Ok(object), _)) => object,
            Some((Err(_), Notes { wrong: Some(Wrong::Inside(why)), .. })) => return Err(Failure::bad_request(why)),
            _ => Value::Null,
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let preconditions = &object["preconditions"];
        Self {
            grace: object["gracePeriodSeconds"].as_i64(),
            propagation: text(&object["propagationPolicy"]),
            orphan: object["orphanDependents"].as_bool(),
            uid: text(&preconditions["uid"]),
            version: text(&preconditions["resourceVersion"]),
            dry_run: dry_run(&meta::texts(&object, "dryRun"))?,
        }
        .checked()
    }

    fn from_query(query: &Query) -> Result<Self, Failure> {
        let given = |key: &str| query.has(key).then(|| query.get(key).to_owned());
        Ok(Self {
            grace: query.number("gracePeriodSeconds")?,
            propagation: given("propagationPolicy"),
            orphan: query.has("orphanDependents").then(|| query.flag("orphanDependents")),
            uid: None,
            version: None,
            dry_run: dry_run(&query.all("dryRun"))?,
        })
    }

    fn checked(self) -> Result<Self, Failure> {
        let named = self.propagation.as_deref();
        if let Some(other) = named.filter(|it| !matches!(*it, "Foreground" | "Background" | "Orphan")) {
            let supported = r#""Foreground", "Background", "Orphan", "nil""#;
            let fault = Fault::unsupported("propagationPolicy", other, supported);
            return Err(Failure::invalid_options("DeleteOptions", fault));
        }
        if let (Some(policy), Some(_)) = (named, self.orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let fault = Fault::invalid("propagationPolicy", &Value::from(policy), why);
            return Err(Failure::invalid_options("DeleteOptions", fault));
        }
        Ok(self)
    }

    /// Warnings for a delete of this kind with these options.
    pub(crate) fn warnings(&self, kind: &Kind) -> Vec<String> {
        if !kind.is(kinds::JOBS) || self.propagation.is_some() || self.orphan.is_some() {
            return Vec::new();
        }
        vec![
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
             or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        ]
    }
}

fn unreadable(why: &str) -> Failure {
    Failure::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
}

fn dry_run(values: &[&str]) -> Result<bool, Failure> {
    let mut faults = Vec::new();
    let dry_run = options::dry_run(values, &mut faults);
    if faults.is_empty() { Ok(dry_run) } else { Err(Failure::invalid_query("DeleteOptions", &faults)) }
}

/// Deletes one object by the rules of its kind.
pub(crate) fn delete(
    state: &mut State,
    target: &Target,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<Deleted, Failure> {
    let kind = &target.kind;
    let current = target.current(state)?;
    if kind.is(kinds::NAMESPACES) {
        return namespace::delete(state, kind, &current, options, now);
    }
    check_preconditions(kind, &current, options)?;
    if kind.is(kinds::CRDS) {
        return crd::delete(state, &current, options, now);
    }
    let mut next = Value::clone(&current);
    let grace = match (kind.is(kinds::PODS), pod_deadline(&current, options, now)) {
        (true, Some((deadline, grace))) => {
            meta::set(&mut next, "deletionTimestamp", deadline);
            grace
        }
        (true, None) => return Ok(Deleted::Remains(current)),
        (false, _) => {
            if !meta::is_deleting(&current) {
                meta::set(&mut next, "deletionTimestamp", meta::stamp(now));
            }
            0
        }
    };
    meta::set(&mut next, "deletionGracePeriodSeconds", grace);
    let finalizers = finalizers_after(kind, &current, options);
    meta::set_finalizers(&mut next, &finalizers.iter().map(String::as_str).collect::<Vec<_>>());
    let generation = current["metadata"]["generation"].as_i64().unwrap_or(0);
    if generation > 0 && !meta::is_deleting(&current) {
        meta::set(&mut next, "generation", generation.saturating_add(1));
    }
    let goes = finalizers.is_empty() && grace == 0;
    let key = target.key();
    // A pod is marked as deleted even when it is removed at once, so that watches see both steps.
    if (!goes || kind.is(kinds::PODS)) && next != *current {
        let stored = state.put(&target.table, &key, next)?;
        if !goes {
            return Ok(Deleted::Remains(stored));
        }
        if state.dry_run {
            return Ok(Deleted::Gone(stored));
        }
    }
    if goes { Ok(Deleted::Gone(state.remove(&target.table, &key, now)?)) } else { Ok(Deleted::Remains(current)) }
}

pub(crate) fn check_preconditions(kind: &Kind, current: &Value, options: &DeleteOptions) -> Result<(), Failure> {
    let conflict = |why: String| {
        let name = meta::name(current);
        let named = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let mut details = kind.details(name);
        details["kind"] = kind.kind.clone().into();
        let message = format!("Operation cannot be fulfilled on {named} {name:?}: {why}");
        Err(Failure::new(409, "Conflict", message, Some(details)))
    };
    if let Some(uid) = options.uid.as_deref().filter(|it| *it != meta::uid(current)) {
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            meta::uid(current)
        ));
    }
    if let Some(version) = options.version.as_deref().filter(|it| *it != meta::version(current)) {
        return conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            meta::version(current)
        ));
    }
    Ok(())
}

/// The stored finalizers, with those of the garbage collector changed by the options.
pub(crate) fn finalizers_after(kind: &Kind, current: &Value, options: &DeleteOptions) -> Vec<String> {
    let stored = meta::finalizers(current);
    let wanted = if kind.is(kinds::EVENTS) {
        None
    } else if let Some(orphan) = options.orphan {
        orphan.then_some(ORPHAN)
    } else {
        match options.propagation.as_deref() {
            Some("Orphan") => Some(ORPHAN),
            Some("Foreground") => Some(FOREGROUND),
            Some(_) => None,
            None if stored.contains(&ORPHAN) => Some(ORPHAN),
            None if stored.contains(&FOREGROUND) => Some(FOREGROUND),
            None => kind.rules.orphans_by_default.then_some(ORPHAN),
        }
    };
    // A finalizer that is already there keeps its position, so that a repeated request changes nothing.
    let mut finalizers: Vec<String> = stored
        .iter()
        .filter(|it| !matches!(**it, ORPHAN | FOREGROUND) || Some(**it) == wanted)
        .map(|it| (*it).to_owned())
        .collect();
    if let Some(wanted) = wanted.filter(|it| !stored.contains(it)) {
        finalizers.push(wanted.to_owned());
    }
    finalizers
}

/// The deletionTimestamp and grace period of a pod after this DELETE; `None` when nothing changes, not even finalizers.
fn pod_deadline(current: &Value, options: &DeleteOptions, now: Timestamp) -> Option<(String, i64)> {
    let metadata = &current["metadata"];
    let stored = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let deadline = metadata["deletionTimestamp"].as_str();
    let at = |second: i64| meta::stamp(Timestamp::from_second(second).unwrap_or(now));
    // Calculated in nanoseconds of 64 bits with overflow, as on a real server, so too long grace periods end anywhere
    // within 584 years.
    let span = |grace: i64| grace.wrapping_mul(1_000_000_000).div_euclid(1_000_000_000);
    match deadline {
        Some(deadline) if stored > 0 => {
            let asked = options.grace.filter(|it| *it < stored)?;
            let asked = if asked < 0 { 1 } else { asked };
            let end = meta::seconds(deadline)?.saturating_sub(span(stored)).saturating_add(span(asked));
            // Never in the past: a deadline that has passed becomes now, with a grace period of at most one second.
            if end < now.as_second() { Some((at(now.as_second()), asked.min(1))) } else { Some((at(end), asked)) }
        }
        Some(deadline) => Some((deadline.to_owned(), 0)),
        None => {
            let idle = current["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()
                || matches!(current["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let grace =
                options.grace.or_else(|| current["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
            let grace = match grace {
                _ if idle => 0,
                negative if negative < 0 => 1,
                grace => grace,
            };
            Some((at(now.as_second().saturating_add(span(grace))), grace))
        }
    }
}

/// Deletes the given objects one after another. An object that was removed meanwhile is not an error; the first other
/// error ends the call.
pub(crate) fn delete_all(
    state: &mut State,
    target: &Target,
    objects: &[Arc<Value>],
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<(), Failure> {
    for object in objects {
        let (namespace, name) = (meta::namespace(object).to_owned(), meta::name(object).to_owned());
        let one = Target { namespace, name, ..target.clone() };
        match delete(state, &one, options, now) {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

/// Deletes every instance of a custom resource, as the clean-up of its definition does.
pub(crate) fn delete_instances(state: &mut State, table: &str, now: Timestamp) -> Result<(), Failure> {
    let Ok(found) = state.table(table) else { return Ok(()) };
    let target = Target {
        table: table.to_owned(),
        kind: found.kind.clone(),
        api_version: found.kind.api_version(),
        namespace: String::new(),
        name: String::new(),
    };
    let objects: Vec<Arc<Value>> = found.objects.values().map(|it| Arc::new(it.decode())).collect();
    delete_all(state, &target, &objects, &DeleteOptions::default(), now)
}
