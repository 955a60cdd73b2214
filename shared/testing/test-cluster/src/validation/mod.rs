//! Validation rules of single kinds: pure functions over values, one file per group of kinds.

mod batch;
mod core;
mod cron;
mod event;
mod faults;
mod others;
mod pod;
mod pod_update;
mod status;
mod workload;

use serde_json::Value;

use crate::{
    kinds::{self, Kind},
    response::Fault,
    write::Part,
};
use faults::Faults;

/// The faults of a new object.
pub(crate) fn created(kind: &Kind, object: &Value) -> Vec<Fault> {
    let mut faults = Faults::default();
    check_object(kind, object, &mut faults);
    match kind.table.as_str() {
        kinds::PODS => pod::check_new_pod(&mut faults, object),
        kinds::EVENTS => event::check_new_event(&mut faults, kind, object),
        _ => {}
    }
    faults.into_list()
}

/// The faults of a change. Faults that the object had before are not reported; only a test that stores objects without
/// checks creates such objects.
pub(crate) fn updated(kind: &Kind, old: &Value, new: &Value, part: Part) -> Vec<Fault> {
    let mut faults = Faults::default();
    match part {
        Part::Main => {
            check_object(kind, new, &mut faults);
            if !faults.is_empty() {
                let mut before = Faults::default();
                check_object(kind, old, &mut before);
                faults.forgive(&before);
            }
            check_change(kind, old, new, &mut faults);
        }
        Part::Status => status::check(kind, old, new, &mut faults),
        Part::Finalize => {}
    }
    faults.into_list()
}

/// The rules for a whole object.
fn check_object(kind: &Kind, object: &Value, faults: &mut Faults) {
    match kind.table.as_str() {
        kinds::PODS => pod::check_pod(faults, object),
        kinds::POD_TEMPLATES => pod::check_template(faults, &object["template"], "template"),
        kinds::DEPLOYMENTS => workload::check_deployment(faults, object),
        kinds::REPLICA_SETS => workload::check_replica_set(faults, object),
        kinds::REPLICATION_CONTROLLERS => workload::check_replication_controller(faults, object),
        kinds::STATEFUL_SETS => workload::check_stateful_set(faults, object),
        kinds::DAEMON_SETS => workload::check_daemon_set(faults, object),
        kinds::CONTROLLER_REVISIONS => workload::check_revision(faults, object),
        kinds::JOBS => batch::check_job(faults, object),
        kinds::CRON_JOBS => batch::check_cron_job(faults, object),
        kinds::NODES => core::check_node(faults, object),
        kinds::CONFIG_MAPS => core::check_config_map(faults, object),
        kinds::SECRETS => core::check_secret(faults, object),
        kinds::SERVICES => core::check_service(faults, object),
        kinds::VOLUME_CLAIMS => core::check_claim(faults, object),
        kinds::VOLUMES => core::check_volume(faults, object),
        kinds::EVENTS => event::check_event(faults, kind, object),
        kinds::BUDGETS => others::check_budget(faults, object),
        kinds::AUTOSCALERS => others::check_autoscaler(faults, object),
        kinds::PRIORITY_CLASSES => others::check_priority_class(faults, object),
        kinds::STORAGE_CLASSES => others::check_storage_class(faults, object),
        kinds::ENDPOINT_SLICES => others::check_endpoint_slice(faults, object),
        kinds::ROLES | kinds::CLUSTER_ROLES => others::check_role(faults, kind, object),
        kinds::ROLE_BINDINGS | kinds::CLUSTER_ROLE_BINDINGS => others::check_binding(faults, object),
        _ => {}
    }
}

/// The rules for a change.
fn check_change(kind: &Kind, old: &Value, new: &Value, faults: &mut Faults) {
    match kind.table.as_str() {
        kinds::PODS => pod_update::check_pod(faults, old, new),
        kinds::DEPLOYMENTS | kinds::REPLICA_SETS | kinds::DAEMON_SETS => {
            faults.check_immutable(old, new, "spec.selector");
        }
        kinds::STATEFUL_SETS => workload::check_stateful_set_change(faults, old, new),
        kinds::CONTROLLER_REVISIONS => faults.check_immutable(old, new, "data"),
        kinds::JOBS => batch::check_job_change(faults, old, new),
        kinds::NODES => core::check_node_change(faults, old, new),
        kinds::CONFIG_MAPS | kinds::SECRETS => core::check_data_change(faults, kind, old, new),
        kinds::SERVICES => core::check_service_change(faults, old, new),
        kinds::VOLUME_CLAIMS => core::check_claim_change(faults, old, new),
        kinds::VOLUMES => core::check_volume_change(faults, old, new),
        kinds::EVENTS => event::check_change(faults, kind, old, new),
        kinds::PRIORITY_CLASSES => others::check_priority_class_change(faults, old, new),
        kinds::STORAGE_CLASSES => {
            for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                faults.check_immutable(old, new, field);
            }
        }
        kinds::ENDPOINT_SLICES => faults.check_immutable(old, new, "addressType"),
        kinds::ROLE_BINDINGS | kinds::CLUSTER_ROLE_BINDINGS => others::check_binding_change(faults, old, new),
        _ => {}
    }
}

/// A text; empty when missing.
fn text<'a>(parent: &'a Value, field: &str) -> &'a str {
    parent[field].as_str().unwrap_or_default()
}

/// A list; empty when missing.
fn list<'a>(parent: &'a Value, field: &str) -> &'a [Value] {
    parent[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A whole number; 0 when missing.
fn number(parent: &Value, field: &str) -> i64 {
    parent[field].as_i64().unwrap_or(0)
}
