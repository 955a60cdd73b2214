use std::time::Duration;

use api::Status;
use client::ApiError;

/// Why something was not answered as hoped, cut by what the reflector does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No answer came. The server has not said that our version is lost, so nothing is listed because of it.
    Unreachable,
    /// The server asks for patience.
    Busy(Option<Duration>),
    /// The version, or the continue token, is too old.
    Expired,
    /// The server is behind the version.
    TooLarge,
    /// It will not.
    Other,
}

impl Failure {
    pub(crate) fn of(err: &ApiError) -> Self {
        match err {
            _ if err.is_too_large_version() => Self::TooLarge,
            ApiError::Gone(_) => Self::Expired,
            ApiError::Busy { after, .. } => Self::Busy(*after),
            ApiError::Unknown { status: None, .. } | ApiError::NotSent(_) => Self::Unreachable,
            _ => Self::Other,
        }
    }

    /// Of the status in an ERROR frame, whose code a proxy may have left out.
    pub(super) fn of_status(status: &Status) -> Self {
        match &*status.reason {
            "Expired" | "Gone" => Self::Expired,
            _ => Self::of(&ApiError::from_read(status.clone(), None)),
        }
    }
}
