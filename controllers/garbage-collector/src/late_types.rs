//! Limits how many requests wait for types that respond late, such as a type whose webhook hangs.
//!
//! A request without a response after a moment needs a permit. Each type has a quarter as many permits as there are
//! workers, and all types together have half as many. Without a permit the request is cancelled, and its worker
//! continues with another item. From then on the type is late: requests for it need a permit before they are sent,
//! until no request has been late for a while.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use api::Resource;
use clock::{Clock, Instant};
use parking_lot::Mutex;

/// One type may use this fraction of the workers.
const SHARE_OF_ONE_TYPE: usize = 4;
/// All types together may use this fraction.
const SHARE_OF_ALL_TYPES: usize = 2;
/// A request without a response after this time is late. The wait for our own rate limiter does not count.
pub(crate) const LATE_AFTER: Duration = Duration::from_secs(1);
/// A type stays late for this long after its last late request.
const LATE_FOR: Duration = Duration::from_secs(10);
/// A postponed item is retried after this time, and after the items that were postponed before it.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The interval between two postponed items, so that the checks for a permit do not cost more than the requests.
const RETRY_SPACING: Duration = Duration::from_millis(5);

pub(crate) struct LateTypes {
    of_each: usize,
    of_all: usize,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    permits: usize,
    /// Types that are late, or that have postponed items.
    types: BTreeMap<Resource, LateType>,
}

struct LateType {
    permits: usize,
    /// The number of late requests in flight.
    late: usize,
    /// The type is late until then.
    until: Instant,
    /// The retry time of the last postponed item.
    next: Instant,
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Postponed {
    /// The request was not sent. Retry after this time.
    NotSent(Duration),
    /// The request was sent, and there was no response in time. Retry after this time.
    Cancelled(Duration),
}

impl LateTypes {
    pub(crate) fn new(workers: usize, clock: Clock) -> Self {
        let (of_each, of_all) = ((workers / SHARE_OF_ONE_TYPE).max(1), (workers / SHARE_OF_ALL_TYPES).max(1));
        Self { of_each, of_all, clock, state: Mutex::default() }
    }

    /// Awaits the response to a request for this type. The request is late after `late_after`.
    pub(crate) async fn limit<T>(
        &self,
        of: &Resource,
        late_after: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Postponed> {
        let early = if self.is_late(of) { Some(self.acquire_permit(of).map_err(Postponed::NotSent)?) } else { None };
        let mut answer = pin!(answer);
        if let Ok(answer) = tokio::time::timeout(late_after, answer.as_mut()).await {
            return Ok(answer);
        }
        let _late = self.mark_late(of);
        let _permit = match early {
            Some(permit) => permit,
            None => self.acquire_permit(of).map_err(Postponed::Cancelled)?,
        };
        Ok(answer.await)
    }

    fn is_late(&self, of: &Resource) -> bool {
        let state = self.state.lock();
        state.types.get(of).is_some_and(|it| it.is_late(self.clock.now()))
    }

    fn acquire_permit<'a>(&'a self, of: &'a Resource) -> Result<Permit<'a>, Duration> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        // A type without a permit comes first: it may only be slow, and the others may hang.
        let another_has_priority = state.types.iter().any(|(it, late)| it != of && late.has_priority(now));
        let is_free = state.permits < self.of_all;
        let late = state.late_type(of, now);
        let has_priority = late.permits == 0 || !another_has_priority;
        if is_free && has_priority && late.permits < self.of_each {
            late.permits += 1;
            state.permits += 1;
            return Ok(Permit { types: self, of });
        }
        late.next = (late.next + RETRY_SPACING).max(now + RETRY_AFTER);
        Err(late.next.saturating_duration_since(now))
    }

    fn mark_late<'a>(&'a self, of: &'a Resource) -> LateRequest<'a> {
        self.state.lock().late_type(of, self.clock.now()).late += 1;
        LateRequest { types: self, of }
    }
}

impl LateType {
    fn is_late(&self, now: Instant) -> bool {
        self.late > 0 || now < self.until
    }

