use std::sync::Arc;

use clock::Timestamp;
use serde_json::{Value, json};

mod names;

use self::names::NameDecision;
use crate::{
    Failure, apiservice,
    delete::{self, DeleteOptions, Deleted},
    kinds::{self, Generation, Kind, Rules, StatusRule},
    meta,
    response::Fault,
    store::State,
    table::custom::{self, PrinterColumn},
};

/// What a definition declares for one version.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    pub(crate) version: String,
    pub(crate) served: bool,
    /// It has the status subresource.
    pub(crate) status: bool,
    /// It has the scale subresource.
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<PrinterColumn>,
    /// Field selectors, as paths without the leading dot.
    pub(crate) fields: Vec<String>,
}

/// Where a custom object has the fields of its scale: dotted paths without the leading dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

impl Declared {
    fn read(version: &Value) -> Self {
        let path = |value: &Value| value.as_str().map(|it| it.trim_start_matches('.').to_owned());
        let scale = &version["subresources"]["scale"];
        let fields = version["selectableFields"].as_array().into_iter().flatten();
        Self {
            version: version["name"].as_str().unwrap_or_default().to_owned(),
            served: version["served"] == true,
            status: version["subresources"]["status"].is_object(),
            scale: path(&scale["specReplicasPath"]).map(|spec| ScalePaths {
                spec,
                status: path(&scale["statusReplicasPath"]).unwrap_or_default(),
                selector: path(&scale["labelSelectorPath"]),
            }),
            columns: custom::declared(version),
            fields: fields.filter_map(|it| path(&it["jsonPath"])).collect(),
        }
    }

    /// The rules of the kind in this version.
    fn schema_rules(&self) -> Rules {
        Rules {
            status: if self.status { StatusRule::Apart("") } else { StatusRule::Data },
            subresources: match (self.status, self.scale.is_some()) {
                (true, true) => &["status", "scale"],
                (true, false) => &["status"],
                (false, true) => &["scale"],
                (false, false) => &[],
            },
            generation: Generation::Content,
            needs_version: true,
            ..kinds::DATA
        }
    }
}

const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Sets the fields of a new definition that the server sets.
pub(crate) fn complete(object: &mut Value) {
    let names = &object["spec"]["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    meta::default_at(object, "spec.names.singular", kind.to_lowercase().into());
    meta::default_at(object, "spec.names.listKind", format!("{kind}List").into());
    meta::default_at(object, "spec.conversion.strategy", "None".into());
    let stored = versions(object).iter().find(|it| it["storage"] == true).map(|it| it["name"].clone());
    let status = json!({
        "acceptedNames": { "plural": "", "kind": "" },
        "conditions": null,
        "storedVersions": stored.into_iter().collect::<Vec<_>>(),
    });
    meta::as_map(object).insert("status".into(), status);
}

/// Refuses webhook conversion. All versions show the same fields.
///
/// # Errors
/// 501 for a definition with conversion by webhook.
pub(crate) fn check_served(object: &Value) -> Result<(), Failure> {
    match object["spec"]["conversion"]["strategy"].as_str() {
        None | Some("None") => Ok(()),
        Some(_) => Err(Failure::not_served("conversion by webhook")),
    }
}

/// Validates a changed definition: its names and its scope are immutable.
pub(crate) fn check_update(current: &Value, next: &Value, faults: &mut Vec<Fault>) {
    check_spec(next, faults);
    let established = condition(current, "Established") == "True";
    for (path, always) in
        [("spec.group", true), ("spec.names.plural", true), ("spec.scope", false), ("spec.names.kind", false)]
    {
        let value = meta::at(next, path);
        if (always || established) && value != meta::at(current, path) {
            faults.push(Fault::invalid(path, value, "field is immutable"));
        }
    }
}

/// Validates a new definition.
pub(crate) fn check(object: &Value, faults: &mut Vec<Fault>) {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wanted = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    if meta::name(object) != wanted {
        let why = r#"must be spec.names.plural+"."+spec.group"#;
        faults.push(Fault::invalid("metadata.name", &json!(meta::name(object)), why));
    }
    check_spec(object, faults);
}

fn check_spec(object: &Value, faults: &mut Vec<Fault>) {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (field, path) in [("spec.group", &spec["group"]), ("spec.names.kind", &spec["names"]["kind"])] {
        if text(path).is_empty() {
            faults.push(Fault::required(field, ""));
        }
    }
    if !matches!(spec["scope"].as_str(), Some("Namespaced" | "Cluster")) {
        faults.push(Fault::unsupported("spec.scope", &text(&spec["scope"]), r#""Cluster", "Namespaced""#));
    }
    for (at, version) in versions(object).iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            faults.push(Fault::required(format!("spec.versions[{at}].schema.openAPIV3Schema"), ""));
        }
    }
    if versions(object).iter().filter(|it| it["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        faults.push(Fault::invalid("spec.versions", &spec["versions"], why));
    }
}

/// Refuses new objects of a definition that is being deleted.
pub(crate) fn admit_create(state: &State, kind: &Kind, name: &str) -> Result<(), Failure> {
    let definition = kind.custom.then(|| state.stored(kinds::CRDS, &kind.qualified())).flatten();
    if definition.is_some_and(|it| it.is_deleting()) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Failure::forbidden(kind, name, why));
    }
    Ok(())
}

