use std::{collections::BTreeSet, hash::Hash, num::NonZeroUsize, time::Duration};

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
    groups: LruCache<AggregateKey, Similar>,
    events: LruCache<EventKey, EventRecord>,
    spam: LruCache<SpamKey, TokenBucket>,
}

/// The object of an event and its type. This is the key of the spam filter.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SpamKey {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    api_version: String,
    type_: EventType,
}

/// The key of aggregation.
#[derive(Clone, PartialEq, Eq, Hash)]
struct AggregateKey {
    spam_key: SpamKey,
    reason: String,
}

/// The key of counting. Each has one Event on the server.
#[derive(PartialEq, Eq, Hash)]
enum EventKey {
    Single { aggregate_key: AggregateKey, field_path: String, message: String },
    Combined(AggregateKey),
}

/// The messages of one aggregation key that have separate Events.
struct Similar {
    last: Instant,
    messages: BTreeSet<String>,
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

/// `LruCache::new` would allocate the memory of all entries now.
fn empty_table<K: Eq + Hash, V>() -> LruCache<K, V> {
    let mut table = LruCache::unbounded();
    table.resize(MAX_ENTRIES);
    table
}

impl Correlator {
    pub(crate) fn new(component: ReportingComponent, rng: Rng) -> Self {
        Self {
            component,
            name_generator: NameGenerator::new(rng),
            groups: empty_table(),
            events: empty_table(),
            spam: empty_table(),
        }
    }

    /// Returns the Event to store. If its count is above one, it should already exist. `None` for spam, which is
    /// counted in the next Event of the same key.
    pub(crate) fn observe(&mut self, report: Report) -> Option<Event> {
        let Report { object, type_, reason, message, wall, at } = report;
        let spam_key = SpamKey::new(&object, type_);
        let aggregate_key = AggregateKey { spam_key: spam_key.clone(), reason: reason.clone() };
        let similar =
            self.groups.get_or_insert_mut(aggregate_key.clone(), || Similar { last: at, messages: BTreeSet::new() });
        let (event_key, message) = if similar.record_message(&message, at) {
            (EventKey::Combined(aggregate_key), format!("{COMBINED_PREFIX}{message}"))
        } else {
            let field_path = object.field_path.clone().unwrap_or_default();
            (EventKey::Single { aggregate_key, field_path, message: message.clone() }, message)
        };
        let record = self.events.get_or_insert_mut(event_key, || EventRecord {
            name: self.name_generator.next_name(&spam_key.name, wall),
            first: wall,
            count: 0,
        });
        record.count = record.count.saturating_add(1);
        // The spam filter is last, so that dropped reports are counted.
        let bucket = self.spam.get_or_insert_mut(spam_key, || TokenBucket { full_at: at });
        bucket.try_take(at).then(|| build(&self.component, record, object, type_, reason, message, wall))
    }
}

impl SpamKey {
    fn new(object: &ObjectReference, type_: EventType) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            kind: text(&object.kind),
            namespace: text(&object.namespace),
            name: text(&object.name),
            uid: text(&object.uid),
            api_version: text(&object.api_version),
            type_,
        }
    }
}

impl Similar {
    /// Records a message and returns true if it uses the combined Event. The first nine messages have separate Events.
    fn record_message(&mut self, message: &str, now: Instant) -> bool {
        if now.saturating_duration_since(self.last) > RESET_AFTER {
            self.messages.clear();
        }
        self.last = now;
        if self.messages.contains(message) {
            return false;
        }
        if self.messages.len() + 1 >= COMBINE_FROM {
            return true;
        }
        self.messages.insert(message.to_owned());
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
