//! Cleanup: no object of ours stays on a real cluster.

use std::time::Duration;

use anyhow::bail;
use fake_nodes::Fleet;
use kube::api::ListParams;
use serde_json::json;

use crate::{
    manager::Manager,
    samples::{Act, Operation},
    target::{Cluster, ManagerPlan, Target, remove_lease},
    user::User,
};

/// How long to wait until the namespaces of a real cluster are deleted, and how often to check.
const TIME_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Stops everything in order and removes what was created.
pub(crate) async fn clean_up(target: Target, user: User, fleet: Fleet, manager: Option<Manager>) -> anyhow::Result<()> {
    let mut left = Vec::new();
    let real = matches!(target.cluster, Cluster::Real);
    if real {
        // The manager empties the namespaces, and the nodes stop their pods, so both must still run.
        left.extend(remove_namespaces(&user).await);
        left.extend(fleet.remove().await);
    } else {
        fleet.stop().await;
    }
    if let Some(manager) = manager {
        left.extend(manager.end().await.map(|cause| format!("mini-kcm did not end in order: {cause}")));
    }
    if real
        && target.manager == (ManagerPlan::Ours { found: false })
        && let Err(err) = remove_lease(&target.client).await
    {
        left.push(format!("cannot remove the Lease of the manager: {err}"));
    }
    if let Cluster::Embedded { served, written, .. } = target.cluster {
        served.close().await;
        drop(written);
    }
    if left.is_empty() { Ok(()) } else { bail!("not cleaned up: {}", left.join("; ")) }
}

async fn remove_namespaces(user: &User) -> Vec<String> {
    let mut left = Vec::new();
    let names = [&user.context.deleted_namespace, &user.context.home];
    for name in names {
        left.extend(delete(user, name).await.err().map(|err| format!("{err:#}")));
    }
    let mut errors = Vec::new();
    let gone = async {
        loop {
            errors.clear();
            for name in names {
                errors.extend(remove_finalizers(user, name).await);
            }
            if is_gone(user, names[0]).await && is_gone(user, names[1]).await {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    if tokio::time::timeout(TIME_LIMIT, gone).await.is_err() {
        left.push(format!("namespaces {} and {} are not deleted yet", names[0], names[1]));
        left.extend(errors);
    }
    left
}

/// Removes the finalizers of our samples' ConfigMaps, and `pvc-protection` of their claims: its controller may not run.
async fn remove_finalizers(user: &User, namespace: &str) -> Vec<String> {
    let mut errors = Vec::new();
    for kind in ["ConfigMap", "PersistentVolumeClaim"] {
        let objects = user.api("v1", kind, namespace).list(&ListParams::default()).await;
        for it in objects.into_iter().flatten().filter(|it| it.metadata.finalizers.is_some()) {
            let patch = Operation::Merge(json!({ "metadata": { "finalizers": null } }));
            let removed = user.act(&act(kind, namespace, it.metadata.name.as_deref().unwrap_or_default(), patch)).await;
            errors.extend(removed.err().map(|err| format!("{err:#}")));
        }
    }
    errors
}

/// True when the namespace does not exist. If a late request has created it again, it is deleted again.
async fn is_gone(user: &User, name: &str) -> bool {
    match user.api("v1", "Namespace", "").get_opt(name).await {
        Ok(None) => return true,
        Ok(Some(it)) if it.metadata.deletion_timestamp.is_none() => {
            // A failure is retried at the next check.
            let _ = delete(user, name).await;
        }
        Ok(Some(_)) | Err(_) => {}
    }
    false
}

async fn delete(user: &User, name: &str) -> anyhow::Result<()> {
    user.act(&act("Namespace", "", name, Operation::Delete)).await
}

fn act(kind: &'static str, namespace: &str, name: &str, operation: Operation) -> Act {
    Act { api_version: "v1", kind, namespace: namespace.to_owned(), name: name.to_owned(), operation }
}
