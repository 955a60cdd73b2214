use std::time::Duration;

use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

use crate::{ApiError, Incoming, NotSent};

/// The maximum number of retries, as in upstream.
const MAX_RETRIES: u32 = 10;
/// A response up to this size is read to its end, so that its connection can be used again.
const MAX_DISCARDED: usize = 64 * 1024;
/// Much shorter than the time after which a worker without progress counts as stuck.
const WAKE_INTERVAL: Duration = Duration::from_secs(60);
/// A request is not retried if that would be later than this after its start. With its last attempt (70 s) it then ends
/// long before the worker that waits for it counts as stuck (`controller::STALL`).
const MAX_ELAPSED: Duration = Duration::from_secs(120);

/// How long to wait before the request is retried; `None` if it must not be.
///
/// A request is retried only after a response with `Retry-After`. After a 429 the server has done nothing. After a 503
/// a write to a named object may be retried, because it changes the same object. A create must not be retried after a
/// 5xx, nor any write after another 5xx: it could happen twice.
pub(super) fn delay_before_retry(
    retries: u32,
    elapsed: Duration,
    method: &Method,
    status: StatusCode,
    after: Option<Duration>,
) -> Option<Duration> {
    let after = after?;
    let safe = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => method != Method::POST,
        _ => status.is_server_error() && (method == Method::GET || method == Method::HEAD),
    };
    (safe && retries < MAX_RETRIES && elapsed.saturating_add(after) <= MAX_ELAPSED).then_some(after)
}

/// Waits, but returns at once when the manager stops; nothing has been done then. The future wakes once per minute, so
/// that a waiting worker does not count as stuck.
pub(super) async fn pause(wait: Duration, stop: &CancellationToken) -> Result<(), ApiError> {
    let mut remaining = wait;
    while !remaining.is_zero() {
        let step = remaining.min(WAKE_INTERVAL);
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(ApiError::NotSent(NotSent::Stopping)),
            () = tokio::time::sleep(step) => remaining -= step,
        }
    }
    Ok(())
}

/// Reads a response that is not needed.
pub(super) async fn discard(response: Response<Incoming>) {
    let mut body = response.into_body();
    let mut size = 0;
    while size <= MAX_DISCARDED
        && let Some(Ok(frame)) = body.frame().await
    {
        size += frame.data_ref().map_or(0, |it| it.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_requests_are_retried_and_only_after_retry_after() {
        let second = Some(Duration::from_secs(1));
        let cases = [
            ("a create after overload", Method::POST, 429, second, 0, true),
            ("overload without a time", Method::GET, 429, None, 0, false),
            ("a create after 503 may exist", Method::POST, 503, second, 0, false),
            ("a patch after 503", Method::PATCH, 503, second, 0, true),
            ("a delete after 503", Method::DELETE, 503, second, 0, true),
            ("a patch after 500 may have happened", Method::PATCH, 500, second, 0, false),
            ("a put after 504 may have happened", Method::PUT, 504, second, 0, false),
            ("a read after 504", Method::GET, 504, second, 0, true),
            ("a read after 500 without a time", Method::GET, 500, None, 0, false),
            ("a success", Method::GET, 200, second, 0, false),
            ("a conflict", Method::PUT, 409, second, 0, false),
            ("the tenth time", Method::GET, 429, second, 9, true),
            ("the eleventh time", Method::GET, 429, second, 10, false),
        ];
        for (name, method, status, after, retries, want) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let delay = delay_before_retry(retries, Duration::ZERO, &method, status, after);
            assert_eq!(delay.is_some(), want, "{name}");
        }
    }

    #[test]
    fn request_is_not_retried_for_longer_than_two_minutes() {
        for (elapsed, after, want) in [(0, 60, true), (60, 60, true), (61, 60, false), (119, 1, true), (120, 1, false)]
        {
            let [elapsed, after] = [elapsed, after].map(Duration::from_secs);
            let delay = delay_before_retry(1, elapsed, &Method::GET, StatusCode::TOO_MANY_REQUESTS, Some(after));
            assert_eq!(delay.is_some(), want, "{elapsed:?}, {after:?}");
        }
    }
}
