//! Creating and deleting namespaces, and their conditions.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::{Rest, eventually};

/// The five conditions, in upstream's order.
pub const CONDITIONS: [&str; 5] = [
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
];

/// One condition of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `True` or `False`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A text for users.
    pub message: String,
    /// When the status changed.
    pub since: String,
}

/// The path of a namespace.
#[must_use]
pub fn path(name: &str) -> String {
    format!("/api/v1/namespaces/{name}")
}

/// Creates a namespace.
///
/// # Errors
/// If the server refuses.
pub async fn create(rest: &Rest, name: &str) -> anyhow::Result<()> {
    rest.create("/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await.map(drop)
}

/// Deletes a namespace, which is terminating from then on.
///
/// # Errors
/// If the server refuses.
pub async fn delete(rest: &Rest, name: &str) -> anyhow::Result<()> {
    rest.delete(&path(name)).await.map(drop)
}

/// Waits until a namespace does not exist any more.
///
/// # Errors
/// If it still exists after `within`; the message has its status.
pub async fn wait_until_gone(rest: &Rest, name: &str, within: Duration) -> anyhow::Result<()> {
    eventually(&format!("namespace {name} to go"), within, async || match rest.find(&path(name)).await? {
        None => Ok(Some(())),
        Some(namespace) => anyhow::bail!("it has {} and {}", namespace["spec"], namespace["status"]),
    })
    .await
}

/// One condition of a namespace, if it has it.
#[must_use]
pub fn condition(namespace: &Value, of: &str) -> Option<Condition> {
    let all = namespace["status"]["conditions"].as_array()?;
    let found = all.iter().find(|it| it["type"] == of)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        since: text("lastTransitionTime"),
    })
}

/// The names of the conditions that are true, in the order of the object.
#[must_use]
pub fn true_conditions(namespace: &Value) -> Vec<String> {
    let all = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().filter(|it| it["status"] == "True").filter_map(|it| it["type"].as_str().map(str::to_owned)).collect()
}

/// Waits until exactly these conditions are true and all five exist, and returns the namespace.
///
/// # Errors
/// If the time is over; the message has the status.
pub async fn wait_until_true(rest: &Rest, name: &str, wanted: &[&str], within: Duration) -> anyhow::Result<Value> {
    eventually(&format!("conditions {wanted:?} of namespace {name}"), within, async || {
        let namespace = rest.get(&path(name)).await?;
        let complete = CONDITIONS.iter().all(|it| condition(&namespace, it).is_some());
        anyhow::ensure!(complete && true_conditions(&namespace) == wanted, "status {}", namespace["status"]);
        Ok(Some(namespace))
    })
    .await
}

/// The deletionTimestamp of the namespace.
///
/// # Errors
/// If it has none.
pub fn deleted_at(namespace: &Value) -> anyhow::Result<jiff::Timestamp> {
    let text = namespace["metadata"]["deletionTimestamp"].as_str().context("not deleted")?;
    Ok(text.parse()?)
}
