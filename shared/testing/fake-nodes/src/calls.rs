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

/// The time limit of a call.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// A client for an API server in this process, given as any tower service that answers requests.
///
/// kube's client starts a task of its own outside our scopes. It ends with the last clone of the client.
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

/// Makes a call with a time limit.
pub(crate) async fn with_time_limit<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(TIME_LIMIT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(CallError::Refused { code: status.code, message: status.message }),
        Ok(Err(other)) => Err(CallError::Broken(Box::new(other))),
        Err(_) => Err(CallError::Silent),
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The server refused it.
    #[error("{code} {message}")]
    Refused { code: u16, message: String },
    /// There was no answer.
    #[error("no answer for {} s", TIME_LIMIT.as_secs())]
    Silent,
    /// The call failed without an answer of the server.
    #[error("{0}")]
    Broken(#[source] Box<kube::Error>),
}

impl CallError {
    /// The object does not exist any more, or another one has its name: nothing is left to do.
    pub(crate) fn is_obsolete(&self) -> bool {
        matches!(self, Self::Refused { code: 404 | 409, .. })
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }
}

/// A status patch for one object and no successor of the same name: it contains the uid.
pub(crate) fn of_status(uid: &str, status: &impl serde::Serialize) -> Result<(PatchParams, Patch<Value>), kube::Error> {
    let status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    let patch = serde_json::json!({ "metadata": { "uid": uid }, "status": status });
    Ok((PatchParams::default(), Patch::Strategic(patch)))
}

/// The delete with which a kubelet removes a pod that has ended.
pub(crate) fn at_once(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams::default().grace_period(0).preconditions(preconditions)
}
