//! The requests of workers about objects. A type that responds late uses only some of the workers, for every kind of
//! request.

use std::{error::Error, time::Duration};

use api::{Meta, Resource, Status};
use client::{Api, ApiError, DeleteOptions, Patch, Written};
use clock::Clock;

use crate::late_types::{LATE_AFTER, LateTypes, Postponed};

/// Marks an error of this file, to distinguish it from errors of the server.
const LATE_TYPE: &str = "AnswersLate";

pub(crate) struct Requests {
    api: Api,
    clock: Clock,
    late: LateTypes,
}

impl Requests {
    pub(crate) fn new(api: Api, workers: usize, clock: Clock) -> Self {
        Self { api, late: LateTypes::new(workers, clock.clone()), clock }
    }

    pub(crate) async fn get_metadata(&self, of: &Resource, namespace: &str, name: &str) -> Result<Meta, ApiError> {
        self.read(of, self.api.get_metadata(of, namespace, name)).await?
    }

    pub(crate) async fn get_raw_metadata(
        &self,
        of: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<impl AsRef<[u8]> + use<>, ApiError> {
        self.read(of, self.api.get_raw_metadata(of, namespace, name)).await?
    }

    pub(crate) async fn patch(
        &self,
        of: &Resource,
        namespace: &str,
        name: &str,
        patch: &Patch,
    ) -> Result<Written, ApiError> {
        self.write(of, self.api.patch(of, namespace, name, None, patch)).await?
    }

    pub(crate) async fn delete(
        &self,
        of: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        self.write(of, self.api.delete(of, namespace, name, options)).await?
    }

    /// Waits for a read of another worker. The wait may be cancelled.
    pub(crate) async fn read<T>(&self, of: &Resource, answer: impl Future<Output = T>) -> Result<T, ApiError> {
        let limited = self.late.limit(of, self.late_after(), answer).await;
        limited.map_err(|(Postponed::NotSent(wait) | Postponed::Cancelled(wait))| postponed_error(of, wait))
    }

    async fn write<T>(&self, of: &Resource, answer: impl Future<Output = T>) -> Result<T, ApiError> {
        self.late.limit(of, self.late_after(), answer).await.map_err(|postponed| match postponed {
            Postponed::NotSent(wait) => postponed_error(of, wait),
            Postponed::Cancelled(_) => {
                ApiError::unknown(format!("no answer within {LATE_AFTER:?}, and enough workers wait for {of}"))
            }
        })
    }

    /// Adds the wait for our own rate limiter, because it is not caused by the type.
    fn late_after(&self) -> Duration {
        LATE_AFTER.saturating_add(self.api.rate_limiter_delay(self.clock.now()))
    }
}

fn postponed_error(of: &Resource, wait: Duration) -> ApiError {
    let message = format!("{of} answers late, and enough workers wait for it");
    let status = Status { code: 429, reason: LATE_TYPE.to_owned(), message, ..Status::default() };
    ApiError::Busy { after: Some(wait), status: Box::new(status) }
}

/// The retry delay, if the only reason of the error is a type that responds late.
pub(crate) fn postponed_for(err: &(dyn Error + 'static)) -> Option<Duration> {
    let mut cause = Some(err);
    while let Some(err) = cause {
        if let Some(ApiError::Busy { after, status }) = err.downcast_ref()
            && status.reason == LATE_TYPE
        {
            return *after;
        }
        cause = err.source();
    }
    None
}
