//! One pass over the content of one namespace: pods first, then every other kind independently.

use std::time::Duration;

use api::{Atom, Meta, Resource, Uid};
use client::discovery::ServedResource;
use client::{ApiError, DeleteOptions, ListOptions, NotSent, Propagation};
use clock::Instant;
use futures::{StreamExt, future, stream};

use crate::{
    Ctx,
    rules::{
        conditions::Findings,
        grace,
        kinds::{self, Pods},
        remains::{Remains, RemainsState, Target},
    },
    terminating::KindRequest,
};

/// Kinds processed at a time. Ten workers then use fewer streams than an API server allows on a connection (100).
const CONCURRENT_KINDS: usize = 8;
/// The time limit of a kind. A kind that exceeds it is last in the next pass and then gets the remaining time of that
/// pass.
const KIND_TIMEOUT: Duration = Duration::from_secs(10);
/// Objects of one kind deleted at a time if the kind has no deletecollection.
const CONCURRENT_DELETES: usize = 4;
/// Page size of a list that is read to its end.
const PAGE_SIZE: u32 = 500;

/// One pass and its limits.
pub(crate) struct Sweep<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) namespace: &'a Atom,
    pub(crate) uid: &'a Uid,
    /// Older proofs do not count.
    pub(crate) since: Instant,
    /// API servers may still admit pods, even if a list shows none. While a kind that protects pods remains, nothing
    /// but pods is deleted.
    pub(crate) early: bool,
    /// Requests that are not answered by then fail.
    pub(crate) deadline: Instant,
}

/// The result of a pass.
#[derive(Debug, Default)]
pub(crate) struct SweepResult {
    pub(crate) findings: Findings,
    /// Pods remain, and everything else waits for them.
    pub(crate) pods_remain: bool,
}

/// What remains of one kind.
#[derive(Debug, Default)]
struct KindResult {
    remains: Remains,
    /// Seconds until it may be gone.
    estimate: u64,
    error: Option<String>,
    /// It could not be counted.
    uncounted: bool,
    /// It did not respond in time.
    late: bool,
    /// It was not requested, though it was not late before.
    skipped: bool,
}

impl KindResult {
    /// The result if it is unknown what remains.
    fn failed(error: String) -> Self {
        Self { error: Some(error), uncounted: true, ..Self::default() }
    }

    /// The result if `remains` should be gone already.
    fn stuck(remains: Remains, error: String) -> Self {
        Self { remains, error: Some(error), ..Self::default() }
    }

    /// True if something remains or may remain, so the next step must wait.
    fn must_wait(&self) -> bool {
        self.remains.count > 0 || self.error.is_some()
    }

    fn timed_out(kind: &Resource) -> Self {
        Self { late: true, ..Self::failed(format!("{kind}: not answered in time")) }
    }
}

