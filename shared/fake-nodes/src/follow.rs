use std::{fmt::Debug, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Resource,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

/// After something went wrong.
const PAUSE: Duration = Duration::from_millis(500);
/// A list that takes longer is asked for again.
const LIST_PATIENCE: Duration = Duration::from_secs(30);
/// The server ends a watch after this many seconds.
const WATCH_SECONDS: u32 = 240;
/// A watch that is silent for longer, its end included, is dead.
const WATCH_PATIENCE: Duration = Duration::from_secs(300);

/// What has become of the objects that are followed.
#[derive(Debug, Clone)]
pub enum Change<K> {
    /// These are all.
    All(Vec<K>),
    /// This one is new or has changed.
    Put(K),
    /// This one is gone.
    Gone(K),
}

/// Tells of every object of `api`, now and from now on: list, watch, and list again when the server says that the past
/// is forgotten. Never returns; whatever goes wrong is tried again. Without randomness, so that equal seeds give equal
/// runs.
pub async fn follow<K>(api: Api<K>, mut tell: impl FnMut(Change<K>))
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    loop {
        let list = tokio::time::timeout(LIST_PATIENCE, api.list(&ListParams::default())).await;
        match list {
            Ok(Ok(list)) => {
                let version = list.metadata.resource_version.clone().unwrap_or_default();
                tell(Change::All(list.items));
                watch(&api, version, &mut tell).await;
            }
            Ok(Err(err)) => {
                tracing::warn!(%err, resource = api.resource_url(), "cannot list");
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => tracing::warn!(resource = api.resource_url(), "a list was not answered"),
        }
    }
}

/// Watches from `version` on, again and again, until only a list helps.
async fn watch<K>(api: &Api<K>, mut version: String, tell: &mut impl FnMut(Change<K>))
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    loop {
        let opened = tokio::time::timeout(LIST_PATIENCE, api.watch(&params, &version)).await;
        let mut events = match opened {
            Ok(Ok(events)) => Box::pin(events),
            Ok(Err(err)) => {
                tracing::debug!(%err, resource = api.resource_url(), "cannot watch");
                return tokio::time::sleep(PAUSE).await;
            }
            Err(_) => return,
        };
        while let Ok(Some(event)) = tokio::time::timeout(WATCH_PATIENCE, events.next()).await {
            match event {
                Ok(WatchEvent::Added(it) | WatchEvent::Modified(it)) => {
                    version = it.meta().resource_version.clone().unwrap_or(version);
                    tell(Change::Put(it));
                }
                Ok(WatchEvent::Deleted(it)) => {
                    version = it.meta().resource_version.clone().unwrap_or(version);
                    tell(Change::Gone(it));
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
        // Ended by the server, broken or dead: the next one goes on where this one stopped.
        tokio::time::sleep(PAUSE / 5).await;
    }
}
