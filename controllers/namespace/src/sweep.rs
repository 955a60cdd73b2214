//! One pass over the content of one namespace: pods first, then every other kind independently.

use std::time::Duration;

use api::{Atom, Meta, Resource, Uid};
use client::{ApiError, DeleteOptions, ListOptions, NotSent, Propagation};
use clock::Instant;
use discovery::Served;
use futures::{StreamExt, future, stream};

use crate::{
    Ctx,
    conditions::Findings,
    grace,
    kinds::{self, Pods},
    memory::Turn,
    remains::{Judgement, Remains, Target},
};

/// Kinds processed at a time. Ten workers then use fewer streams than an API server allows on a connection (100).
const KINDS: usize = 8;
/// The time limit of a kind. A kind that exceeds it is last in the next pass and then gets the remaining time of that
/// pass.
const ANSWER: Duration = Duration::from_secs(10);
/// Objects of one kind deleted at a time if the kind has no deletecollection.
const OBJECTS: usize = 4;
/// Page size of a list that is read to its end.
const PAGE: u32 = 500;

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
pub(crate) struct Swept {
    pub(crate) findings: Findings,
    /// Pods remain, and everything else waits for them.
    pub(crate) pods_remain: bool,
}

/// What remains of one kind.
#[derive(Debug, Default)]
struct Left {
    remains: Remains,
    /// Seconds until it may be gone.
    estimate: u64,
    error: Option<String>,
    /// It could not be counted.
    uncounted: bool,
    /// It did not respond in time.
    late: bool,
    /// It was not asked, though it was not late before.
    unasked: bool,
}

impl Left {
    /// The result if it is unknown what remains.
    fn failed(error: String) -> Self {
        Self { error: Some(error), uncounted: true, ..Self::default() }
    }

    /// The result if `remains` should be gone already.
    fn stuck(remains: Remains, error: String) -> Self {
        Self { remains, error: Some(error), ..Self::default() }
    }

    /// True if something remains or may remain, so the next step must wait.
    fn stops(&self) -> bool {
        self.remains.count > 0 || self.error.is_some()
    }

    fn late(kind: &Resource) -> Self {
        Self { late: true, ..Self::failed(format!("{kind}: not answered in time")) }
    }
}

