use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use clock::Clock;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    BoxError, Failure, ResponseBody,
    discovery::Documents,
    faults::{Call, Faults, Interception},
    observe::USER_AGENT,
    response,
    rest::{self, Exchange, Query, Route},
    store::State,
    tokens,
};

/// What all handles of one cluster share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) faults: Faults,
    pub(crate) documents: Documents,
    pub(crate) clock: Clock,
}

/// The cluster as a tower service. It is always ready.
#[derive(Clone)]
pub(crate) struct ClusterService(pub(crate) Arc<Shared>);

impl tower::Service<Request<Full<Bytes>>> for ClusterService {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let shared = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            receive(&shared, head, body).await
        })
    }
}

/// Handles one request: recording, injected faults, and then the server itself.
async fn receive(
    shared: &Arc<Shared>,
    head: http::request::Parts,
    body: Bytes,
) -> Result<Response<ResponseBody>, BoxError> {
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default();
    let (route, headers) = (Route::parse(&path), head.headers);
    let exchange = Exchange { route, query: Query::parse(query), method: head.method, path, headers, body };
    let call = call(shared, &exchange, query);
    let number = shared.faults.record(&call);
    let (served, late, lost) = match shared.faults.intercept(&call) {
        Interception::Pass => (serve(shared, &exchange).await, None, false),
        Interception::Answer { status, headers, body } => (canned(status, headers, &body), None, false),
        Interception::LoseAnswer => (serve(shared, &exchange).await, None, true),
        Interception::Fail => return Err("connection refused by the test cluster".into()),
        Interception::Hang => std::future::pending().await,
        Interception::Delay(wait) => {
            tokio::time::sleep(wait).await;
            (serve(shared, &exchange).await, None, false)
        }
        Interception::DelayAnswer(wait) => (serve(shared, &exchange).await, Some(wait), false),
    };
    if let Some(wait) = late {
        tokio::time::sleep(wait).await;
    }
    if lost {
        return Err("connection closed before the answer by the test cluster".into());
    }
    shared.faults.on_answered(number, served.status().as_u16());
    shared.faults.call_response_callback(call, served.status().as_u16());
    Ok(served)
}

/// Serves a request. Its writes are recorded with the sender's user agent.
async fn serve(shared: &Arc<Shared>, exchange: &Exchange) -> Response<ResponseBody> {
    if let Err(refused) = admit(shared, exchange) {
        return refused.into();
    }
    let user_agent = exchange.headers.get(header::USER_AGENT).cloned();
    USER_AGENT.scope(user_agent, rest::serve(shared, exchange)).await
}

/// Expires what is due, and checks the token of the sender.
fn admit(shared: &Shared, exchange: &Exchange) -> Result<(), Failure> {
    let mut state = shared.state.lock();
    state.expire();
    tokens::check(&state, tokens::of(exchange), shared.clock.wall())
}

fn call(shared: &Shared, exchange: &Exchange, query: &str) -> Call {
    let place = match &exchange.route {
        Route::Resource(place) | Route::Watch(place) => place.clone(),
        Route::Other => rest::Place::default(),
    };
    Call {
        method: exchange.method.clone(),
        path: exchange.path.clone(),
        query: query.to_owned(),
        user_agent: exchange.header(header::USER_AGENT).to_owned(),
        token: tokens::of(exchange).to_owned(),
        user: tokens::user(tokens::of(exchange)).to_owned(),
        body: exchange.body.clone(),
        at: shared.clock.now(),
        verb: rest::verb(&exchange.method, &exchange.route, &exchange.query),
        group: place.group,
        resource: place.resource,
        subresource: place.sub.unwrap_or_default(),
        namespace: place.namespace.unwrap_or_default(),
        name: place.name.unwrap_or_default(),
        status: 0,
    }
}

/// The response of an injected fault.
fn canned(status: u16, headers: Vec<(&'static str, String)>, body: &Value) -> Response<ResponseBody> {
    let mut answer = match body {
        Value::String(text) => {
            response::respond(status, "text/plain; charset=utf-8", Bytes::from(text.clone().into_bytes()))
        }
        body => response::json_answer(status, body),
    };
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(&value)) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}
