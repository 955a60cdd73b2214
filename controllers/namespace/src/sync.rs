//! Syncs one terminating namespace, top to bottom: phase, content, conditions, finalize. Every step depends on a live
//! read.

use std::{collections::BTreeSet, time::Duration};

use api::{Atom, Namespace, NamespacePhase, Typed, Uid};
use client::{ApiError, Written};
use controller::Outcome;

use crate::{
    Ctx,
    rules::{
        conditions::{self, Findings},
        grace,
    },
    slow_limit::RETRY_AFTER,
    sweep::{Sweep, SweepResult},
    terminating::{PassEnd, SlowPasses, Summary},
};

/// The entry of `spec.finalizers` that this controller removes.
const TOKEN: &str = "kubernetes";
/// How long one pass may use a worker.
const PASS_LIMIT: Duration = Duration::from_secs(30);
/// The limit for a namespace whose last pass was slow. Only half of the workers run such passes at a time. It is longer
/// than the longest request, so that a large collection makes progress.
const SLOW_PASS_LIMIT: Duration = Duration::from_secs(75);
/// A pass proves nothing for the next one. So each pass that ended before it had requested all kinds lengthens the next
/// by [`SLOW_PASS_LIMIT`], up to this many times.
const MAX_PASS_FACTOR: u32 = 8;
/// After this many conflicts another client writes the namespace all the time, so the key backs off.
const ATTEMPTS: u32 = 5;
/// The pause before the second attempt. It doubles with each further attempt, and half of it is random.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a sync did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the namespace")]
    Read(#[source] ApiError),
    #[error("cannot {step}")]
    Write {
        step: &'static str,
        #[source]
        source: ApiError,
    },
    #[error("namespace uid has changed across retries: it was {was}, it is {is}")]
    Replaced { was: Uid, is: Uid },
    #[error("cannot encode the status")]
    Encode(#[source] serde_json::Error),
    #[error("content is not deleted: {0}")]
    Content(String),
}

/// Syncs one terminating namespace.
pub(crate) async fn sync(ctx: &Ctx, name: &Atom) -> Result<Outcome, SyncError> {
    let Some(namespace) = read(ctx, name).await? else { return Ok(Outcome::Done) };
    if namespace.meta.deletion.is_none() {
        return Ok(Outcome::Done);
    }
    let uid = namespace.meta.uid.clone();
    // Our own watch does not show it terminating yet, and its event will enqueue it; or the watch has shown its
    // deletion.
    let Some(schedule) = ctx.terminating.schedule(&uid) else { return Ok(Outcome::Done) };
    let now = ctx.clock.now();
    if now < schedule.begin {
        return Ok(Outcome::After(schedule.begin - now));
    }
    let Some((namespace, written)) = write_if_needed(ctx, namespace, None, NamespaceWrite::Phase).await? else {
        return Ok(Outcome::Done);
    };
    if NamespaceWrite::Finalize.is_done(&namespace) {
        return Ok(Outcome::Done);
    }

    // A slow namespace must not block others: slow ones share half of the workers and pause between passes. That is
    // neither a success nor a failure, so their back-off does not change.
    let slow = ctx.terminating.slow_passes(&uid);
    let _permit = match slow {
        None => None,
        Some(SlowPasses { paused_until, .. }) if now < paused_until => return Ok(Outcome::Parked(paused_until - now)),
        Some(_) => match ctx.slow_limit.try_acquire(&uid, now) {
            Some(permit) => Some(permit),
            None => return Ok(Outcome::Parked(RETRY_AFTER)),
        },
    };
    ctx.terminating.begin_pass(&uid);
    // Whether the namespace may be finalized must be decided before its content is listed, never after.
    let (early, since) = (schedule.is_early(now), schedule.since(now));
    let deadline = now + slow.map_or(PASS_LIMIT, |it| SLOW_PASS_LIMIT * it.cut.clamp(1, MAX_PASS_FACTOR));
    let sweep = Sweep { ctx, namespace: name, uid: &uid, since, early, deadline };
    let SweepResult { findings, pods_remain } = sweep.run().await;
    let ended = ctx.clock.now();
    let end = match ended.saturating_duration_since(now) {
        _ if findings.any_skipped => PassEnd::Cut,
        took if findings.any_late || took >= PASS_LIMIT => PassEnd::Slow,
        _ => PassEnd::InTime,
    };
    ctx.terminating.end_pass(&uid, end, ended);
    // A pass that was cut short has no result. The next leader starts again.
    if !ctx.terminating.contains(&uid) || ctx.stopping.is_cancelled() {
        return Ok(Outcome::Done);
    }
    if pods_remain {
        ctx.pod_watches.enqueue_on_last_pod(name, || ctx.terminating.contains(&uid));
    } else {
        ctx.pod_watches.remove(name);
    }

    let written = write_conditions(ctx, &namespace, written, &findings).await?;
    let until_ready = early.then(|| schedule.ready.saturating_duration_since(ctx.clock.now()));
    match after_pass(&findings, until_ready) {
        AfterPass::Failed(why) => Err(SyncError::Content(why)),
        AfterPass::Wait(time) => Ok(Outcome::After(time)),
        AfterPass::Finalize => {
            // Read before the finalize request: our watch may show the deletion, which removes the entry, before the
            // response arrives.
            let Summary { passes, kinds } = ctx.terminating.summary(&uid);
            if write_if_needed(ctx, namespace, written, NamespaceWrite::Finalize).await?.is_some() {
                let took = ctx.clock.now().saturating_duration_since(schedule.begin);
                tracing::info!(namespace = %name, %uid, passes, kinds, ?took, "Namespace has been deleted");
            }
            Ok(Outcome::Done)
        }
    }
}

/// What to do after a pass.
#[derive(Debug, PartialEq, Eq)]
enum AfterPass {
    /// Retry with back-off.
    Failed(String),
    /// Sync again after this time.
    Wait(Duration),
    /// The namespace is proved empty: remove the finalizer.
    Finalize,
}

/// Decides what to do after a pass. For a pass that began too early to finalize, `until_ready` is the remaining delay.
fn after_pass(findings: &Findings, until_ready: Option<Duration>) -> AfterPass {
    // While only pods in their grace period remain, a broken API group must not be retried fast.
    let waits = findings.estimate > 0 && findings.errors.is_empty();
    match findings.failure() {
        _ if waits => AfterPass::Wait(grace::retry_after(findings.estimate)),
        Some(why) => AfterPass::Failed(why),
        None => match until_ready {
            // Network policies remain, and everything else waits with them.
            Some(time) => AfterPass::Wait(time),
            None if findings.has_remaining() => AfterPass::Failed("something remains".to_owned()),
            None => AfterPass::Finalize,
        },
    }
}

/// A write of the namespace itself. Other clients may write it too.
#[derive(Debug, Clone, Copy)]
enum NamespaceWrite {
    Phase,
    Finalize,
}

impl NamespaceWrite {
    fn name(self) -> &'static str {
        match self {
            Self::Phase => "set the phase",
            Self::Finalize => "finalize",
        }
    }

    fn is_done(self, namespace: &Namespace) -> bool {
        match self {
            Self::Phase => namespace.phase == NamespacePhase::Terminating,
            Self::Finalize => !namespace.spec_finalizers.iter().any(|it| &**it == TOKEN),
        }
    }

    async fn write(self, ctx: &Ctx, namespace: &Namespace, after: Option<&Written>) -> Result<Written, SyncError> {
        let failed = |source| SyncError::Write { step: self.name(), source };
        match self {
            Self::Phase => {
                let status = namespace.status_with(&NamespacePhase::Terminating, &namespace.conditions);
                let status = status.map_err(SyncError::Encode)?;
                ctx.api.put_status(namespace, after, &status).await.map_err(failed)
            }
            Self::Finalize => {
                let others = namespace.spec_finalizers.iter().filter(|it| &***it != TOKEN).cloned();
                let others: Vec<Atom> = others.collect::<BTreeSet<Atom>>().into_iter().collect();
                let spec = namespace.spec.as_deref();
                let metadata = api::StatusOwner::raw_metadata(namespace);
                ctx.api.finalize(&namespace.meta.name, metadata, after, spec, &others).await.map_err(failed)
            }
        }
    }
}