/// Establishes a new definition at once: its names are accepted, then it is served.
pub(crate) fn after_create(state: &mut State, kind: &Kind, stored: &Arc<Value>, now: Timestamp) -> Result<(), Failure> {
    if !kind.is(kinds::CRDS) {
        return Ok(());
    }
    update_names(state, meta::name(stored), now)?;
    let group = stored["spec"]["group"].as_str().unwrap_or_default();
    apiservice::update_group(state, group, now)
}

/// A changed definition may have other names and versions.
pub(crate) fn after_update(state: &mut State, kind: &Kind, stored: &Arc<Value>, now: Timestamp) -> Result<(), Failure> {
    if !kind.is(kinds::CRDS) {
        return Ok(());
    }
    update_names(state, meta::name(stored), now)?;
    let definition = state.object(kinds::CRDS, meta::name(stored));
    let Some(custom) = definition.and_then(|it| kind_of(&it)) else { return Ok(()) };
    let group = custom.group.clone();
    if let Some(table) = state.tables.get_mut(&custom.table()).filter(|it| it.kind.custom) {
        table.kind = Arc::new(custom);
    }
    apiservice::update_group(state, &group, now)
}

/// Adds the storage version to `status.storedVersions`.
pub(crate) fn on_update(object: &mut Value) {
    let Some(stored) = versions(object).iter().find(|it| it["storage"] == true).map(|it| it["name"].clone()) else {
        return;
    };
    let status = meta::map(object, "status");
    if let Some(known) = status.entry("storedVersions").or_insert_with(|| json!([])).as_array_mut()
        && !known.contains(&stored)
    {
        known.push(stored);
    }
}

/// Checks the names of a definition and serves it when all are accepted. Each step is a separate write.
fn update_names(state: &mut State, key: &str, now: Timestamp) -> Result<(), Failure> {
    let Some(definition) = state.object(kinds::CRDS, key) else { return Ok(()) };
    let others = in_group(state, &definition["spec"]["group"], key);
    let NameDecision { accepted, problem } = names::decide(&definition, &others);
    let mut next = Value::clone(&definition);
    next["status"]["acceptedNames"] = accepted;
    let was_established = condition(&next, "Established") == "True";
    const ACCEPTED: &str = "the initial names have been accepted";
    match &problem {
        None => set_condition(&mut next, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now),
        Some((reason, message)) => set_condition(&mut next, "NamesAccepted", "False", reason, message, now),
    }
    match &problem {
        _ if was_established => {}
        None => set_condition(&mut next, "Established", "False", "Installing", ACCEPTED, now),
        Some(_) => set_condition(&mut next, "Established", "False", "NotAccepted", "not all names are accepted", now),
    }
    if next != *definition {
        state.put(kinds::CRDS, key, next.clone())?;
    }
    if was_established || problem.is_some() {
        return Ok(());
    }
    set_condition(&mut next, "Established", "True", "InitialNamesAccepted", ACCEPTED, now);
    let stored = state.put(kinds::CRDS, key, next)?;
    if let Some(custom) = kind_of(&stored) {
        let floor = state.version;
        state.open_table(custom, floor);
    }
    Ok(())
}

