use std::{fmt, sync::Arc};

use api::{ObjectKey, Typed, Uid, Version};
use client::{Api, ApiError, Patch, Written};
use controller::{ConsistencyStore, Queue};
use informer::Watched;
use serde_json::{Map, Value, json};

use crate::Owner;

/// Called for each stored object with the uid of the owner and the resourceVersion.
type OnWritten = Arc<dyn Fn(&Uid, &Version) + Send + Sync>;

/// Patches the metadata of objects for their owners. A patch contains the uid of the object, so the server rejects it
/// for another object of the same name.
#[derive(Clone)]
pub struct ObjectWriter {
    api: Api,
    on_written: OnWritten,
    /// The cache that shows the writes, and the queue of owners.
    watched: Option<(Arc<dyn Watched>, Queue<ObjectKey>)>,
}

impl ObjectWriter {
    /// `on_written` is called after each stored creation and patch, with the uid of the owner and the resourceVersion
    /// that the cache must show before the next sync. A deletion returns no resourceVersion.
    #[must_use]
    pub fn new(api: Api, on_written: impl Fn(&Uid, &Version) + Send + Sync + 'static) -> Self {
        Self { api, on_written: Arc::new(on_written), watched: None }
    }

    /// Records each write in `consistency`, so that the next sync of the owner waits until `cache` shows it. After an
    /// adoption, [`ObjectWriter::enqueue_when_passed`] uses `cache` and `queue`.
    #[must_use]
    pub fn recording(
        api: Api,
        consistency: Arc<ConsistencyStore>,
        cache: Arc<dyn Watched>,
        queue: Queue<ObjectKey>,
    ) -> Self {
        let watched = Some((cache.clone(), queue));
        let writer = Self::new(api, move |owner, version| consistency.record_write(owner, &cache, version));
        Self { watched, ..writer }
    }

    /// The same with another client.
    #[must_use]
    pub fn with_client(&self, api: Api) -> Self {
        Self { api, ..self.clone() }
    }

    /// The client.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Makes `owner` the controller of an orphan. The server rejects a second controller. False if the stored object does
    /// not have the reference, because a webhook has removed it.
    pub(crate) async fn adopt<T: Typed>(&self, owner: &Owner, object: &T) -> Result<bool, ApiError> {
        let mut metadata = json!({ "uid": object.meta().uid, "ownerReferences": [owner.controller_reference()] });
        if let Some(finalizer) = owner.finalizer {
            metadata["finalizers"] = json!([finalizer]);
        }
        let written = self.patch(&owner.uid, object, &metadata).await?;
        if written.controller.as_ref() != Some(&owner.uid) {
            return Ok(false);
        }
        if let Some((_, queue)) = &self.watched
            && self.enqueue_when_passed(owner, written.version)
        {
            queue.add(owner.key());
        }
        Ok(true)
    }

    /// Enqueues the owner when the cache has passed a version. An object that was created or adopted, and deleted or released
    /// while the watch was interrupted, causes no event that names its owner. Returns true, and enqueues nothing, if the cache
    /// has passed the version already.
    pub fn enqueue_when_passed(&self, owner: &Owner, version: Version) -> bool {
        let Some((cache, queue)) = &self.watched else { return false };
        let (queue, key) = (queue.clone(), owner.key());
        cache.call_when_passed(version, Box::new(move || queue.add(key)))
    }

    /// Removes the reference to `owner` from an object, and its finalizer too.
    pub(crate) async fn release<T: Typed>(&self, owner: &Owner, object: &T) -> Result<Written, ApiError> {
        let mut metadata = Map::new();
        metadata.insert("uid".to_owned(), json!(object.meta().uid));
        metadata.insert("ownerReferences".to_owned(), json!([{ "$patch": "delete", "uid": owner.uid }]));
        if let Some(finalizer) = owner.finalizer {
            metadata.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!([finalizer]));
        }
        self.patch(&owner.uid, object, &Value::Object(metadata)).await
    }

    /// Sets a label of an object.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn set_label<T: Typed>(
        &self,
        owner: &Owner,
        object: &T,
        label: &str,
        value: &str,
    ) -> Result<Written, ApiError> {
        let metadata = json!({ "uid": object.meta().uid, "labels": { label: value } });
        self.patch(&owner.uid, object, &metadata).await
    }

    /// Sends a strategic merge patch of the metadata.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub(crate) async fn patch<T: Typed>(&self, owner: &Uid, object: &T, metadata: &Value) -> Result<Written, ApiError> {
        let meta = object.meta();
        let patch = Patch::Strategic(json!({ "metadata": metadata }));
        let written = self.api.patch(&T::resource(), meta.namespace, meta.name, None, &patch).await?;
        self.on_written(owner, &written.version);
        Ok(written)
    }

    /// Reports a write that was stored for this owner.
    pub fn on_written(&self, owner: &Uid, version: &Version) {
        (self.on_written)(owner, version);
    }
}

impl fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWriter").finish_non_exhaustive()
    }
}
