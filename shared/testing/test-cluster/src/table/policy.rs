use clock::Timestamp;
use serde_json::Value;

use super::{
    AGE, Column, NAME, Printer, age, boolean, cells, integer, list_at, name, number_at, or, scalar, text, text_at, wide,
};

pub(super) fn printer(plural: &str) -> Option<Printer> {
    Some(match plural {
        "poddisruptionbudgets" => Printer { columns: BUDGET, cells: budget },
        "leases" => Printer { columns: LEASE, cells: lease },
        "priorityclasses" => Printer { columns: PRIORITY, cells: priority },
        "rolebindings" | "clusterrolebindings" => Printer { columns: BINDING, cells: binding },
        "apiservices" => Printer { columns: SERVICE, cells: service },
        _ => return None,
    })
}

const BUDGET: &[Column] = &[NAME, text("Min Available"), text("Max Unavailable"), integer("Allowed Disruptions"), AGE];

fn budget(it: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |field: &str| or(&scalar(&it["spec"][field]), "N/A").to_owned();
    cells![
        name(it),
        bound("minAvailable"),
        bound("maxUnavailable"),
        number_at(it, "status.disruptionsAllowed"),
        age(it, now),
    ]
}

const LEASE: &[Column] = &[NAME, text("Holder"), AGE];

fn lease(it: &Value, now: Timestamp) -> Vec<Value> {
    cells![name(it), text_at(it, "spec.holderIdentity"), age(it, now)]
}

const PRIORITY: &[Column] = &[NAME, integer("Value"), boolean("Global-Default"), AGE, text("PreemptionPolicy")];

fn priority(it: &Value, now: Timestamp) -> Vec<Value> {
    cells![
        name(it),
        number_at(it, "value"),
        it["globalDefault"] == true,
        age(it, now),
        or(text_at(it, "preemptionPolicy"), "PreemptLowerPriority"),
    ]
}

const BINDING: &[Column] = &[NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")];

fn binding(it: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = list_at(it, "subjects").iter().filter(|it| it["kind"] == kind);
        let names = of_kind.map(|it| match kind {
            "ServiceAccount" => format!("{}/{}", text_at(it, "namespace"), text_at(it, "name")),
            _ => text_at(it, "name").to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text_at(it, "roleRef.kind"), text_at(it, "roleRef.name"));
    cells![name(it), role, age(it, now), subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

const SERVICE: &[Column] = &[NAME, text("Service"), text("Available"), AGE];

fn service(it: &Value, now: Timestamp) -> Vec<Value> {
    let service = &it["spec"]["service"];
    let service = match service.is_object() {
        true => format!("{}/{}", text_at(service, "namespace"), text_at(service, "name")),
        false => "Local".into(),
    };
    let available = list_at(it, "status.conditions").iter().find(|it| it["type"] == "Available");
    let available = match available.map(|it| (text_at(it, "status"), text_at(it, "reason"))) {
        None => "Unknown".into(),
        Some(("True", _)) => "True".into(),
        Some((status, reason)) => format!("{status} ({reason})"),
    };
    cells![name(it), service, available, age(it, now)]
}