/// The other definitions of a group, ordered by name.
fn in_group(state: &State, group: &Value, key: &str) -> Vec<Value> {
    let all = state.tables.get(kinds::CRDS).into_iter().flat_map(|it| it.objects.values());
    let others = all.filter(|it| *it.key != *key).map(|it| it.decode());
    others.filter(|it| it["spec"]["group"] == *group).collect()
}

fn condition<'a>(definition: &'a Value, of: &str) -> &'a str {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|it| it["type"] == of).and_then(|it| it["status"].as_str()).unwrap_or_default()
}

/// Sets a condition at its position. Its time is that of the last change of its status.
fn set_condition(definition: &mut Value, of: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let conditions = meta::map(definition, "status").entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let mut next = json!({
        "type": of, "status": status, "lastTransitionTime": meta::stamp(now), "reason": reason, "message": message,
    });
    match list.iter_mut().find(|it| it["type"] == of) {
        Some(had) => {
            if had["status"] == status {
                next["lastTransitionTime"] = had["lastTransitionTime"].clone();
            }
            *had = next;
        }
        None => list.push(next),
    }
}

/// Marks a definition as deleted, deletes its instances, and removes it when the last instance is removed.
pub(crate) fn delete(
    state: &mut State,
    current: &Arc<Value>,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<Deleted, Failure> {
    let key = meta::name(current).to_owned();
    if meta::is_deleting(current) {
        return Ok(Deleted::Remains(current.clone()));
    }
    let mut next = Value::clone(current);
    meta::set(&mut next, "deletionTimestamp", meta::stamp(now));
    let table = state.table(kinds::CRDS)?;
    let mut finalizers = delete::finalizers_after(&table.kind, current, options);
    let Some(custom) = kind_of(current).filter(|it| state.tables.get(&it.table()).is_some_and(|it| it.kind.custom))
    else {
        return Ok(Deleted::Gone(state.remove(kinds::CRDS, &key, now)?));
    };
    finalizers.push(CLEANUP.to_owned());
    meta::set_finalizers(&mut next, &finalizers.iter().map(String::as_str).collect::<Vec<_>>());
    state.put(kinds::CRDS, &key, next.clone())?;
    let pending = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(&mut next, "Terminating", "True", "InstanceDeletionPending", pending, now);
    let marked = state.put(kinds::CRDS, &key, next.clone())?;
    let going = "CustomResource deletion is in progress";
    set_condition(&mut next, "Terminating", "True", "InstanceDeletionInProgress", going, now);
    state.put(kinds::CRDS, &key, next)?;
    delete::delete_instances(state, &custom.table(), now)?;
    finish_deletion(state, &custom.table(), now)?;
    Ok(Deleted::Remains(marked))
}

/// After a removal: the table of a removed definition is removed too, and a deleted definition is removed after its
/// last instance.
pub(crate) fn after_removal(state: &mut State, table: &str, last: &Value, now: Timestamp) -> Result<(), Failure> {
    if table != kinds::CRDS {
        return finish_deletion(state, table, now);
    }
    let custom = kind_of(last).map(|it| it.table());
    if let Some(table) = custom.filter(|it| state.tables.get(it).is_some_and(|it| it.kind.custom)) {
        state.retire_table(&table);
    }
    let group = &last["spec"]["group"];
    apiservice::update_group(state, group.as_str().unwrap_or_default(), now)?;
    // The names are free now.
    for other in in_group(state, group, meta::name(last)) {
        update_names(state, meta::name(&other), now)?;
    }
    apiservice::update_group(state, group.as_str().unwrap_or_default(), now)
}

/// Removes the clean-up finalizer of a definition that is being deleted and has no instances.
fn finish_deletion(state: &mut State, table: &str, now: Timestamp) -> Result<(), Failure> {
    let Some(found) = state.tables.get(table).filter(|it| it.kind.custom && it.objects.is_empty()) else {
        return Ok(());
    };
    let key = found.kind.qualified();
    let Some(definition) = state.object(kinds::CRDS, &key).filter(|it| meta::is_deleting(it)) else {
        return Ok(());
    };
    let left: Vec<&str> = meta::finalizers(&definition).into_iter().filter(|it| *it != CLEANUP).collect();
    if left.is_empty() {
        return state.remove(kinds::CRDS, &key, now).map(drop);
    }
    let mut next = Value::clone(&definition);
    meta::set_finalizers(&mut next, &left);
    state.put(kinds::CRDS, &key, next).map(drop)
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The kind of a definition; `None` when required fields are missing or no version is served.
pub(crate) fn kind_of(definition: &Value) -> Option<Kind> {
    let spec = &definition["spec"];
    // Only accepted names are served.
    let accepted = &definition["status"]["acceptedNames"];
    let names = if accepted["plural"] == spec["names"]["plural"] { accepted } else { &spec["names"] };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>();
    let declared: Arc<[Declared]> = versions(definition).iter().map(Declared::read).collect();
    let mut served: Vec<String> = declared.iter().filter(|it| it.served).map(|it| it.version.clone()).collect();
    served.sort_by_key(|it| std::cmp::Reverse(priority(it)));
    let stored = versions(definition).iter().find(|it| it["storage"] == true)?;
    let stored = text(&stored["name"])?;
    let rules = declared.iter().find(|it| it.version == stored)?.schema_rules();
    let kind = text(&names["kind"]).filter(|it| !it.is_empty()).or_else(|| text(&spec["names"]["kind"]))?;
    let (group, plural) = (text(&spec["group"])?, text(&names["plural"])?);
    Some(Kind {
        table: kinds::table_key(&group, &plural),
        group,
        plural,
        versions: served,
        stored,
        singular: text(&names["singular"]).unwrap_or_else(|| kind.to_lowercase()),
        list_kind: text(&names["listKind"]).unwrap_or_else(|| format!("{kind}List")),
        kind,
        short: list(&names["shortNames"]),
        categories: list(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        custom: true,
        declared,
        rules,
    })
}

/// The kind in one of its versions, because each version has its own subresources.
pub(crate) fn in_version(kind: &Arc<Kind>, version: &str) -> Arc<Kind> {
    let Some(declared) = kind.declared(version) else { return kind.clone() };
    let stored = kind.declared(&kind.stored);
    if stored.is_some_and(|it| it.status == declared.status && it.scale.is_some() == declared.scale.is_some()) {
        return kind.clone();
    }
    Arc::new(Kind { rules: declared.schema_rules(), ..Kind::clone(kind) })
}

/// The order of versions: `v2` before `v1` before `v1beta2` before `v1alpha1`; anything else last.
pub(crate) fn priority(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse() else { return (0, 0, 0) };
    let minor = |text: &str| text.parse().unwrap_or(0);
    match &rest[digits..] {
        "" => (3, major, 0),
        stage if stage.starts_with("beta") => (2, major, minor(&stage[4..])),
        stage if stage.starts_with("alpha") => (1, major, minor(&stage[5..])),
        _ => (0, 0, 0),
    }
}
