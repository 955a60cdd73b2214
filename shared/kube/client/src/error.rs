use std::time::Duration;

use api::Status;
use http::{Response, header};

/// A longer `Retry-After` is reduced to this, so that a wrong value does not stop a client for hours.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// A request without success, divided by what the caller does next. The [`Status`] is boxed, because most results have
/// none.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// 404. `details.name` is empty if the route is missing and not the object.
    #[error("not found: {}", .0.message)]
    NotFound(Box<Status>),
    /// 409 of a create.
    #[error("already exists: {}", .0.message)]
    AlreadyExists(Box<Status>),
    /// 409 of another write. Read the object again.
    #[error("conflict: {}", .0.message)]
    Conflict(Box<Status>),
    /// 422. The object itself is invalid.
    #[error("invalid: {}", .0.message)]
    Invalid(Box<Status>),
    /// 410. The resourceVersion or the continue token is too old.
    #[error("gone: {}", .0.message)]
    Gone(Box<Status>),
    /// Any other 4xx (400, 401, 403, 405, 406, 415 …). A retry does not help.
    #[error("refused with {}: {}", .0.code, .0.message)]
    Refused(Box<Status>),
    /// 429, or the 503 of a read with `Retry-After`. Nothing was changed. Try again later.
    #[error("server busy: {}", .status.message)]
    Busy {
        /// `Retry-After`, at most one minute.
        after: Option<Duration>,
        /// The Status of the response.
        status: Box<Status>,
    },
    /// Nothing was sent, because of the fence, a shutdown or a failed connection.
    #[error("not sent: {0}")]
    NotSent(NotSent),
    /// The write may have happened: there was no response, an incomplete one, or a 5xx, even a 5xx with `Retry-After`.
    /// Keep the expectation and look up the object.
    #[error("outcome unknown: {message}")]
    Unknown {
        /// The error.
        message: String,
        /// The Status of the response, if there was one.
        status: Option<Box<Status>>,
    },
}

/// Why nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The term has ended, or has not begun.
    #[error("the term of leadership is over")]
    TermEnded,
    /// The manager is stopping and does not wait any longer.
    #[error("the manager is stopping")]
    Stopping,
    /// No connection could be established.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// There is no token for our identity.
    #[error("{0}")]
    Unidentified(String),
}

/// The limit of [`within`] for a read. A longer read would occupy a worker, and its result may come too late.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit of [`within`] for a write. Longer than the server allows it (34 s), because an admission webhook that does not
/// answer delays a write by its timeout, and giving up before would cancel the write each time.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(40);

/// Gives up a call after `limit`: a wait for the rate limiter or for `Retry-After` may take minutes, and then what the
/// call is based on may not hold any more.
///
/// # Errors
/// As the call; `Unknown` after `limit`.
pub async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let timed = tokio::time::timeout(limit, call).await;
    timed.unwrap_or_else(|_| Err(ApiError::unknown(format!("no response within {limit:?}"))))
}

impl ApiError {
    /// Classifies the response of a write that did not succeed.
    #[must_use]
    pub fn from_status(status: Status, retry_after: Option<Duration>) -> Self {
        let after = requested_delay(&status, retry_after);
        let status = Box::new(status);
        match status.code {
            404 => Self::NotFound(status),
            // A webhook may refuse with any code, and refuses a retry too.
            409 if status.is_of_webhook() => Self::Refused(status),
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists(status),
            409 => Self::Conflict(status),
            410 => Self::Gone(status),
            422 => Self::Invalid(status),
            429 => Self::Busy { after, status },
            400..=499 => Self::Refused(status),
            _ => Self::Unknown { message: format!("{} {}", status.code, status.message), status: Some(status) },
        }
    }

    /// The same for a read, which cannot have changed anything. So a 503 with `Retry-After` is [`ApiError::Busy`].
    #[must_use]
    pub fn from_read(status: Status, retry_after: Option<Duration>) -> Self {
        match requested_delay(&status, retry_after) {
            after @ Some(_) if status.code == 503 => Self::Busy { after, status: Box::new(status) },
            _ => Self::from_status(status, retry_after),
        }
    }