    /// True for a late type without a permit that has a postponed item, until shortly after its retry. A type that is
    /// no longer late needs no permit.
    fn has_priority(&self, now: Instant) -> bool {
        self.permits == 0 && self.is_late(now) && now < self.next + RETRY_AFTER
    }
}

impl State {
    fn late_type(&mut self, of: &Resource, now: Instant) -> &mut LateType {
        if !self.types.contains_key(of) {
            self.types.retain(|_, it| it.permits > 0 || it.late > 0 || now < it.until || now < it.next);
        }
        self.types.entry(of.clone()).or_insert(LateType { permits: 0, late: 0, until: now, next: now })
    }
}

/// Held while a late request waits for a response.
struct Permit<'a> {
    types: &'a LateTypes,
    of: &'a Resource,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.types.state.lock();
        state.permits = state.permits.saturating_sub(1);
        if let Some(late) = state.types.get_mut(self.of) {
            late.permits = late.permits.saturating_sub(1);
        }
    }
}

/// A late request, until its response or its cancellation.
struct LateRequest<'a> {
    types: &'a LateTypes,
    of: &'a Resource,
}

impl Drop for LateRequest<'_> {
    fn drop(&mut self) {
        let until = self.types.clock.now() + LATE_FOR;
        if let Some(late) = self.types.state.lock().types.get_mut(self.of) {
            late.late = late.late.saturating_sub(1);
            late.until = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn resource(number: usize) -> Resource {
        Resource::namespaced("example.com", "v1", &format!("r{number}"), "R")
    }

    struct Bench {
        types: Arc<LateTypes>,
        clock: Clock,
        hung: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Bench {
        fn new(workers: usize) -> Self {
            let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
            Self { types: Arc::new(LateTypes::new(workers, clock.clone())), clock, hung: Vec::new() }
        }

        /// Sends `of_each` requests for each of `types` types; none gets a response.
        fn hang(&mut self, types: usize, of_each: usize) {
            for number in 0..types * of_each {
                let types_ = self.types.clone();
                let of = resource(number % types);
                self.hung.push(tokio::spawn(async move {
                    let _ = types_.limit(&of, LATE_AFTER, pending::<()>()).await;
                }));
            }
        }

        fn waiting(&self) -> usize {
            self.hung.iter().filter(|it| !it.is_finished()).count()
        }

        async fn end(&mut self) {
            self.hung.drain(..).for_each(|it| it.abort());
            tokio::task::yield_now().await;
        }

        async fn request(&self, number: usize, takes: Duration) -> (Result<(), Postponed>, Duration) {
            let came = self.clock.now();
            let answer = self.types.limit(&resource(number), LATE_AFTER, tokio::time::sleep(takes)).await;
            (answer, self.clock.now() - came)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_type_that_answers_in_time_has_no_limit() {
        let bench = Bench::new(4);
        let all = (0..100).map(|_| bench.request(0, LATE_AFTER - MS));
        let all = futures::future::join_all(all).await;
        assert!(all.iter().all(|it| *it == (Ok(()), LATE_AFTER - MS)), "{all:?}");
        assert!(bench.types.state.lock().types.is_empty(), "and no entry remains");
    }

    #[tokio::test(start_paused = true)]
    async fn one_late_type_holds_a_quarter_of_the_workers_and_all_together_half() {
        for (workers, types, of_each, waiting) in
            [(20, 1, 20, 5), (20, 2, 20, 10), (20, 4, 5, 10), (20, 20, 1, 10), (7, 1, 7, 1), (1, 1, 1, 1)]
        {
            let mut bench = Bench::new(workers);
            bench.hang(types, of_each);
            tokio::time::sleep(LATE_AFTER + MS).await;
            assert_eq!(bench.waiting(), waiting, "{workers} workers, {types} types");
            let (answer, took) = bench.request(0, Duration::ZERO).await;
            if bench.types.acquire_permit(&resource(0)).is_err() {
                assert!(matches!(answer, Err(Postponed::NotSent(_))) && took.is_zero(), "{answer:?}");
            }
            assert_eq!(bench.request(99, MS).await, (Ok(()), MS), "other types are not delayed");
            bench.end().await;
            assert_eq!(bench.types.state.lock().permits, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn postponed_items_are_retried_one_after_the_other() {
        let mut bench = Bench::new(4);
        bench.hang(1, 1);
        tokio::time::sleep(2 * LATE_AFTER).await;
        for late in 0..4 {
            let wait = RETRY_AFTER + late * RETRY_SPACING;
            assert_eq!(bench.request(0, Duration::ZERO).await, (Err(Postponed::NotSent(wait)), Duration::ZERO));
        }
        tokio::time::sleep(5 * RETRY_AFTER).await;
        assert_eq!(
            bench.request(0, Duration::ZERO).await.0,
            Err(Postponed::NotSent(RETRY_AFTER)),
            "no item is queued before it"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_type_is_late_until_no_request_has_been_late_for_a_while() {
        let mut bench = Bench::new(4);
        let is_late = |bench: &Bench| bench.types.is_late(&resource(0));
        assert_eq!(bench.request(0, 3 * LATE_AFTER).await, (Ok(()), 3 * LATE_AFTER), "a permit is free");
        tokio::time::sleep(LATE_FOR - MS).await;
        assert!(is_late(&bench));
        assert_eq!(bench.request(0, MS).await, (Ok(()), MS));
        assert!(!is_late(&bench));
        bench.hang(1, 2);
        tokio::time::sleep(6 * LATE_FOR).await;
        assert!(is_late(&bench), "one request is still late");
        bench.end().await;
        assert!(is_late(&bench));
        tokio::time::sleep(LATE_FOR).await;
        assert!(!is_late(&bench));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_request_without_a_permit_is_cancelled() {
        let mut bench = Bench::new(1);
        bench.hang(1, 1);
        tokio::time::sleep(MS).await;
        assert_eq!(bench.request(0, 2 * LATE_AFTER).await, (Err(Postponed::Cancelled(RETRY_AFTER)), LATE_AFTER));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_type_gets_a_permit_beside_types_that_hang() {
        let mut bench = Bench::new(20);
        bench.hang(2, 5);
        tokio::time::sleep(2 * LATE_AFTER).await;
        assert_eq!(bench.request(7, 2 * LATE_AFTER).await.0, Err(Postponed::Cancelled(RETRY_AFTER)));
        bench.hung[0].abort();
        tokio::task::yield_now().await;
        assert!(
            matches!(bench.request(0, MS).await.0, Err(Postponed::NotSent(_))),
            "the hanging types have four permits"
        );
        tokio::time::sleep(RETRY_AFTER).await;
        assert_eq!(bench.request(7, 2 * LATE_AFTER).await.0, Ok(()), "a permit is free for another type");
        assert_eq!(bench.request(0, MS).await.0, Ok(()), "it needs no permit now");
        bench.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_type_that_recovered_takes_no_permits_from_others() {
        let mut bench = Bench::new(20);
        bench.hang(2, 5);
        tokio::time::sleep(2 * LATE_AFTER).await;
        assert_eq!(bench.request(7, 2 * LATE_AFTER).await.0, Err(Postponed::Cancelled(RETRY_AFTER)));
        for _ in 0..10_000 {
            assert!(matches!(bench.request(7, MS).await.0, Err(Postponed::NotSent(_))));
        }
        bench.end().await;
        tokio::time::sleep(LATE_FOR).await;
        assert!(!bench.types.is_late(&resource(7)));
        bench.hang(1, 2);
        tokio::time::sleep(2 * LATE_AFTER).await;
        assert_eq!(bench.waiting(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn late_types_of_random_names_are_not_kept() {
        let bench = Bench::new(20);
        for number in 0..100 {
            assert!(bench.request(number, 2 * LATE_AFTER).await.0.is_ok());
        }
        assert!(bench.types.state.lock().types.len() <= 6, "only types of the last seconds are kept");
    }
}
