use std::{fmt, sync::Arc};

use api::{Pod, Typed, Uid, Version};
use client::{Api, ApiError, DeleteOptions, Patch, Written};
use events::{Recorder, Type};
use serde_json::{Map, Value, json, value::RawValue};

use crate::Owner;

/// Called for each stored pod with the uid of the owner and the resourceVersion.
type OnWritten = Arc<dyn Fn(&Uid, &Version) + Send + Sync>;

/// Writes pods for their owners, and sends events about the owners.
#[derive(Clone)]
pub struct PodControl {
    api: Api,
    recorder: Recorder,
    on_written: OnWritten,
}

impl PodControl {
    /// `on_written` is called after each stored creation and patch, with the uid of the owner and the resourceVersion
    /// that the cache must show before the next sync. A deletion returns no resourceVersion.
    #[must_use]
    pub fn new(api: Api, recorder: Recorder, on_written: impl Fn(&Uid, &Version) + Send + Sync + 'static) -> Self {
        Self { api, recorder, on_written: Arc::new(on_written) }
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

    /// Creates a pod with this `body` in the namespace of its owner.
    ///
    /// # Errors
    /// See [`ApiError`]. For a terminating namespace no event is sent, because the user cannot fix it.
    pub async fn create(&self, owner: &Owner, body: &RawValue) -> Result<Written, ApiError> {
        match self.api.create(&Pod::resource(), &owner.namespace, &body).await {
            Ok(written) => {
                (self.on_written)(&owner.uid, &written.version);
                self.send_event(owner, Type::Normal, "SuccessfulCreate", format!("Created pod: {}", written.name));
                Ok(written)
            }
            Err(err) => {
                if !err.is_namespace_terminating() && is_from_server(&err) {
                    self.send_event(
                        owner,
                        Type::Warning,
                        "FailedCreate",
                        format!("Error creating: {}", server_message(&err)),
                    );
                }
                Err(err)
            }
        }
    }

    /// Deletes this pod, with its uid as precondition.
    ///
    /// # Errors
    /// See [`ApiError`]. [`is_gone`] recognises the errors that mean that the pod does not exist any more; for these no
    /// event is sent.
    pub async fn delete(&self, owner: &Owner, pod: &Pod) -> Result<(), ApiError> {
        let options = DeleteOptions { uid: Some(pod.meta.uid.clone()), ..DeleteOptions::default() };
        let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
        let outcome = self.api.delete(&Pod::resource(), namespace, name, &options).await;
        match &outcome {
            Ok(()) => self.send_event(owner, Type::Normal, "SuccessfulDelete", format!("Deleted pod: {name}")),
            Err(err) if is_gone(err, name) || !is_from_server(err) => {}
            Err(err) => self.send_event(
                owner,
                Type::Warning,
                "FailedDelete",
                format!("Error deleting: {}", server_message(err)),
            ),
        }
        outcome
    }

    /// Removes a finalizer from this pod, with its uid as precondition.
    ///
    /// # Errors
    /// See [`ApiError`]. [`is_gone`] recognises the errors that mean that the pod does not exist any more.
    pub async fn remove_finalizer(&self, owner: &Uid, pod: &Pod, finalizer: &str) -> Result<Written, ApiError> {
        let metadata = json!({ "uid": pod.meta.uid, "$deleteFromPrimitiveList/finalizers": [finalizer] });
        self.patch(owner, pod, &metadata).await
    }

    /// The same, if the pod has not changed since it was cached.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` if the pod has changed.
    pub async fn remove_finalizer_as_seen(&self, owner: &Uid, pod: &Pod, finalizer: &str) -> Result<Written, ApiError> {
        let metadata = json!({
            "uid": pod.meta.uid,
            "resourceVersion": pod.meta.version,
            "$deleteFromPrimitiveList/finalizers": [finalizer],
        });
        self.patch(owner, pod, &metadata).await
    }

    /// Makes `owner` the controller of an orphan. The patch contains the uid, so the server rejects it for another pod
    /// of the same name. It also rejects a second controller.
    pub(crate) async fn adopt(&self, owner: &Owner, pod: &Pod) -> Result<Written, ApiError> {
        let mut metadata = json!({ "uid": pod.meta.uid, "ownerReferences": [owner.controller_reference()] });
        if let Some(finalizer) = owner.finalizer {
            metadata["finalizers"] = json!([finalizer]);
        }
        self.patch(&owner.uid, pod, &metadata).await
    }

    /// Removes the reference to `owner` from a pod, and its finalizer too.
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
        (self.on_written)(owner, &written.version);
        Ok(written)
    }

    fn send_event(&self, owner: &Owner, type_: Type, reason: &str, message: String) {
        self.recorder.event(owner.reference(), type_, reason, message);
    }
}

/// Whether an error means that the object is gone: there is none of this name, or another one has the name.
#[must_use]
pub fn is_gone(err: &ApiError, name: &str) -> bool {
    match err {
        ApiError::NotFound(_) => err.is_absence_of(name),
        // A failed precondition on the uid; a failed one on the resourceVersion has another message.
        ApiError::Conflict(status) => status.message.contains("UID"),
        // A patch that would change the uid.
        ApiError::Invalid(status) => status.details.causes.iter().any(|it| it.field == "metadata.uid"),
        _ => false,
    }
}

/// False if the request was not sent, because the term is over or the manager stops. Such an error does not concern the
/// pod.
fn is_from_server(err: &ApiError) -> bool {
    !matches!(err, ApiError::NotSent(_))
}

/// The message of the server, which upstream's events show.
fn server_message(err: &ApiError) -> String {
    err.status().map(|it| it.message.clone()).filter(|it| !it.is_empty()).unwrap_or_else(|| err.to_string())
}

impl fmt::Debug for PodControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodControl").finish_non_exhaustive()
    }
}
