//! The setup of the scenarios.

use std::time::Duration;

use e2e::{Flavour, Identity, Launch, Manager, Rest, Site, eventually, graphs, objects};
use http::Method;
use serde_json::{Value, json};

use crate::support::{On, Server};

/// The time limit for deletions, also on a busy machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The name of the controller.
pub(crate) const NAME: &str = "garbage-collector-controller";

const JSON: &str = "application/json";

/// A server, a manager with only the garbage collector, and an admin client.
pub(crate) struct Setup {
    // Dropped first, because its log is in the server's folder.
    pub(crate) manager: Manager,
    pub(crate) admin: Rest,
    pub(crate) server: Server,
}

impl Setup {
    /// `None` after printing that the scenario does not run.
    pub(crate) async fn new(on: On, name: &str) -> anyhow::Result<Option<Self>> {
        let Some((server, flavour)) = on.audited_manager(name).await? else { return Ok(None) };
        Self::with(server, flavour).await.map(Some)
    }

    /// On an existing server.
    pub(crate) async fn with(server: Server, flavour: Flavour) -> anyhow::Result<Self> {
        let admin = server.admin().await?;
        let manager = launch(&server, flavour)?.started().await?;
        Ok(Self { manager, admin, server })
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.manager.flavour() == Flavour::Ours
    }

    /// Waits until a dependent of an owner that never existed is deleted, which shows that the collector works.
    pub(crate) async fn wait_until_collecting(&self, namespace: &str, probe: &str) -> anyhow::Result<()> {
        let (path, mut object) = objects::config_map(namespace, probe);
        let absent = format!("absent-owner-of-{namespace}-{probe}");
        object["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": absent, "uid": absent }]);
        self.admin.create(&path, &object).await?;
        wait_until_gone(&self.admin, &format!("{path}/{probe}")).await
    }
}

/// As kubeadm starts it: with its own user, and the collector with its account and upstream's own role.
pub(crate) fn launch(server: &Site, flavour: Flavour) -> anyhow::Result<Launch> {
    Ok(Launch::new(server, flavour)?
        .kubeconfig(&server.kubeconfig(Identity::ControllerManager)?)
        .flag("controllers", NAME)
        .flag("use-service-account-credentials", "true")
        .flag("kube-api-qps", "300")
        .flag("kube-api-burst", "600"))
}

/// An owner reference to an existing object.
pub(crate) fn owned_by(owner: &Value, blocks: bool) -> Value {
    let meta = &owner["metadata"];
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": true, "blockOwnerDeletion": blocks,
    })
}

/// The same object with an owner.
pub(crate) fn with_owner(
    (path, mut object): objects::PathAndObject,
    owner: &Value,
    blocks: bool,
) -> objects::PathAndObject {
    object["metadata"]["ownerReferences"] = json!([owned_by(owner, blocks)]);
    (path, object)
}

/// Deletes an object with a policy.
pub(crate) async fn delete(admin: &Rest, path: &str, policy: &str) -> anyhow::Result<()> {
    let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy });
    let answer = admin.send(Method::DELETE, path, Some((JSON, &options))).await?;
    anyhow::ensure!((200..300).contains(&answer.code), "{} {}", answer.code, answer.text);
    Ok(())
}

/// Waits until an object does not exist any more.
pub(crate) async fn wait_until_gone(admin: &Rest, path: &str) -> anyhow::Result<()> {
    eventually(&format!("{path} to go"), TIME_LIMIT, async || match admin.find(path).await? {
        None => Ok(Some(())),
        Some(there) => anyhow::bail!("it is there: {}", there["metadata"]),
    })
    .await
}

/// Defines a custom resource and waits until it is served.
pub(crate) async fn define(admin: &Rest, definition: &Value) -> anyhow::Result<()> {
    admin.create(DEFINITIONS, definition).await?;
    wait_until_served(admin, definition).await
}

/// Waits until a defined resource is served.
pub(crate) async fn wait_until_served(admin: &Rest, definition: &Value) -> anyhow::Result<()> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version) = (text(&spec["group"]), text(&spec["versions"][0]["name"]));
    let path = format!("/apis/{group}/{version}/{}", text(&spec["names"]["plural"]));
    eventually(&format!("{path} to be served"), TIME_LIMIT, async || {
        Ok((admin.send(Method::GET, &path, None).await?.code == 200).then_some(()))
    })
    .await
}

/// The path of definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Defines the custom resources of the graphs.
pub(crate) async fn define_graphs(admin: &Rest) -> anyhow::Result<()> {
    for definition in graphs::definitions() {
        define(admin, &definition).await?;
    }
    Ok(())
}
