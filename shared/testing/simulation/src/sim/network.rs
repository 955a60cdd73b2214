use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use client::{Body, BoxError, Incoming, Transport, Unreachable};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    World,
    plan::{RequestFault, ServerError},
    process::ProcessRun,
    request::{self, SimRequest},
    stale,
    stream::Stream,
    world::{Delivery, Writer},
};

/// No run needs this many requests.
const MAX_REQUESTS: u64 = 100_000;
/// The client gives up a call without an answer after a minute; this adds time for its consequences.
const HUNG_DURATION: Duration = Duration::from_secs(75);
/// The time until a process that ended has been started again.
const RESTART_DURATION: Duration = Duration::from_secs(5);

type Answer = Result<Response<Incoming>, BoxError>;

/// The transport between one process and the cluster. All faults of the network and of the server are injected here.
pub(crate) fn transport(world: World, from: Arc<ProcessRun>) -> Transport {
    let service = tower::service_fn(move |request| transmit(world.clone(), from.clone(), request));
    Transport::new(service)
}

async fn transmit(world: World, from: Arc<ProcessRun>, request: Request<Body>) -> Answer {
    if from.is_gone() {
        world.fail(format!("{} still sends {} although the process was dropped", from.name, request.uri()));
    }
    if from.is_dying() {
        // The process was killed during the present poll.
        return std::future::pending().await;
    }
    let asked = SimRequest::of(&request, from.lease);
    let sent = world.now();
    if let Err(wrong) = from.check_send(&asked, sent) {
        world.fail(wrong);
    }
    let number = world.count_request();
    // A process that never waits would prevent the check for a broken run, so it is stopped here.
    if number >= MAX_REQUESTS {
        world.fail(format!("{number} requests, which is too many; the last is {} > {asked}", from.name));
        return std::future::pending().await;
    }
    let fault = world.plan().request_fault(&asked, number, sent);
    world.trace(|| {
        let trouble = if fault == RequestFault::Served { String::new() } else { format!("   !! {fault:?}") };
        format!("{} > {number} {asked}{trouble}", from.name)
    });
    let released = asked.is_lease() && asked.is_update() && is_release(&request);
    if released {
        from.on_released();
    }
    let answer = execute(&world, &from, &asked, request, fault).await;
    world.trace(|| match &answer {
        Ok(answer) => format!("{} < {number} {}", from.name, answer.status().as_u16()),
        Err(err) => format!("{} < {number} {err}", from.name),
    });
    if asked.is_lease() && asked.is_write() && !released && answer.as_ref().is_ok_and(|it| it.status().is_success()) {
        from.on_renewed(sent);
    }
    let answer = answer?;
    if !answer.status().is_success() {
        return Ok(answer);
    }
    if asked.is_watch() {
        return Ok(answer.map(|body| Stream::wrap(body, world, from.name.clone(), number, asked.resource)));
    }
    if asked.is_list() && asked.is_of_informer() && world.has_delivery_callback() {
        return report_list(&world, &from, &asked, answer).await;
    }
    Ok(answer)
}

/// Passes a list on to the process and reports it to the scenario's `on_delivered` callback.
async fn report_list(world: &World, from: &ProcessRun, asked: &SimRequest, answer: Response<Incoming>) -> Answer {
    let (head, body) = answer.into_parts();
    let text = body.collect().await?.to_bytes();
    world.report_delivery(&Delivery { by: &from.name, resource: &asked.resource, text: &text });
    Ok(Response::from_parts(head, Full::from(text).map_err(|never| match never {}).boxed_unsync()))
}

/// Executes a request with the planned fault.
async fn execute(
    world: &World,
    from: &Arc<ProcessRun>,
    asked: &SimRequest,
    request: Request<Body>,
    fault: RequestFault,
) -> Answer {
    let served = served(world.clone(), from.clone(), asked.clone(), request);
    world.record_fault_until(fault.duration());
    match fault {
        RequestFault::Served => served.await,
        RequestFault::Slow(time) => serve_after(world, served, time, true).await,
        RequestFault::ServedLate(time) => serve_after(world, served, time, false).await,
        RequestFault::Refused => Err(Unreachable("connection refused".to_owned()).into()),
        RequestFault::Reset => Err("connection reset".into()),
        RequestFault::AnswerLost => {
            served.await?;
            Err("connection reset before the answer".into())
        }
        RequestFault::AnswerLate(time) => {
            let answer = served.await;
            tokio::time::sleep(time).await;
            answer
        }
        RequestFault::Hung => std::future::pending().await,
        RequestFault::Answered(trouble) => Ok(trouble.answer()),
        RequestFault::ServedBut(trouble) => {
            served.await?;
            Ok(trouble.answer())
        }
        RequestFault::Raced => {
            if !world.race(asked) {
                world.plan().on_no_effect();
            }
            served.await
        }
        RequestFault::CrashBefore => {
            from.kill();
            std::future::pending().await
        }
        RequestFault::CrashAfter => {
            // The answer is dropped with the process.
            let _ = served.await;
            from.kill();
            std::future::pending().await
        }
        RequestFault::CrashDuring(time) => {
            world.spawn("request of a process that crashed", async move {
                tokio::time::sleep(time).await;
                let _ = served.await;
            });
            from.kill();
            std::future::pending().await
        }
        RequestFault::Paused(time) => {
            from.pause(world, time);
            served.await
        }
        RequestFault::Stopped => {
            if from.stop.is_cancelled() {
                world.plan().on_no_effect();
            }
            from.stop.cancel();
            served.await
        }
    }
}

