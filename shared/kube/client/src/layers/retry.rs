use std::time::Duration;

use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

use crate::{ApiError, Incoming, NotSent};

/// As upstream.
const MOST: u32 = 10;
/// An answer up to this size is read to its end, so that its connection can be used again.
const DISCARDED: usize = 64 * 1024;
/// Well below the time after which a worker that does not move counts as stuck.
const STEP: Duration = Duration::from_secs(60);
/// A request is not repeated when that would end later than this after its begin. With its last attempt (70 s) it then ends
/// well before a worker that waits for it counts as stuck (`runner::STALL`).
const LONGEST: Duration = Duration::from_secs(120);

/// Marks a request whose every answer is the caller's: an eviction's 429 is a budget's word, not overload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Once;

/// How long to wait before the request is repeated; `None` where the answer stands.
///
/// Only a server that says when is asked again. 429 says that nothing happened. After 503 with `Retry-After` a write by
/// name may be repeated: it lands on the same object. A create may not, nor any write after another 5xx: it could
/// happen twice.
pub(super) fn wait(
    repeated: u32,
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
    (safe && repeated < MOST && elapsed.saturating_add(after) <= LONGEST).then_some(after)
}

/// Waits, or ends at once when the manager stops: nothing came of the request. The future wakes once a minute, so that a
/// worker that waits does not look stuck.
pub(super) async fn pause(wait: Duration, stop: &CancellationToken) -> Result<(), ApiError> {
    let mut left = wait;
    while !left.is_zero() {
        let step = left.min(STEP);
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(ApiError::NotSent(NotSent::Stopping)),
            () = tokio::time::sleep(step) => left -= step,
        }
    }
    Ok(())
}

/// Reads an answer that nobody wants.
pub(super) async fn discard(answer: Response<Incoming>) {
    let mut body = answer.into_body();
    let mut size = 0;
    while size <= DISCARDED
        && let Some(Ok(frame)) = body.frame().await
    {
        size += frame.data_ref().map_or(0, |it| it.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_safe_and_asked_for_is_repeated() {
        let second = Some(Duration::from_secs(1));
        let cases = [
            ("overload repeats a create", Method::POST, 429, second, 0, true),
            ("overload without a time", Method::GET, 429, None, 0, false),
            ("a create after 503 may exist", Method::POST, 503, second, 0, false),
            ("a patch after 503", Method::PATCH, 503, second, 0, true),
            ("a delete after 503", Method::DELETE, 503, second, 0, true),
            ("a patch after 500 may have happened", Method::PATCH, 500, second, 0, false),
            ("a put after 504 may have happened", Method::PUT, 504, second, 0, false),
            ("a read after 504", Method::GET, 504, second, 0, true),
            ("a read after 500 without a time", Method::GET, 500, None, 0, false),
            ("success stands", Method::GET, 200, second, 0, false),
            ("a conflict stands", Method::PUT, 409, second, 0, false),
            ("the tenth time", Method::GET, 429, second, 9, true),
            ("the eleventh time", Method::GET, 429, second, 10, false),
        ];
        for (name, method, status, after, repeated, want) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let wait = wait(repeated, Duration::ZERO, &method, status, after);
            assert_eq!(wait.is_some(), want, "{name}");
        }
    }

    #[test]
    fn a_request_is_not_repeated_for_longer_than_two_minutes() {
        for (elapsed, after, want) in [(0, 60, true), (60, 60, true), (61, 60, false), (119, 1, true), (120, 1, false)]
        {
            let [elapsed, after] = [elapsed, after].map(Duration::from_secs);
            let wait = wait(1, elapsed, &Method::GET, StatusCode::TOO_MANY_REQUESTS, Some(after));
            assert_eq!(wait.is_some(), want, "{elapsed:?}, {after:?}");
        }
    }
}
