use std::{fmt, sync::Arc};

use api::{Pod, Typed, Uid, Version};
use client::{Api, ApiError, DeleteOptions, Patch, Written};
use events::{Recorder, Type};
use serde_json::{Map, Value, json, value::RawValue};

use crate::Owner;

/// Told of every pod that was stored: for whom, and at which version.
type Wrote = Arc<dyn Fn(&Uid, &Version) + Send + Sync>;

/// Writes pods for their owners, and tells of it in events on these.
#[derive(Clone)]
pub struct PodControl {
    api: Api,
    recorder: Recorder,
    wrote: Wrote,
}

impl PodControl {
    /// `wrote` is called after each creation and patch that the server stored, with the uid of the owner and the version:
    /// what a cache has to show before the next look. Deletions return no version.
    #[must_use]
    pub fn new(api: Api, recorder: Recorder, wrote: impl Fn(&Uid, &Version) + Send + Sync + 'static) -> Self {
        Self { api, recorder, wrote: Arc::new(wrote) }
    }

    /// The same through another client.
    #[must_use]
    pub fn through(&self, api: Api) -> Self {
        Self { api, ..self.clone() }
    }

    /// Through which it speaks.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Creates a pod as `body` says it, in the namespace of its owner.
    ///
    /// # Errors
    /// As [`ApiError`]. No event tells of a namespace that terminates: nothing can be done about it.
    pub async fn create(&self, owner: &Owner, body: &RawValue) -> Result<Written, ApiError> {
        match self.api.create(&Pod::resource(), &owner.namespace, &body).await {
            Ok(written) => {
                (self.wrote)(&owner.uid, &written.version);
                self.tell(owner, Type::Normal, "SuccessfulCreate", format!("Created pod: {}", written.name));
                Ok(written)
            }
            Err(err) => {
                if !err.is_namespace_terminating() && is_the_servers(&err) {
                    self.tell(owner, Type::Warning, "FailedCreate", format!("Error creating: {}", words(&err)));
                }
                Err(err)
            }
        }
    }

    /// Deletes this very pod, not a successor of its name.
    ///
    /// # Errors
    /// As [`ApiError`]; [`is_gone`] tells of those that mean that there is nothing left to delete, for which there is no
    /// event.
    pub async fn delete(&self, owner: &Owner, pod: &Pod) -> Result<(), ApiError> {
        let options = DeleteOptions { uid: Some(pod.meta.uid.clone()), ..DeleteOptions::default() };
        let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
        let outcome = self.api.delete(&Pod::resource(), namespace, name, &options).await;
        match &outcome {
            Ok(()) => self.tell(owner, Type::Normal, "SuccessfulDelete", format!("Deleted pod: {name}")),
            Err(err) if is_gone(err, name) || !is_the_servers(err) => {}
            Err(err) => self.tell(owner, Type::Warning, "FailedDelete", format!("Error deleting: {}", words(err))),
        }
        outcome
    }

    /// Takes a finalizer off this very pod.
    ///
    /// # Errors
    /// As [`ApiError`]; [`is_gone`] tells of those that mean that there is nothing left to hold.
    pub async fn remove_finalizer(&self, owner: &Uid, pod: &Pod, finalizer: &str) -> Result<Written, ApiError> {
        let metadata = json!({ "uid": pod.meta.uid, "$deleteFromPrimitiveList/finalizers": [finalizer] });
        self.patch(owner, pod, &metadata).await
    }

    /// The same, of a pod that nobody has changed since it was seen: what it was taken for, it still is.
    ///
    /// # Errors
    /// As [`ApiError`]; `Conflict` when it has changed.
    pub async fn remove_finalizer_as_seen(&self, owner: &Uid, pod: &Pod, finalizer: &str) -> Result<Written, ApiError> {
        let metadata = json!({
            "uid": pod.meta.uid,
            "resourceVersion": pod.meta.version,
            "$deleteFromPrimitiveList/finalizers": [finalizer],
        });
        self.patch(owner, pod, &metadata).await
    }

    /// Makes `owner` the controller of an orphan. That its uid is in the patch makes the server refuse another pod of the
    /// name, and one that got a controller in the meantime is refused too.
    pub(crate) async fn adopt(&self, owner: &Owner, pod: &Pod) -> Result<Written, ApiError> {
        let mut metadata = json!({ "uid": pod.meta.uid, "ownerReferences": [owner.controller_reference()] });
        if let Some(finalizer) = owner.finalizer {
            metadata["finalizers"] = json!([finalizer]);
        }
        self.patch(&owner.uid, pod, &metadata).await
    }

    /// Takes `owner` off a pod, and its finalizer too.
    pub(crate) async fn release(&self, owner: &Owner, pod: &Pod) -> Result<Written, ApiError> {
        let mut metadata = Map::new();
        metadata.insert("uid".to_owned(), json!(pod.meta.uid));
        metadata.insert("ownerReferences".to_owned(), json!([{ "$patch": "delete", "uid": owner.uid }]));
        if let Some(finalizer) = owner.finalizer {
            metadata.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!([finalizer]));
        }
        self.patch(&owner.uid, pod, &Value::Object(metadata)).await
    }

    async fn patch(&self, owner: &Uid, pod: &Pod, metadata: &Value) -> Result<Written, ApiError> {
        let patch = Patch::Strategic(json!({ "metadata": metadata }));
        let written = self.api.patch(&Pod::resource(), &pod.meta.namespace, &pod.meta.name, None, &patch).await?;
        (self.wrote)(owner, &written.version);
        Ok(written)
    }

    fn tell(&self, owner: &Owner, type_: Type, reason: &str, message: String) {
        self.recorder.event(owner.reference(), type_, reason, message);
    }
}

/// True for what the server says of an object that is not there any more: none of that name, or another one.
#[must_use]
pub fn is_gone(err: &ApiError, name: &str) -> bool {
    match err {
        ApiError::NotFound(_) => err.is_absence_of(name),
        // A precondition that does not hold. We give none but the uid.
        ApiError::Conflict(status) => status.message.contains("UID"),
        // A patch that would change the uid.
        ApiError::Invalid(status) => status.details.causes.iter().any(|it| it.field == "metadata.uid"),
        _ => false,
    }
}

/// False where nothing was sent, as our term is over or we stop: that is no news of the pod.
fn is_the_servers(err: &ApiError) -> bool {
    !matches!(err, ApiError::NotSent(_))
}

/// The server's own words, as upstream's events show them.
fn words(err: &ApiError) -> String {
    err.status().map(|it| it.message.clone()).filter(|it| !it.is_empty()).unwrap_or_else(|| err.to_string())
}

impl fmt::Debug for PodControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodControl").finish_non_exhaustive()
    }
}