/// Serves a request after `time`, even when its sender is paused. With `ends_with_sender` the request is dropped when
/// its sender gives up; otherwise it is served anyway.
async fn serve_after(
    world: &World,
    served: impl Future<Output = Answer> + Send + 'static,
    time: Duration,
    ends_with_sender: bool,
) -> Answer {
    let (mut sender, receiver) = tokio::sync::oneshot::channel();
    world.spawn("request on its way", async move {
        tokio::select! {
            biased;
            () = sender.closed(), if ends_with_sender => return,
            () = tokio::time::sleep(time) => {}
        }
        // The sender may have given up, but the request is served.
        let _ = sender.send(served.await);
    });
    receiver.await.unwrap_or_else(|_| Err("the run has ended".into()))
}

/// Lets the cluster serve a request, from an older state when that is allowed and planned.
async fn served(world: World, from: Arc<ProcessRun>, asked: SimRequest, request: Request<Body>) -> Answer {
    if asked.is_streamed_list() || asked.not_older_than() == Some(0) {
        world.counts().record_first_view(world.cluster().version());
    }
    let past = asked.not_older_than().and_then(|oldest| {
        let newest = world.cluster().version();
        let version = world.plan().old_version(oldest, newest.max(oldest))?;
        (version < newest && version > 0).then_some(version)
    });
    if let Some(version) = past {
        let service = world.cluster().service();
        let asked_again = stale::rewrite(&asked, &request, version, |it| service.clone().oneshot(it));
        if let Some(answer) = as_writer(&world, &from, &asked, asked_again).await? {
            let now = world.now();
            world.plan().on_old_state_shown(now);
            world.trace(|| format!("{}   !! shown the state of {version}", from.name));
            return Ok(answer);
        }
        // The state is compacted, or the type was not served then, so no server could show it. A request that accepts
        // any state gets the newest one instead.
        if asked.not_older_than() != Some(0) {
            return Ok(ServerError::Unavailable.answer());
        }
    }
    as_writer(&world, &from, &asked, world.cluster().service().oneshot(request)).await
}

/// Attributes all writes that are stored while `work` runs to `from`.
async fn as_writer<F: Future>(world: &World, from: &Arc<ProcessRun>, asked: &SimRequest, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| {
        world.set_writer(Some(Writer { process: from.clone(), needs_term: asked.needs_term() }));
        let polled = work.as_mut().poll(cx);
        world.set_writer(None);
        polled
    })
    .await
}

/// True for an update that removes the holder of a Lease.
fn is_release(request: &Request<Body>) -> bool {
    request.method() == Method::PUT
        && request::read(request)["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty()
}

impl RequestFault {
    /// The time after which this fault has no effect any more.
    fn duration(self) -> Duration {
        match self {
            Self::Slow(time)
            | Self::ServedLate(time)
            | Self::AnswerLate(time)
            | Self::CrashDuring(time)
            | Self::Paused(time) => time + RESTART_DURATION,
            Self::Hung => HUNG_DURATION,
            Self::Served => Duration::ZERO,
            Self::Refused
            | Self::Reset
            | Self::AnswerLost
            | Self::Answered(_)
            | Self::ServedBut(_)
            | Self::Raced
            | Self::CrashBefore
            | Self::CrashAfter
            | Self::Stopped => RESTART_DURATION,
        }
    }
}

impl ServerError {
    fn answer(self) -> Response<Incoming> {
        let status = |code: u16, reason: &str, message: &str| {
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": code,
            })
        };
        let (code, body) = match self {
            Self::Busy => (429, Value::from("Too many requests, please try again later.")),
            Self::Storage => (500, status(500, "InternalError", "etcdserver: request timed out")),
            Self::Unavailable => (503, Value::from("service unavailable")),
            Self::Timeout => (504, status(504, "Timeout", "request did not complete within the allotted timeout")),
            Self::NoStreamedList => {
                let why = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList \
                           feature gate is enabled";
                (422, status(422, "Invalid", why))
            }
        };
        let (form, text) = match body {
            Value::String(text) => ("text/plain; charset=utf-8", text),
            body => ("application/json", body.to_string()),
        };
        let body = Full::from(text).map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(body);
        *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(form));
        if self == Self::Busy {
            answer.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
        }
        answer
    }
}

/// The longest time for which the network delays anything. Time limits for liveness must allow for it.
pub const LONGEST_DELAY: Duration = Duration::from_secs(40);
