//! What the server fills in where a new or changed object says nothing.

use serde_json::{Value, json};

use crate::{
    kinds::{self, Kind},
    meta,
};

/// Fills in what the kind's objects always have.
pub(crate) fn fill(kind: &Kind, object: &mut Value) {
    let defaults: &[(&str, Value)] = match kind.table.as_str() {
        kinds::VOLUME_CLAIMS => &[("spec.volumeMode", json!("Filesystem"))],
        kinds::PODS => &[
            ("spec.dnsPolicy", json!("ClusterFirst")),
            ("spec.restartPolicy", json!("Always")),
            ("spec.schedulerName", json!("default-scheduler")),
            ("spec.terminationGracePeriodSeconds", json!(30)),
        ],
        kinds::SECRETS => &[("type", json!("Opaque"))],
        kinds::SERVICES => &[("spec.type", json!("ClusterIP")), ("spec.sessionAffinity", json!("None"))],
        kinds::DEPLOYMENTS => &[
            ("spec.replicas", json!(1)),
            ("spec.revisionHistoryLimit", json!(10)),
            ("spec.progressDeadlineSeconds", json!(600)),
        ],
        kinds::REPLICA_SETS => &[("spec.replicas", json!(1))],
        _ => &[],
    };
    for (path, value) in defaults {
        meta::default_at(object, path, value.clone());
    }
}
