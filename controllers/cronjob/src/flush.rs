//! Writes what the server was not told, at the end of a term.

use std::time::Duration;

use api::CronJob;
use client::Api;

use crate::{
    Ctx, apply,
    sync::{SyncError, unanswered},
};

/// A server that is busy is asked again so often: with the pauses that is less than controllers may take to stop.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Writes every status that is still in memory. The workers have ended, and the Lease is released after this: a successor
/// would run a time again whose Job is gone by then.
pub(crate) async fn flush(ctx: &Ctx, api: &Api) {
    for attempt in 1..=ATTEMPTS {
        let mut failed = 0;
        for entry in ctx.cron_jobs.store().entries() {
            let Some(cron_job) = entry.readable().filter(|it| ctx.memory.is_untold(&it.meta.uid)) else { continue };
            if let Err(err) = write(ctx, api, cron_job).await {
                failed += 1;
                let (key, err) = (entry.meta().key(), runner::error_chain(&err));
                tracing::warn!(%key, attempt, err, "Cannot write the last status of a term");
            }
        }
        if failed == 0 || attempt == ATTEMPTS {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn write(ctx: &Ctx, api: &Api, cron_job: &CronJob) -> Result<(), SyncError> {
    let uid = &cron_job.meta.uid;
    let mut change = ctx.memory.take(uid).unwrap_or_default();
    let answered = unanswered(ctx, api, cron_job, &[], &mut change).await;
    let written = apply::write_status(ctx, api, cron_job, &change).await;
    if written.is_err() {
        ctx.memory.keep(uid, change);
    }
    written.and(answered)
}
