//! The cache of the API server's decisions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;

/// The key of a request: a digest, because the request itself may contain a secret.
pub(crate) type Key = [u8; 32];

/// A bounded cache; the least recently used entry is removed first. Concurrent calls with the same key share one
/// request.
pub(crate) struct Asked<V> {
    most: usize,
    clock: Clock,
    inner: Mutex<Inner<V>>,
}

struct Inner<V> {
    answers: BTreeMap<Key, Answer<V>>,
    /// The keys in the order of their last use.
    used: BTreeMap<u64, Key>,
    uses: u64,
    underway: BTreeMap<Key, WeakShared<BoxFuture<'static, V>>>,
}

struct Answer<V> {
    value: V,
    until: Instant,
    used: u64,
}

/// A value and how long it may be cached; zero means not at all.
pub(crate) type Fresh<V> = (V, Duration);

impl<V: Clone + Send + Sync + 'static> Asked<V> {
    /// A cache for at most `most` values.
    pub(crate) fn new(most: usize, clock: Clock) -> Arc<Self> {
        let inner = Inner { answers: BTreeMap::new(), used: BTreeMap::new(), uses: 0, underway: BTreeMap::new() };
        Arc::new(Self { most, clock, inner: Mutex::new(inner) })
    }

    /// The cached value.
    pub(crate) fn known(&self, key: &Key) -> Option<V> {
        let now = self.clock.now();
        self.inner.lock().known(key, now)
    }

    /// The cached value, or the result of `ask`. Concurrent calls with the same key call `ask` once.
    pub(crate) async fn get(self: &Arc<Self>, key: Key, ask: impl FnOnce() -> BoxFuture<'static, Fresh<V>>) -> V {
        let shared = {
            let now = self.clock.now();
            let mut inner = self.inner.lock();
            if let Some(value) = inner.known(&key, now) {
                return value;
            }
            match inner.underway.get(&key).and_then(WeakShared::upgrade) {
                Some(shared) => shared,
                None => inner.begin(key, self.clone().remembering(key, ask())),
            }
        };
        shared.await
    }

    fn remembering(self: Arc<Self>, key: Key, asked: BoxFuture<'static, Fresh<V>>) -> BoxFuture<'static, V> {
        async move {
            let (value, keep) = asked.await;
            let now = self.clock.now();
            let mut inner = self.inner.lock();
            inner.underway.remove(&key);
            if !keep.is_zero() {
                inner.remember(key, value.clone(), now + keep, self.most);
            }
            value
        }
        .boxed()
    }
}

impl<V: Clone + Send + Sync + 'static> Inner<V> {
    fn known(&mut self, key: &Key, now: Instant) -> Option<V> {
        let answer = self.answers.get_mut(key)?;
        self.used.remove(&answer.used);
        if answer.until <= now {
            self.answers.remove(key);
            return None;
        }
        self.uses += 1;
        answer.used = self.uses;
        self.used.insert(self.uses, *key);
        Some(answer.value.clone())
    }

    fn begin(&mut self, key: Key, asked: BoxFuture<'static, V>) -> Shared<BoxFuture<'static, V>> {
        // Removes the requests whose callers were all cancelled before the response arrived.
        self.underway.retain(|_, it| it.upgrade().is_some());
        let shared = asked.shared();
        if let Some(weak) = shared.downgrade() {
            self.underway.insert(key, weak);
        }
        shared
    }

    fn remember(&mut self, key: Key, value: V, until: Instant, most: usize) {
        self.uses += 1;
        if let Some(old) = self.answers.insert(key, Answer { value, until, used: self.uses }) {
            self.used.remove(&old.used);
        }
        self.used.insert(self.uses, key);
        while self.answers.len() > most {
            let Some((_, oldest)) = self.used.pop_first() else { break };
            self.answers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn key(number: u8) -> Key {
        [number; 32]
    }

    struct Server {
        asked: Arc<Asked<u32>>,
        calls: Arc<AtomicU32>,
    }

    impl Server {
        fn new(most: usize) -> Self {
            Self { asked: Asked::new(most, Clock::system()), calls: Arc::default() }
        }

        async fn get(&self, number: u8, keep: Duration) -> u32 {
            let calls = self.calls.clone();
            let ask = || {
                async move {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    (calls.fetch_add(1, Ordering::SeqCst) + 1, keep)
                }
                .boxed()
            };
            self.asked.get(key(number), ask).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_kept_for_their_time() {
        let server = Server::new(10);
        assert_eq!(server.get(1, TTL).await, 1);
        assert_eq!(server.get(1, TTL).await, 1);
        tokio::time::advance(TTL).await;
        assert_eq!(server.get(1, Duration::ZERO).await, 2);
        assert_eq!(server.get(1, TTL).await, 3, "the one before was not to be kept");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_question_at_once_is_asked_once() {
        let server = Server::new(10);
        let answers = join_all((0..50).map(|_| server.get(1, Duration::ZERO))).await;
        assert!(answers.iter().all(|it| *it == 1), "{answers:?}");
        // A caller that is cancelled early does not break the next call.
        let gone = tokio::time::timeout(Duration::from_millis(1), server.get(2, TTL)).await;
        assert!(gone.is_err());
        assert_eq!(server.get(2, TTL).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_unused_answer_goes_first() {
        let server = Server::new(2);
        server.get(1, TTL).await;
        server.get(2, TTL).await;
        server.get(1, TTL).await;
        server.get(3, TTL).await;
        assert_eq!(server.asked.known(&key(1)), Some(1));
        assert_eq!(server.asked.known(&key(2)), None);
        let inner = server.asked.inner.lock();
        assert_eq!((inner.answers.len(), inner.used.len(), inner.underway.len()), (2, 2, 0));
    }
}