impl Sweep<'_> {
    /// Deletes what can be deleted and returns what remains. A kind that fails does not stop the others. Only pods do:
    /// while a pod remains, the objects that protect it or that it uses must stay.
    pub(crate) async fn run(&self) -> SweepResult {
        let asked = self.ctx.discoveries.requested_since(&self.ctx.api, self.since);
        let Ok(discovery) = tokio::time::timeout_at(self.deadline, asked).await else {
            let findings = Findings::failed_discovery("discovery was not answered in time");
            return SweepResult { findings, pods_remain: false };
        };
        let mut findings = Findings::from_discovery(&discovery);
        let kinds = kinds::kinds(&discovery);
        if discovery.is_complete() {
            let served = kinds.iter().map(|it| &it.resource).collect();
            self.ctx.terminating.retain_kinds(self.uid, &served);
            self.ctx.cluster_lists.retain_kinds(&served);
        }
        match kinds::pods(&discovery, &kinds) {
            Pods::Unknown => return SweepResult { findings, pods_remain: false },
            Pods::NotServed => {}
            Pods::Served(pods) => {
                let result = self.delete_kind(pods).await;
                let pods_remain = result.remains.count > 0;
                let must_wait = result.must_wait();
                result.add_to(&pods.resource, &mut findings);
                if must_wait {
                    findings.uncounted = true;
                    return SweepResult { findings, pods_remain };
                }
            }
        }
        if self.early && (!discovery.is_complete() || self.has_pod_protection(&kinds, &mut findings).await) {
            findings.uncounted = true;
            return SweepResult { findings, pods_remain: false };
        }
        // An early pass must not delete kinds that protect pods, also not objects created since the count.
        let is_next =
            |it: &&&ServedResource| !(is_pods(&it.resource) || self.early && kinds::protects_pods(&it.resource));
        let mut others: Vec<&ServedResource> = kinds.iter().filter(is_next).copied().collect();
        // Kinds that were late come last, so they delay only each other. Of the others the one with the oldest request
        // is first, because a slow pass may end before it has requested all.
        others.sort_by_key(|it| self.ctx.terminating.last_request(self.uid, &it.resource));
        let all = others.iter().map(|kind| async move { (kind, self.delete_kind(kind).await) });
        let all: Vec<_> = all.collect();
        let mut all = stream::iter(all).buffer_unordered(CONCURRENT_KINDS);
        while let Some((kind, result)) = all.next().await {
            result.add_to(&kind.resource, &mut findings);
        }
        SweepResult { findings, pods_remain: false }
    }

    /// True unless it is proved that no object that protects pods remains. Such an object may be deleted together with
    /// any owner of it, so everything stays until no API server admits pods any more.
    async fn has_pod_protection(&self, kinds: &[&ServedResource], findings: &mut Findings) -> bool {
        let shields = kinds.iter().filter(|it| kinds::protects_pods(&it.resource));
        let all = shields.map(|kind| async move { (kind, self.with_time_limit(kind, self.count(kind)).await) });
        let mut is_protected = false;
        for (kind, result) in future::join_all(all).await {
            is_protected |= result.must_wait();
            result.add_to(&kind.resource, findings);
        }
        is_protected
    }

    /// Counts what remains of a kind without deleting.
    async fn count(&self, kind: &ServedResource) -> KindResult {
        if self.is_absent(kind).await {
            return KindResult::default();
        }
        match self.list_remaining(kind).await {
            Ok(Some(remains)) => KindResult { remains, ..KindResult::default() },
            // Another API server may serve the kind already.
            Ok(None) => KindResult::failed(format!("{}: not found", kind.resource)),
            Err(error) => KindResult::failed(error),
        }
    }

    /// Deletes all objects of one kind, unless it is already proved empty.
    async fn delete_kind(&self, kind: &ServedResource) -> KindResult {
        let work =
            async { if self.is_absent(kind).await { KindResult::default() } else { self.delete_and_list(kind).await } };
        self.with_time_limit(kind, work).await
    }

    /// Limits the time of `work` on one kind, and records whether it was late.
    async fn with_time_limit(&self, kind: &ServedResource, work: impl Future<Output = KindResult>) -> KindResult {
        let Ctx { terminating, clock, .. } = self.ctx;
        let kind = &kind.resource;
        let begun = clock.now();
        if terminating.is_empty_since(self.uid, kind, self.since) {
            terminating.record_request(self.uid, kind, KindRequest { late: false, begun });
            return KindResult::default();
        }
        if let Err(err) = self.check_not_stopping() {
            return KindResult::failed(err.to_string());
        }
        let was_late = terminating.last_request(self.uid, kind).is_some_and(|it| it.late);
        let limit = if was_late { self.deadline } else { self.deadline.min(begun + KIND_TIMEOUT) };
        if begun >= limit {
            return KindResult { skipped: !was_late, ..KindResult::timed_out(kind) };
        }
        let result = tokio::time::timeout_at(limit, work).await;
        let late = clock.now() >= begun + KIND_TIMEOUT;
        terminating.record_request(self.uid, kind, KindRequest { late, begun });
        result.map_or_else(|_| KindResult::timed_out(kind), |result| KindResult { late, ..result })
    }

    /// Checked before each of a series of requests: a stop waits only for requests in flight.
    fn check_not_stopping(&self) -> Result<(), ApiError> {
        if self.ctx.stopping.is_cancelled() { Err(ApiError::NotSent(NotSent::Stopping)) } else { Ok(()) }
    }

    async fn is_absent(&self, kind: &ServedResource) -> bool {
        let Ctx { api, terminating, cluster_lists, .. } = self.ctx;
        kind.has_verb("list")
            && cluster_lists.is_absent(api, &kind.resource, self.namespace, self.since, terminating.len()).await
    }

    /// Requests the deletion of all objects of a kind, then lists what remains.
    async fn delete_and_list(&self, kind: &ServedResource) -> KindResult {
        let Ctx { terminating, .. } = self.ctx;
        if kind.has_verb("list") && terminating.has_requested_delete(self.uid, &kind.resource) {
            match self.list_remaining(kind).await {
                // Another request would change nothing.
                Ok(Some(remains)) if remains.to_delete.is_empty() => return self.result_for(kind, remains),
                Ok(_) => {}
                Err(error) => return KindResult::failed(error),
            }
        }
        if !terminating.contains(self.uid) {
            // The namespace was observed deleted. A namespace of its name is now another one.
            return KindResult::default();
        }
        let deleted = self.delete(kind).await;
        if deleted.is_ok() {
            terminating.record_delete_request(self.uid, &kind.resource);
        }
        // List also after a failure, so that the conditions show what remains.
        match (deleted, self.list_remaining(kind).await) {
            (Ok(()), Ok(Some(remains))) => self.result_for(kind, remains),
            // A starting server answers 404 for its kinds. Everything waits for pods, so a 404 must not count as "no
            // pods".
            (Ok(()), Ok(None)) if is_pods(&kind.resource) => KindResult::failed("pods: not found".to_owned()),
            // A kind that can be neither listed nor deleted as a collection is assumed to be gone.
            (Ok(()), Ok(None)) => KindResult::default(),
            (Ok(()), Err(error)) => KindResult::failed(error),
            (Err(_), Ok(Some(remains))) if remains.count == 0 => self.result_for(kind, remains),
            (Err(error), Ok(Some(remains))) => KindResult::stuck(remains, error),
            (Err(error), _) => KindResult::failed(error),
        }
    }

    fn result_for(&self, kind: &ServedResource, remains: Remains) -> KindResult {
        let now = self.ctx.clock.wall().as_second();
        // Only pods have a grace period. For other kinds deletionTimestamp is the time of the request.
        let grace = if is_pods(&kind.resource) { grace::remaining(remains.latest_deletion, now) } else { 0 };
        match remains.state(&kind.resource, self.namespace, grace) {
            RemainsState::Gone => KindResult::default(),
            RemainsState::Pending(estimate) => KindResult { remains, estimate, ..KindResult::default() },
            RemainsState::Stuck(error) => KindResult::stuck(remains, error),
        }
    }

    /// Requests the deletion of all objects of a kind: with deletecollection, or one by one if that is not served.
    ///
    /// The propagation is always background, because the default of some kinds would orphan their dependents.
    async fn delete(&self, kind: &ServedResource) -> Result<(), String> {
        let Ctx { api, .. } = self.ctx;
        self.check_not_stopping().map_err(|err| err.to_string())?;
        if kind.has_verb("deletecollection") {
            match api.delete_collection(&kind.resource, self.namespace, Propagation::Background).await {
                Ok(()) => return Ok(()),
                // Not cached: a kind that appears or disappears answers 404 for a while.
                Err(err) if is_unsupported(&err) => {}
                Err(err) => return Err(format!("{}: {err}", kind.resource)),
            }
        }
        let Some(remains) = self.list_remaining(kind).await? else { return Ok(()) };
        for some in remains.to_delete.chunks(CONCURRENT_DELETES) {
            self.check_not_stopping().map_err(|err| err.to_string())?;
            // Wait for all responses, also if one of the requests failed.
            let answers = future::join_all(some.iter().map(|it| self.delete_one(&kind.resource, it))).await;
            answers.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    async fn delete_one(&self, kind: &Resource, object: &Target) -> Result<(), String> {
        let Target { name, uid } = object;
        let (propagation, uid) = (Some(Propagation::Background), Some(uid.clone()));
        let options = DeleteOptions { propagation, uid, ..DeleteOptions::default() };
        match self.ctx.api.delete(kind, self.namespace, name, &options).await {
            // Another object has this name now. The next list finds it.
            Ok(()) | Err(ApiError::Conflict(_)) => Ok(()),
            Err(err) if is_unsupported(&err) => Ok(()),
            Err(err) => Err(format!("{kind} {name}: {err}")),
        }
    }

    /// Lists what remains of a kind; `None` if the kind has no list. An empty list is recorded.
    async fn list_remaining(&self, kind: &ServedResource) -> Result<Option<Remains>, String> {
        if !kind.has_verb("list") {
            return Ok(None);
        }
        let at = self.ctx.clock.now();
        let listed = match self.list_pages(&kind.resource, PAGE_SIZE).await {
            // The resourceVersion of the pages expired: list everything in one page.
            Err(ApiError::Gone(_)) => self.list_pages(&kind.resource, 0).await,
            listed => listed,
        };
        match listed {
            Ok(remains) => {
                if remains.count == 0 {
                    self.ctx.terminating.record_empty(self.uid, &kind.resource, at);
                }
                Ok(Some(remains))
            }
            Err(err) if is_unsupported(&err) => Ok(None),
            Err(err) => Err(format!("{}: {err}", kind.resource)),
        }
    }

    async fn list_pages(&self, kind: &Resource, limit: u32) -> Result<Remains, ApiError> {
        let mut remains = Remains::default();
        let mut options = ListOptions { limit, ..ListOptions::default() };
        loop {
            self.check_not_stopping()?;
            let page = self.ctx.api.list_metadata(kind, Some(self.namespace), &options).await?;
            let now = self.ctx.clock.wall().as_second();
            page.items.iter().for_each(|it| remains.add(meta_of(it), now));
            if page.next.is_empty() {
                return Ok(remains);
            }
            options.next = page.next;
        }
    }
}

impl KindResult {
    fn add_to(self, kind: &Resource, findings: &mut Findings) {
        let Self { remains, estimate, error, uncounted, late, skipped } = self;
        findings.add_remaining(kind, &remains);
        findings.uncounted |= uncounted;
        findings.any_late |= late;
        findings.any_skipped |= skipped;
        findings.estimate = findings.estimate.max(estimate);
        findings.errors.extend(error);
    }
}

fn meta_of(item: &Result<Meta, (Meta, String)>) -> &Meta {
    match item {
        Ok(meta) => meta,
        Err((meta, _)) => meta,
    }
}

fn is_pods(kind: &Resource) -> bool {
    kind.group.is_empty() && &*kind.plural == "pods"
}

/// 404 and 405: the kind is not served now, or does not support this verb.
fn is_unsupported(err: &ApiError) -> bool {
    matches!(err.code(), 404 | 405)
}
