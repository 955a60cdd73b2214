use std::{collections::VecDeque, future::Future};

use bytes::Bytes;
use client::{Body, BoxError, Incoming};
use http::{HeaderValue, Method, Request, Response, Uri, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};

use super::request::SimRequest;

type Answer = Result<Response<Incoming>, BoxError>;

/// Answers a list, or the first set of a watch, from the state at `version`, like an API server whose watch cache is
/// behind. `None` if that state is no longer available.
pub(crate) async fn rewrite<F: Future<Output = Answer>>(
    asked: &SimRequest,
    request: &Request<Body>,
    version: u64,
    serve: impl Fn(Request<Body>) -> F,
) -> Result<Option<Response<Incoming>>, BoxError> {
    let listed = serve(list(asked, request, version)?).await?;
    if !listed.status().is_success() {
        return Ok(None);
    }
    if !asked.is_streamed_list() {
        return Ok(Some(listed));
    }
    let page: Value = serde_json::from_slice(&listed.into_body().collect().await?.to_bytes())?;
    let mut first = initial_events(&page);
    let watched = serve(watch(asked, request, version)?).await?;
    if !watched.status().is_success() {
        return Ok(Some(watched));
    }
    Ok(Some(watched.map(|rest| {
        let begun = futures::stream::poll_fn(move |_| {
            std::task::Poll::Ready(first.pop_front().map(|it| Ok::<_, BoxError>(Frame::data(it))))
        });
        StreamBody::new(futures::StreamExt::chain(begun, http_body_util::BodyStream::new(rest))).boxed_unsync()
    })))
}

/// The list that shows exactly this state.
fn list(asked: &SimRequest, request: &Request<Body>, version: u64) -> Result<Request<Body>, BoxError> {
    let query = format!("{}&resourceVersion={version}&resourceVersionMatch=Exact", other_parameters(asked));
    let accept = request.headers().get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or("application/json");
    let accept = accept.replace("as=PartialObjectMetadata;", "as=PartialObjectMetadataList;");
    get_request(asked, &query, &accept)
}

/// The watch that continues from this version.
fn watch(asked: &SimRequest, request: &Request<Body>, version: u64) -> Result<Request<Body>, BoxError> {
    let query = format!("{}&watch=true&allowWatchBookmarks=true&resourceVersion={version}", other_parameters(asked));
    let accept = request.headers().get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or("application/json");
    get_request(asked, &query, accept)
}

fn get_request(asked: &SimRequest, query: &str, accept: &str) -> Result<Request<Body>, BoxError> {
    let uri: Uri = format!("{}?{}", asked.path, query.trim_start_matches('&')).parse()?;
    let mut request = Request::new(Full::default());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = uri;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_str(accept)?);
    Ok(request)
}

/// The parameters that select neither a version nor a page.
fn other_parameters(asked: &SimRequest) -> String {
    const REPLACED: [&str; 6] =
        ["watch=", "sendInitialEvents=", "resourceVersionMatch=", "resourceVersion=", "allowWatchBookmarks=", "limit="];
    let kept = asked.query.split('&').filter(|it| !REPLACED.iter().any(|gone| it.starts_with(gone)));
    kept.fold(String::new(), |query, it| format!("{query}&{it}"))
}

/// A list as the first events of a watch.
fn initial_events(page: &Value) -> VecDeque<Bytes> {
    let kind = page["kind"].as_str().unwrap_or_default().trim_end_matches("List");
    let line = |event: Value| Bytes::from(format!("{event}\n"));
    let items = page["items"].as_array().into_iter().flatten().map(|item| {
        let mut item = item.clone();
        item["kind"] = kind.into();
        item["apiVersion"] = page["apiVersion"].clone();
        line(json!({ "type": "ADDED", "object": item }))
    });
    let end = json!({ "type": "BOOKMARK", "object": {
        "kind": kind, "apiVersion": page["apiVersion"],
        "metadata": {
            "resourceVersion": page["metadata"]["resourceVersion"], "creationTimestamp": null,
            "annotations": { "k8s.io/initial-events-end": "true" },
        },
    }});
    items.chain([line(end)]).collect()
}
