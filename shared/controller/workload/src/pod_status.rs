use api::{ConditionStatus, Pod, Typed};
use client::{Api, ApiError, Patch, Written};
use clock::Timestamp;
use serde_json::{Value, json};

/// What must still be so when a pod is patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// It is the same pod.
    Uid,
    /// It is the same pod, unchanged.
    Version,
}

/// The condition of a pod that the infrastructure ended (KEP-3329).
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Patches the status of this pod, if it still fulfils the precondition.
/// Conditions are merged by type.
///
/// # Errors
/// See [`ApiError`]. [`crate::is_gone`] recognises the errors that mean that the pod does not exist any more.
pub async fn patch_status(
    api: &Api,
    pod: &Pod,
    precondition: Precondition,
    status: &Value,
) -> Result<Written, ApiError> {
    let metadata = match precondition {
        Precondition::Uid => json!({ "uid": pod.meta.uid }),
        Precondition::Version => json!({ "uid": pod.meta.uid, "resourceVersion": pod.meta.version }),
    };
    let body = json!({ "metadata": metadata, "status": status });
    api.patch(&Pod::resource(), &pod.meta.namespace, &pod.meta.name, Some("status"), &Patch::Strategic(body)).await
}

/// The condition [`DISRUPTION_TARGET`], which tells the owner of a pod that the infrastructure ended it.
#[must_use]
pub fn disruption_target(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": pod.generation,
    });
    // The time of a condition changes only with its status.
    let was_true = pod.condition(DISRUPTION_TARGET).is_some_and(|it| it.status == ConditionStatus::True);
    if !was_true && let Some(fields) = condition.as_object_mut() {
        fields.insert("lastTransitionTime".to_owned(), json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
    }
    condition
}