/// Writes one step unless it is already done. After a conflict it reads the namespace again, a few times. It never
/// writes to a new namespace of the same name. `after` is our last write of the namespace in this sync. `None` if the
/// namespace is gone.
async fn write_if_needed(
    ctx: &Ctx,
    mut namespace: Namespace,
    mut after: Option<Written>,
    step: NamespaceWrite,
) -> Result<Option<(Namespace, Option<Written>)>, SyncError> {
    for attempt in 1.. {
        if step.is_done(&namespace) {
            return Ok(Some((namespace, after)));
        }
        match step.write(ctx, &namespace, after.as_ref()).await {
            Ok(written) => return Ok(Some((namespace, Some(written)))),
            Err(SyncError::Write { source: ApiError::NotFound(_), .. }) => return Ok(None),
            Err(SyncError::Write { source: ApiError::Conflict(_), .. }) if attempt < ATTEMPTS => {}
            Err(err) => return Err(err),
        }
        let random = ctx.rng.lock().f64();
        tokio::time::sleep(pause(attempt, random)).await;
        let name = Atom::from(&*namespace.meta.name);
        let Some(fresh) = read(ctx, &name).await? else { return Ok(None) };
        if fresh.meta.uid != namespace.meta.uid {
            return Err(SyncError::Replaced { was: namespace.meta.uid, is: fresh.meta.uid });
        }
        (namespace, after) = (fresh, None);
    }
    Ok(None)
}

