use std::{error::Error, fmt};

use api::{Pod, Typed, Uid};
use client::{Api, ApiError, DeleteOptions, Written, error_chain};
use events::{EventType, Recorder};
use serde_json::{json, value::RawValue};

use crate::{ObjectWriter, Owner};

/// Writes pods for their owners, and sends events about the owners.
#[derive(Clone)]
pub struct PodControl {
    writer: ObjectWriter,
    recorder: Recorder,
}

impl PodControl {
    /// Writes with `writer`, and sends events with `recorder`.
    #[must_use]
    pub fn new(writer: ObjectWriter, recorder: Recorder) -> Self {
        Self { writer, recorder }
    }

    /// The same with another client.
    #[must_use]
    pub fn with_client(&self, api: Api) -> Self {
        Self { writer: self.writer.with_client(api), ..self.clone() }
    }

    /// The client.
    #[must_use]
    pub fn api(&self) -> &Api {
        self.writer.api()
    }

    /// The writer of owner references, for [`claim`](crate::claim).
    #[must_use]
    pub fn writer(&self) -> &ObjectWriter {
        &self.writer
    }

    /// Creates a pod with this `body` in the namespace of its owner.
    ///
    /// # Errors
    /// See [`ApiError`]. For a terminating namespace no event is sent, because the user cannot fix it.
    pub async fn create(&self, owner: &Owner, body: &RawValue) -> Result<Written, ApiError> {
        match self.api().create(&Pod::resource(), &owner.namespace, &body).await {
            Ok(written) => {
                self.writer.on_written(&owner.uid, &written.version);
                self.send_event(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {}", written.name));
                Ok(written)
            }
            Err(err) => {
                // If the name is in use, the pod was created before, and the cache does not show it yet.
                let is_known = matches!(err, ApiError::AlreadyExists(_));
                if !err.is_namespace_terminating() && !is_known && is_from_server(&err) {
                    self.send_event(
                        owner,
                        EventType::Warning,
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
        self.delete_with(owner, pod, &options).await
    }

    /// The same, if the pod has not changed since it was cached.
    ///
    /// # Errors
    /// See [`PodControl::delete`]; `Conflict` without an event if the pod has changed.
    pub async fn delete_as_seen(&self, owner: &Owner, pod: &Pod) -> Result<(), ApiError> {
        let version = Some(pod.meta.version.clone()).filter(|it| !it.is_empty());
        let options = DeleteOptions { uid: Some(pod.meta.uid.clone()), version, ..DeleteOptions::default() };
        self.delete_with(owner, pod, &options).await
    }

    async fn delete_with(&self, owner: &Owner, pod: &Pod, options: &DeleteOptions) -> Result<(), ApiError> {
        let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
        let outcome = self.api().delete(&Pod::resource(), namespace, name, options).await;
        match &outcome {
            Ok(()) => self.send_event(owner, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}")),
            Err(err) if is_gone(err, name) || !is_from_server(err) => {}
            // Not a failure: the pod is read again.
            Err(ApiError::Conflict(_)) if options.version.is_some() => {}
            Err(err) => self.send_event(
                owner,
                EventType::Warning,
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
        self.writer.patch(owner, pod, &metadata).await
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
        self.writer.patch(owner, pod, &metadata).await
    }

    fn send_event(&self, owner: &Owner, type_: EventType, reason: &str, message: String) {
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
/// object.
#[must_use]
pub fn is_from_server(err: &ApiError) -> bool {
    !matches!(err, ApiError::NotSent(_))
}

/// The message of the server, which upstream's events show.
#[must_use]
pub fn server_message(err: &ApiError) -> String {
    err.status().map(|it| it.message.clone()).filter(|it| !it.is_empty()).unwrap_or_else(|| err.to_string())
}

impl fmt::Debug for PodControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodControl").finish_non_exhaustive()
    }
}

/// Logs the error of a write of a sync that fails for another reason, or that is not retried.
pub fn log_further_error(result: Result<(), impl Error>) {
    if let Err(err) = result {
        tracing::error!(err = error_chain(&err), "Another write of this sync failed");
    }
}
