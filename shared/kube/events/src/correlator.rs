use std::{
    hash::{BuildHasher, RandomState},
    num::NonZeroUsize,
    time::Duration,
};

use clock::{Instant, Timestamp};
use fastrand::Rng;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use lru::LruCache;

use crate::{
    name_generator::NameGenerator,
    report::{EventType, Report},
};

/// The maximum number of entries in each of the three tables.
const MAX_ENTRIES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);
/// From this number of different messages with the same reason, they are combined into one Event.
const COMBINE_FROM: usize = 10;
/// After this time without an event of that reason, the messages are counted from the start.
const RESET_AFTER: Duration = Duration::from_secs(600);
const COMBINED_PREFIX: &str = "(combined from similar events): ";
/// The burst of Events for one object and type.
const BURST: u32 = 25;
/// After the burst, one more Event is allowed in this time.
const REFILL: Duration = Duration::from_secs(300);

/// The component that reports the events, and its host.
pub(crate) struct ReportingComponent {
    pub(crate) component: String,
    pub(crate) host: String,
}

/// Turns reports into Events: counts repeated ones, combines similar ones, and drops those above the limit.
///
/// The component is not part of the keys, because a correlator has one component.
pub(crate) struct Correlator {
    component: ReportingComponent,
    name_generator: NameGenerator,
    keys: RandomState,
    groups: LruCache<Key, Similar>,
    events: LruCache<Key, EventRecord>,
    spam: LruCache<Key, TokenBucket>,
}

/// The hash of what the entry is about. The texts themselves would take some MiB for full tables.
type Key = u64;

/// The reports of one reason about one object.
struct Similar {
    last: Instant,
    /// The hashes of the messages that have separate Events.
    messages: Vec<u64>,
}

struct EventRecord {
    name: String,
    first: Timestamp,
    count: i32,
}

/// A token bucket that refuses instead of waiting.
struct TokenBucket {
    /// When the bucket is full again.
    full_at: Instant,
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

/// `LruCache::new` would allocate the memory of all entries now.
fn empty_table<V>() -> LruCache<Key, V> {
    let mut table = LruCache::unbounded();
    table.resize(MAX_ENTRIES);
    table
}

impl Correlator {
    pub(crate) fn new(component: ReportingComponent, rng: Rng) -> Self {
        Self {
            component,
            name_generator: NameGenerator::new(rng),
            keys: RandomState::new(),
            groups: empty_table(),
            events: empty_table(),
            spam: empty_table(),
        }
    }

    /// Returns the Event to store. If its count is above one, it should already exist. `None` for spam, which is
    /// counted in the next Event of the same key.
    pub(crate) fn observe(&mut self, report: Report) -> Option<Event> {
        let Report { object, type_, reason, message, wall, at } = report;
        let ObjectReference { kind, namespace, name, uid, api_version, field_path, .. } = &object;
        let object_key = [kind, namespace, name, uid, api_version].map(text);
        let spam_key = self.keys.hash_one((object_key, type_));
        let group_key = self.keys.hash_one((spam_key, &reason));
        let similar = self.groups.get_or_insert_mut(group_key, || Similar { last: at, messages: Vec::new() });
        let is_combined = similar.record_message(self.keys.hash_one(&message), at);
        let separate = (!is_combined).then_some((text(field_path), &message));
        let event_key = self.keys.hash_one((group_key, separate));
        let record = self.events.get_or_insert_mut(event_key, || EventRecord {
            name: self.name_generator.next_name(text(name), wall),
            first: wall,
            count: 0,
        });
        record.count = record.count.saturating_add(1);
        // The spam filter is last, so that dropped reports are counted.
        let bucket = self.spam.get_or_insert_mut(spam_key, || TokenBucket { full_at: at });
        let message = if is_combined { format!("{COMBINED_PREFIX}{message}") } else { message };
        bucket.try_take(at).then(|| build(&self.component, record, object, type_, reason, message, wall))
    }
}

impl Similar {
    /// Records a message and returns true if it uses the combined Event. The first nine messages have separate Events.
    fn record_message(&mut self, message: u64, now: Instant) -> bool {
        if now.saturating_duration_since(self.last) > RESET_AFTER {
            self.messages.clear();
        }
        self.last = now;
        if self.messages.contains(&message) {
            return false;
        }
        if self.messages.len() + 1 >= COMBINE_FROM {
            return true;
        }
        self.messages.push(message);
        false
    }
}

impl TokenBucket {
    fn try_take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + REFILL;
        let is_allowed = full_at.saturating_duration_since(now) <= REFILL * BURST;
        if is_allowed {
            self.full_at = full_at;
        }
        is_allowed
    }
}

fn build(
    component: &ReportingComponent,
    record: &EventRecord,
    object: ObjectReference,
    type_: EventType,
    reason: String,
    message: String,
    now: Timestamp,
) -> Event {
    let ReportingComponent { component, host } = component;
    // Events of cluster-scoped objects are in the namespace `default`.
    let namespace = object.namespace.clone().filter(|it| !it.is_empty()).unwrap_or_else(|| "default".to_owned());
    let host = (!host.is_empty()).then(|| host.clone());
    Event {
        metadata: ObjectMeta { name: Some(record.name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: object,
        type_: Some(type_.as_str().to_owned()),
        reason: Some(reason),
        message: Some(message),
        first_timestamp: Some(Time(record.first)),
        last_timestamp: Some(Time(now)),
        count: Some(record.count),
        source: Some(EventSource { component: Some(component.clone()), host: host.clone() }),
        reporting_component: Some(component.clone()),
        reporting_instance: host,
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
