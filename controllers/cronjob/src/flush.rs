//! Writes the remaining statuses at the end of a term.

use std::time::Duration;

use api::{CronJob, Entry};
use client::{Api, error_chain};
use futures::{StreamExt, stream};

use crate::{
    Ctx,
    sync::{resolve_unanswered_create, write_or_keep},
};

/// How often the writes are tried while the server is busy. With a slow server `--controller-shutdown-timeout` ends
/// this earlier.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum of concurrent status writes.
const WRITES: usize = 16;

/// Writes every status that is still in memory. The workers have stopped and the Lease is released after this.
/// Otherwise the next leader would run a time again if its Job has been deleted by then.
pub(crate) async fn flush(ctx: &Ctx, api: &Api) {
    for attempt in 1..=ATTEMPTS {
        let entries = ctx.cron_jobs.store().entries();
        let mut writes = Vec::new();
        for cron_job in entries.iter().filter_map(Entry::readable) {
            if ctx.memory.has_unwritten(&cron_job.meta.uid) {
                writes.push(write(ctx, api, cron_job, attempt));
            }
        }
        let written: Vec<bool> = stream::iter(writes).buffer_unordered(WRITES).collect().await;
        if !written.contains(&false) || attempt == ATTEMPTS {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns true when the status is written.
async fn write(ctx: &Ctx, api: &Api, cron_job: &CronJob, attempt: u32) -> bool {
    let uid = &cron_job.meta.uid;
    let mut change = ctx.memory.unwritten(uid).unwrap_or_default();
    let answered = resolve_unanswered_create(ctx, api, cron_job, &[], &mut change).await;
    let written = write_or_keep(ctx, api, cron_job, change).await;
    let Err(err) = written.and(answered) else { return true };
    let (key, err) = (cron_job.meta.as_ref().key(), error_chain(&err));
    tracing::warn!(%key, attempt, err, "Cannot write the last status of a term");
    false
}