impl Sweep<'_> {
    /// Deletes what can be deleted and returns what remains. A kind that fails does not stop the others. Only pods do:
    /// while a pod remains, the objects that protect it or that it uses must stay.
    pub(crate) async fn run(&self) -> Swept {
        let asked = self.ctx.discoveries.since(&self.ctx.api, self.since);
        let Ok(discovery) = tokio::time::timeout_at(self.deadline, asked).await else {
            let findings = Findings::without_discovery("discovery was not answered in time");
            return Swept { findings, pods_remain: false };
        };
        let mut findings = Findings::of(&discovery);
        let kinds = kinds::kinds(&discovery);
        if discovery.is_whole() {
            let served = kinds.iter().map(|it| &it.resource).collect();
            self.ctx.memory.retain_kinds(self.uid, &served);
            self.ctx.emptiness.retain_kinds(&served);
        }
        match kinds::pods(&discovery, &kinds) {
            Pods::Unknown => return Swept { findings, pods_remain: false },
            Pods::NotServed => {}
            Pods::Served(pods) => {
                let left = self.empty(pods).await;
                let pods_remain = left.remains.count > 0;
                let stops = left.stops();
                left.tell(&pods.resource, &mut findings);
                if stops {
                    findings.uncounted = true;
                    return Swept { findings, pods_remain };
                }
            }
        }
        if self.early && (!discovery.is_whole() || self.pods_are_shielded(&kinds, &mut findings).await) {
            findings.uncounted = true;
            return Swept { findings, pods_remain: false };
        }
        // An early pass must not delete kinds that protect pods, also not objects created since the count.
        let follows = |it: &&&Served| !(is_pods(&it.resource) || self.early && kinds::shields_pods(&it.resource));
        let mut others: Vec<&Served> = kinds.iter().filter(follows).copied().collect();
        // Kinds that were late come last, so they delay only each other. Of the others the one with the oldest request
        // is first, because a slow pass may end before it has asked all.
        others.sort_by_key(|it| self.ctx.memory.last_turn(self.uid, &it.resource));
        let all = others.iter().map(|kind| async move { (kind, self.empty(kind).await) });
        let all: Vec<_> = all.collect();
        let mut all = stream::iter(all).buffer_unordered(KINDS);
        while let Some((kind, left)) = all.next().await {
            left.tell(&kind.resource, &mut findings);
        }
        Swept { findings, pods_remain: false }
    }

    /// True unless it is proved that no object that protects pods remains. Such an object may be deleted together with
    /// any owner of it, so everything stays until no API server admits pods any more.
    async fn pods_are_shielded(&self, kinds: &[&Served], findings: &mut Findings) -> bool {
        let shields = kinds.iter().filter(|it| kinds::shields_pods(&it.resource));
        let all = shields.map(|kind| async move { (kind, self.in_time(kind, self.count(kind)).await) });
        let mut shielded = false;
        for (kind, left) in future::join_all(all).await {
            shielded |= left.stops();
            left.tell(&kind.resource, findings);
        }
        shielded
    }

    /// Counts what remains of a kind without deleting.
    async fn count(&self, kind: &Served) -> Left {
        if self.is_absent(kind).await {
            return Left::default();
        }
        match self.look(kind).await {
            Ok(Some(remains)) => Left { remains, ..Left::default() },
            // Another API server may serve the kind already.
            Ok(None) => Left::failed(format!("{}: not found", kind.resource)),
            Err(error) => Left::failed(error),
        }
    }

    /// Deletes all objects of one kind, unless it is already proved empty.
    async fn empty(&self, kind: &Served) -> Left {
        let work = async { if self.is_absent(kind).await { Left::default() } else { self.clear(kind).await } };
        self.in_time(kind, work).await
    }

    /// Limits the time of `work` on one kind, and records whether it was late.
    async fn in_time(&self, kind: &Served, work: impl Future<Output = Left>) -> Left {
        let Ctx { memory, clock, .. } = self.ctx;
        let kind = &kind.resource;
        let begun = clock.now();
        if memory.is_empty_since(self.uid, kind, self.since) {
            memory.record_turn(self.uid, kind, Turn { late: false, begun });
            return Left::default();
        }
        if let Err(err) = self.goes_on() {
            return Left::failed(err.to_string());
        }
        let was_late = memory.last_turn(self.uid, kind).is_some_and(|it| it.late);
        let limit = if was_late { self.deadline } else { self.deadline.min(begun + ANSWER) };
        if begun >= limit {
            return Left { unasked: !was_late, ..Left::late(kind) };
        }
        let left = tokio::time::timeout_at(limit, work).await;
        let late = clock.now() >= begun + ANSWER;
        memory.record_turn(self.uid, kind, Turn { late, begun });
        left.map_or_else(|_| Left::late(kind), |left| Left { late, ..left })
    }

    /// Checked before each of a series of requests: a stop waits only for requests in flight.
    fn goes_on(&self) -> Result<(), ApiError> {
        if self.ctx.stopping.is_cancelled() { Err(ApiError::NotSent(NotSent::Stopping)) } else { Ok(()) }
    }

    async fn is_absent(&self, kind: &Served) -> bool {
        let Ctx { api, memory, emptiness, .. } = self.ctx;
        kind.offers("list") && emptiness.is_absent(api, &kind.resource, self.namespace, self.since, memory.len()).await
    }

    /// Requests the deletion of all objects of a kind, then lists what remains.
    async fn clear(&self, kind: &Served) -> Left {
        let Ctx { memory, .. } = self.ctx;
        if kind.offers("list") && memory.has_asked(self.uid, &kind.resource) {
            match self.look(kind).await {
                // Another request would change nothing.
                Ok(Some(remains)) if remains.to_delete.is_empty() => return self.judge(kind, remains),
                Ok(_) => {}
                Err(error) => return Left::failed(error),
            }
        }
        if !memory.holds(self.uid) {
            // The namespace was observed deleted. A namespace of its name is now another one.
            return Left::default();
        }
        let deleted = self.delete(kind).await;
        if deleted.is_ok() {
            memory.asks(self.uid, &kind.resource);
        }
        // List also after a failure, so that the conditions show what remains.
        match (deleted, self.look(kind).await) {
            (Ok(()), Ok(Some(remains))) => self.judge(kind, remains),
            // A starting server answers 404 for its kinds. Everything waits for pods, so a 404 must not count as "no
            // pods".
            (Ok(()), Ok(None)) if is_pods(&kind.resource) => Left::failed("pods: not found".to_owned()),
            // A kind that can be neither listed nor deleted as a collection is assumed to be gone.
            (Ok(()), Ok(None)) => Left::default(),
            (Ok(()), Err(error)) => Left::failed(error),
            (Err(_), Ok(Some(remains))) if remains.count == 0 => self.judge(kind, remains),
            (Err(error), Ok(Some(remains))) => Left::stuck(remains, error),
            (Err(error), _) => Left::failed(error),
        }
    }

    fn judge(&self, kind: &Served, remains: Remains) -> Left {
        let now = self.ctx.clock.wall().as_second();
        // Only pods have a grace period. For other kinds deletionTimestamp is the time of the request.
        let grace = if is_pods(&kind.resource) { grace::remaining(remains.latest_deletion, now) } else { 0 };
        match remains.judge(&kind.resource, self.namespace, grace) {
            Judgement::Gone => Left::default(),
            Judgement::Goes(estimate) => Left { remains, estimate, ..Left::default() },
            Judgement::Stuck(error) => Left::stuck(remains, error),
        }
    }

    /// Requests the deletion of all objects of a kind: with deletecollection, or one by one if that is not served.
    ///
    /// The propagation is always background, because the default of some kinds would orphan their dependents.
    async fn delete(&self, kind: &Served) -> Result<(), String> {
        let Ctx { api, .. } = self.ctx;
        self.goes_on().map_err(|err| err.to_string())?;
        if kind.offers("deletecollection") {
            match api.delete_collection(&kind.resource, self.namespace, Propagation::Background).await {
                Ok(()) => return Ok(()),
                // Not remembered: a kind that appears or disappears answers 404 for a while.
                Err(err) if is_unsupported(&err) => {}
                Err(err) => return Err(format!("{}: {err}", kind.resource)),
            }
        }
        let Some(remains) = self.look(kind).await? else { return Ok(()) };
        for some in remains.to_delete.chunks(OBJECTS) {
            self.goes_on().map_err(|err| err.to_string())?;
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
    async fn look(&self, kind: &Served) -> Result<Option<Remains>, String> {
        if !kind.offers("list") {
            return Ok(None);
        }
        let at = self.ctx.clock.now();
        let listed = match self.list(&kind.resource, PAGE).await {
            // The resourceVersion of the pages expired: list everything in one page.
            Err(ApiError::Gone(_)) => self.list(&kind.resource, 0).await,
            listed => listed,
        };
        match listed {
            Ok(remains) => {
                if remains.count == 0 {
                    self.ctx.memory.shows_empty(self.uid, &kind.resource, at);
                }
                Ok(Some(remains))
            }
            Err(err) if is_unsupported(&err) => Ok(None),
            Err(err) => Err(format!("{}: {err}", kind.resource)),
        }
    }

    async fn list(&self, kind: &Resource, limit: u32) -> Result<Remains, ApiError> {
        let mut remains = Remains::default();
        let mut options = ListOptions { limit, ..ListOptions::default() };
        loop {
            self.goes_on()?;
            let page = self.ctx.api.list_metadata(kind, Some(self.namespace), &options).await?;
            let now = self.ctx.clock.wall().as_second();
            page.items.iter().for_each(|it| remains.note(meta_of(it), now));
            if page.next.is_empty() {
                return Ok(remains);
            }
            options.next = page.next;
        }
    }
}

impl Left {
    fn tell(self, kind: &Resource, findings: &mut Findings) {
        let Self { remains, estimate, error, uncounted, late, unasked } = self;
        findings.remain(kind, &remains);
        findings.uncounted |= uncounted;
        findings.late |= late;
        findings.unasked |= unasked;
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
