use std::time::Duration;

use api::Status;
use client::ApiError;

/// Why a request failed, by what the reflector does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No response came. The server has not refused our version, so this is no reason to list.
    Unreachable,
    /// The server asks us to retry later.
    Busy(Option<Duration>),
    /// The version or the continue token is too old.
    Expired,
    /// The version is newer than the server's.
    TooLarge,
    /// Any other refusal.
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

    /// From the status of an ERROR frame. A proxy may have removed its code.
    pub(super) fn of_status(status: &Status) -> Self {
        match &*status.reason {
            "Expired" | "Gone" => Self::Expired,
            _ => Self::of(&ApiError::from_read(status.clone(), None)),
        }
    }
}
