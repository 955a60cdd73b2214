use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    client::Body,
};
use serde_json::Value;
use tower::{Service, ServiceExt};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A call without an answer is given up after this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client for an API server in this process: any tower service that answers requests.
///
/// Kube's client runs a task of its own outside our scopes, which ends with the last clone of the client.
#[must_use]
pub fn in_memory<S, B>(service: S) -> Client
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let service = service.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = Full::new(body.collect_bytes().await?);
            service.oneshot(Request::from_parts(head, body)).await.map_err(Into::<BoxError>::into)
        }
    });
    Client::new(service, "default")
}

/// Makes a call, with patience that ends.
pub(crate) async fn patiently<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(CallError::Refused { code: status.code, message: status.message }),
        Ok(Err(other)) => Err(CallError::Broken(Box::new(other))),
        Err(_) => Err(CallError::Silent),
    }
}

/// Why a call did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The server says no.
    #[error("{code} {message}")]
    Refused { code: u16, message: String },
    /// There is no answer.
    #[error("no answer for {} s", PATIENCE.as_secs())]
    Silent,
    /// There may be no server.
    #[error("{0}")]
    Broken(#[source] Box<kube::Error>),
}

impl CallError {
    /// What was to be changed is not there any more, or another has its name: nothing is left to do.
    pub(crate) fn is_moot(&self) -> bool {
        matches!(self, Self::Refused { code: 404 | 409, .. })
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }
}

/// Changes the status of one object and of no successor: the patch carries its uid.
pub(crate) fn of_status(uid: &str, status: &impl serde::Serialize) -> Result<(PatchParams, Patch<Value>), kube::Error> {
    let status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    let patch = serde_json::json!({ "metadata": { "uid": uid }, "status": status });
    Ok((PatchParams::default(), Patch::Strategic(patch)))
}

/// The last word of a kubelet on a pod.
pub(crate) fn at_once(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams::default().grace_period(0).preconditions(preconditions)
}
