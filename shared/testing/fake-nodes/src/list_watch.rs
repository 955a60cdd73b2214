use std::{fmt::Debug, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

/// The delay after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The time limit of a list.
const LIST_LIMIT: Duration = Duration::from_secs(30);
/// The server ends a watch after this many seconds.
const WATCH_SECONDS: u32 = 240;
/// A watch that is silent for longer than this counts as broken.
const WATCH_LIMIT: Duration = Duration::from_secs(300);

/// A change of the objects of a list and watch.
#[derive(Debug, Clone)]
pub enum Change<K> {
    /// These are all objects.
    All(Vec<K>),
    /// This object is new or has changed.
    Put(K),
    /// This object was deleted.
    Gone(K),
}

/// Calls `on_change` for every object of `api`, now and from now on: list, watch, and list again when the server
/// answers that the version has expired. Never returns; every failure is retried. It uses no randomness, so that equal
/// seeds give equal runs.
pub async fn list_and_watch<K>(api: Api<K>, mut on_change: impl FnMut(Change<K>))
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    loop {
        let list = tokio::time::timeout(LIST_LIMIT, api.list(&ListParams::default())).await;
        match list {
            Ok(Ok(list)) => {
                let version = list.metadata.resource_version.clone().unwrap_or_default();
                on_change(Change::All(list.items));
                watch(&api, version, &mut on_change).await;
            }
            Ok(Err(err)) => {
                tracing::warn!(%err, resource = api.resource_url(), "cannot list");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(_) => tracing::warn!(resource = api.resource_url(), "a list was not answered"),
        }
    }
}

/// Watches from `version` on, again and again, until a list is needed.
async fn watch<K>(api: &Api<K>, mut version: String, on_change: &mut impl FnMut(Change<K>))
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    loop {
        let opened = tokio::time::timeout(LIST_LIMIT, api.watch(&params, &version)).await;
        let mut events = match opened {
            Ok(Ok(events)) => Box::pin(events),
            Ok(Err(err)) => {
                tracing::debug!(%err, resource = api.resource_url(), "cannot watch");
                return tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(_) => return,
        };
        while let Ok(Some(event)) = tokio::time::timeout(WATCH_LIMIT, events.next()).await {
            match event {
                Ok(WatchEvent::Added(it) | WatchEvent::Modified(it)) => {
                    version = it.meta().resource_version.clone().unwrap_or(version);
                    on_change(Change::Put(it));
                }
                Ok(WatchEvent::Deleted(it)) => {
                    version = it.meta().resource_version.clone().unwrap_or(version);
                    on_change(Change::Gone(it));
                }
                Ok(WatchEvent::Bookmark(it)) => version = it.metadata.resource_version,
                Ok(WatchEvent::Error(status)) => {
                    tracing::debug!(?status, resource = api.resource_url(), "a watch ended with an error");
                    return;
                }
                Err(err) => {
                    tracing::debug!(%err, resource = api.resource_url(), "a watch broke");
                    break;
                }
            }
        }
        // Ended by the server, broken or silent: the next watch resumes from the last version.
        tokio::time::sleep(RETRY_INTERVAL / 5).await;
    }
}