    /// The outcome is unknown, because there was no response.
    #[must_use]
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::Unknown { message: message.into(), status: None }
    }

    /// The Status of the response, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::NotFound(status)
            | Self::AlreadyExists(status)
            | Self::Conflict(status)
            | Self::Invalid(status)
            | Self::Gone(status)
            | Self::Refused(status)
            | Self::Busy { status, .. }
            | Self::Unknown { status: Some(status), .. } => Some(status),
            Self::NotSent(_) | Self::Unknown { status: None, .. } => None,
        }
    }

    /// The HTTP status code; 0 if there was none.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.status().map_or(0, |it| it.code)
    }

    /// True if the server reports that the object of this name does not exist. Other 404s do not prove that: the kind
    /// is not served now, the namespace does not exist, or a proxy has sent the response.
    #[must_use]
    pub fn is_absence_of(&self, name: &str) -> bool {
        matches!(self, Self::NotFound(status) if status.details.name == name)
    }

    /// True for a write into a terminating namespace. Only the causes show this; the reason does not.
    #[must_use]
    pub fn is_namespace_terminating(&self) -> bool {
        self.status().is_some_and(|it| it.has_cause("NamespaceTerminating"))
    }

    /// True if the server's watch cache has not yet reached the requested resourceVersion.
    #[must_use]
    pub fn is_too_large_version(&self) -> bool {
        self.status().is_some_and(|it| {
            it.has_cause("ResourceVersionTooLarge") || it.message.contains("Too large resource version")
        })
    }
}

/// `Retry-After` in seconds, at most one minute. API servers do not use the other form, a date.
pub(crate) fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let value = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(|it| Duration::from_secs(it).min(MAX_RETRY_AFTER))
}

/// The time until the next attempt: from the header, otherwise from the body.
fn requested_delay(status: &Status, retry_after: Option<Duration>) -> Option<Duration> {
    let wait = retry_after.or_else(|| {
        let secs = status.details.retry_after_seconds;
        (secs > 0).then(|| Duration::from_secs(secs.into()))
    });
    wait.map(|it| it.min(MAX_RETRY_AFTER))
}

/// An error and all its causes in one line. The message of hyper alone ("error sending request") contains no cause.
#[must_use]
pub fn error_chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut source = err.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        // Some errors already contain the message of their cause.
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_classified_by_what_the_caller_does_next() {
        let status = |code, reason: &str| Status { code, reason: reason.to_owned(), ..Status::default() };
        let of = |code, reason: &str, after: Option<u64>| {
            ApiError::from_status(status(code, reason), after.map(Duration::from_secs))
        };
        let read = |code, after: Option<u64>| ApiError::from_read(status(code, ""), after.map(Duration::from_secs));
        assert!(matches!(of(404, "NotFound", None), ApiError::NotFound(_)));
        assert!(matches!(of(409, "AlreadyExists", None), ApiError::AlreadyExists(_)));
        assert!(matches!(of(409, "Conflict", None), ApiError::Conflict(_)));
        assert!(matches!(of(410, "Expired", None), ApiError::Gone(_)));
        assert!(matches!(of(422, "Invalid", None), ApiError::Invalid(_)));
        assert!(matches!(of(403, "Forbidden", None), ApiError::Refused(_)));
        assert!(matches!(of(405, "MethodNotAllowed", None), ApiError::Refused(_)));
        assert!(matches!(of(429, "", None), ApiError::Busy { after: None, .. }));
        assert!(matches!(of(503, "", Some(1)), ApiError::Unknown { .. }), "a write may have happened");
        assert!(matches!(of(503, "", None), ApiError::Unknown { .. }));
        assert!(matches!(read(503, Some(1)), ApiError::Busy { after: Some(_), .. }));
        assert!(matches!(read(503, None), ApiError::Unknown { .. }));
        assert!(matches!(read(429, None), ApiError::Busy { after: None, .. }));
        assert!(matches!(read(500, Some(1)), ApiError::Unknown { .. }));
        assert!(matches!(read(404, None), ApiError::NotFound(_)));
        assert!(matches!(of(500, "InternalError", Some(1)), ApiError::Unknown { .. }));
        assert!(matches!(of(504, "Timeout", Some(1)), ApiError::Unknown { .. }));
    }

    #[test]
    fn error_chain_contains_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Caused(&'static str, #[source] std::io::Error);
        for (message, want) in [("cannot read", "cannot read: gone"), ("cannot read: gone", "cannot read: gone")] {
            assert_eq!(error_chain(&Caused(message, std::io::Error::other("gone"))), want);
        }
    }

    #[test]
    fn only_a_404_that_names_the_object_proves_its_absence() {
        let of = |code, body: &str| {
            let status: Status = serde_json::from_str(body).unwrap();
            ApiError::from_status(Status { code, ..status }, None)
        };
        let named = r#"{"reason":"NotFound","details":{"name":"a","kind":"jobs"}}"#;
        assert!(of(404, named).is_absence_of("a") && !of(404, named).is_absence_of("b"));
        assert!(!of(409, named).is_absence_of("a"));
        assert!(!of(404, r#"{"reason":"NotFound","details":{}}"#).is_absence_of("a"), "its kind is not served");
        assert!(!of(404, "{}").is_absence_of("a"), "the response of a proxy");
        assert!(!ApiError::unknown("a").is_absence_of("a"));
    }
}