/// The pause between attempts. It grows, and it is random so that two writers do not conflict again.
fn pause(attempt: u32, random: f64) -> Duration {
    PAUSE.saturating_mul(1 << (attempt - 1).min(10)).mul_f64(0.5 + random / 2.0)
}

/// Writes the conditions if they changed. A failure does no harm: deletion continues, and the next pass writes them
/// again.
async fn write_conditions(
    ctx: &Ctx,
    namespace: &Namespace,
    after: Option<Written>,
    findings: &Findings,
) -> Result<Option<Written>, SyncError> {
    let now = ctx.clock.wall().as_second();
    let Some(conditions) = conditions::update(&namespace.conditions, findings, now) else { return Ok(after) };
    let status = namespace.status_with(&NamespacePhase::Terminating, &conditions).map_err(SyncError::Encode)?;
    match ctx.api.put_status(namespace, after.as_ref(), &status).await {
        Ok(written) => Ok(Some(written)),
        Err(err) => {
            tracing::warn!(%err, namespace = %namespace.meta.name, "Cannot write the conditions");
            Ok(after)
        }
    }
}

async fn read(ctx: &Ctx, name: &Atom) -> Result<Option<Namespace>, SyncError> {
    match ctx.api.get::<Namespace>(&Namespace::resource(), "", name).await {
        Ok(namespace) => Ok(Some(namespace)),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(err) => Err(SyncError::Read(err)),
    }
}

#[cfg(test)]
mod tests {
    use api::Resource;

    use super::*;
    use crate::rules::remains::Remains;

    const NOW: Option<Duration> = None;
    const SOON: Option<Duration> = Some(Duration::from_secs(3));

    fn findings(estimate: u64, discovery: Option<&str>, errors: &[&str]) -> Findings {
        let mut findings = Findings::default();
        (findings.estimate, findings.discovery) = (estimate, discovery.map(str::to_owned));
        findings.errors = errors.iter().map(|it| (*it).to_owned()).collect();
        if estimate > 0 || !errors.is_empty() {
            let kind = Resource::namespaced("", "v1", "pods", "Pod");
            findings.add_remaining(&kind, &Remains { count: 1, ..Remains::default() });
        }
        findings
    }

    #[test]
    fn a_namespace_is_finalized_only_when_it_is_empty_without_errors_after_the_delay() {
        let failed = |why: &str| AfterPass::Failed(why.to_owned());
        let secs = |secs| AfterPass::Wait(Duration::from_secs(secs));
        let kept = || {
            let mut findings = findings(1, None, &[]);
            findings.estimate = 0;
            findings
        };
        let cases = [
            ("empty", findings(0, None, &[]), NOW, AfterPass::Finalize),
            ("empty, too early", findings(0, None, &[]), SOON, secs(3)),
            ("empty, the pass was too early", findings(0, None, &[]), Some(Duration::ZERO), secs(0)),
            ("pods are in their grace period", findings(30, None, &[]), NOW, secs(16)),
            ("finalizers remain", findings(15, None, &[]), SOON, secs(8)),
            ("content is kept during the delay", kept(), SOON, secs(3)),
            ("content remains after the delay", kept(), NOW, failed("something remains")),
            ("discovery is incomplete", findings(0, Some("g"), &[]), NOW, failed("g")),
            ("discovery is incomplete, too early", findings(0, Some("g"), &[]), SOON, failed("g")),
            (
                "discovery is incomplete while pods are in their grace period",
                findings(30, Some("g"), &[]),
                NOW,
                secs(16),
            ),
            ("a kind failed", findings(0, None, &["e"]), NOW, failed("e")),
            ("a kind failed while pods are in their grace period", findings(30, None, &["e"]), NOW, failed("e")),
        ];
        for (name, findings, until_ready, want) in cases {
            assert_eq!(after_pass(&findings, until_ready), want, "{name}");
        }
    }

    #[test]
    fn a_successor_error_names_both_uids() {
        let err = SyncError::Replaced { was: Uid::new("one"), is: Uid::new("two") };
        assert_eq!(err.to_string(), "namespace uid has changed across retries: it was one, it is two");
    }

    #[test]
    fn pauses_between_attempts_grow_and_differ() {
        for (attempt, random, millis) in [(1, 0.0, 10), (1, 1.0, 20), (2, 0.0, 20), (4, 1.0, 160)] {
            assert_eq!(pause(attempt, random), Duration::from_millis(millis), "{attempt} {random}");
        }
    }
}
