//! The cache of the API server's decisions.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use lru::LruCache;
use parking_lot::Mutex;

/// The key of a request: a digest, because the request itself may contain a secret.
pub(crate) type Key = [u8; 32];

/// A bounded cache; the least recently used entry is removed first. Concurrent calls with the same key share one
/// request.
pub(crate) struct DecisionCache<V> {
    clock: Clock,
    inner: Mutex<Inner<V>>,
}

struct Inner<V> {
    entries: LruCache<Key, Entry<V>>,
    in_flight: BTreeMap<Key, WeakShared<BoxFuture<'static, V>>>,
}

struct Entry<V> {
    value: V,
    expires_at: Instant,
}

/// A value and how long it may be cached; zero means not at all.
pub(crate) type Cacheable<V> = (V, Duration);

impl<V: Clone + Send + Sync + 'static> DecisionCache<V> {
    /// A cache for at most `capacity` values.
    pub(crate) fn new(capacity: usize, clock: Clock) -> Arc<Self> {
        // `LruCache::new` would allocate the memory of all entries now.
        let mut entries = LruCache::unbounded();
        entries.resize(NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN));
        Arc::new(Self { clock, inner: Mutex::new(Inner { entries, in_flight: BTreeMap::new() }) })
    }

    /// The cached value.
    pub(crate) fn look_up(&self, key: &Key) -> Option<V> {
        let now = self.clock.now();
        self.inner.lock().look_up(key, now)
    }

    /// The cached value, or the result of `fetch`. Concurrent calls with the same key call `fetch` once.
    pub(crate) async fn get_or_fetch(
        self: &Arc<Self>,
        key: Key,
        fetch: impl FnOnce() -> BoxFuture<'static, Cacheable<V>>,
    ) -> V {
        let shared = {
            let now = self.clock.now();
            let mut inner = self.inner.lock();
            if let Some(value) = inner.look_up(&key, now) {
                return value;
            }
            match inner.in_flight.get(&key).and_then(WeakShared::upgrade) {
                Some(shared) => shared,
                None => inner.start_fetch(key, self.clone().fetch_and_store(key, fetch())),
            }
        };
        shared.await
    }

    fn fetch_and_store(self: Arc<Self>, key: Key, pending: BoxFuture<'static, Cacheable<V>>) -> BoxFuture<'static, V> {
        async move {
            let (value, ttl) = pending.await;
            let now = self.clock.now();
            let mut inner = self.inner.lock();
            inner.in_flight.remove(&key);
            if !ttl.is_zero() {
                inner.entries.put(key, Entry { value: value.clone(), expires_at: now + ttl });
            }
            value
        }
        .boxed()
    }
}

impl<V: Clone + Send + Sync + 'static> Inner<V> {
    fn look_up(&mut self, key: &Key, now: Instant) -> Option<V> {
        let entry = self.entries.get(key)?;
        if entry.expires_at <= now {
            self.entries.pop(key);
            return None;
        }
        Some(entry.value.clone())
    }

    fn start_fetch(&mut self, key: Key, pending: BoxFuture<'static, V>) -> Shared<BoxFuture<'static, V>> {
        // Removes the requests whose callers were all cancelled before the response arrived.
        self.in_flight.retain(|_, it| it.upgrade().is_some());
        let shared = pending.shared();
        if let Some(weak) = shared.downgrade() {
            self.in_flight.insert(key, weak);
        }
        shared
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
        cache: Arc<DecisionCache<u32>>,
        calls: Arc<AtomicU32>,
    }

    impl Server {
        fn new(capacity: usize) -> Self {
            Self { cache: DecisionCache::new(capacity, Clock::system()), calls: Arc::default() }
        }

        async fn get(&self, number: u8, ttl: Duration) -> u32 {
            let calls = self.calls.clone();
            let fetch = || {
                async move {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    (calls.fetch_add(1, Ordering::SeqCst) + 1, ttl)
                }
                .boxed()
            };
            self.cache.get_or_fetch(key(number), fetch).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_cached_until_its_ttl_expires() {
        let server = Server::new(10);
        assert_eq!(server.get(1, TTL).await, 1);
        assert_eq!(server.get(1, TTL).await, 1);
        tokio::time::advance(TTL).await;
        assert_eq!(server.get(1, Duration::ZERO).await, 2);
        assert_eq!(server.get(1, TTL).await, 3, "a TTL of zero is not cached");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_calls_with_one_key_send_one_request() {
        let server = Server::new(10);
        let values = join_all((0..50).map(|_| server.get(1, Duration::ZERO))).await;
        assert!(values.iter().all(|it| *it == 1), "{values:?}");
        // A caller that is cancelled early does not break the next call.
        let cancelled = tokio::time::timeout(Duration::from_millis(1), server.get(2, TTL)).await;
        assert!(cancelled.is_err());
        assert_eq!(server.get(2, TTL).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn least_recently_used_value_is_removed_first() {
        let server = Server::new(2);
        server.get(1, TTL).await;
        server.get(2, TTL).await;
        server.get(1, TTL).await;
        server.get(3, TTL).await;
        assert_eq!(server.cache.look_up(&key(1)), Some(1));
        assert_eq!(server.cache.look_up(&key(2)), None);
        let inner = server.cache.inner.lock();
        assert_eq!((inner.entries.len(), inner.in_flight.len()), (2, 0));
    }
}
