use std::{collections::BTreeSet, time::Duration};

use clock::{Instant, Timestamp};
use fastrand::Rng;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use crate::{
    lru::Lru,
    naming::Names,
    recorder::{Report, Type},
};

/// The maximum number of entries in each of the three tables.
const REMEMBERED: usize = 4096;
/// From this number of different messages with the same reason, they are combined into one Event.
const ALIKE: usize = 10;
/// After this time without an event of that reason, the messages are counted from the start.
const SILENCE: Duration = Duration::from_secs(600);
const COMBINED: &str = "(combined from similar events): ";
/// The burst of Events for one object and type.
const BURST: u32 = 25;
/// After the burst, one more Event is allowed in this time.
const REFILL: Duration = Duration::from_secs(300);

/// The source of the events.
pub(crate) struct Source {
    pub(crate) component: String,
    pub(crate) host: String,
}

/// Turns reports into Events: counts repeated ones, combines similar ones, and drops those above the limit.
///
/// The source is not part of the keys, because a correlator has one source.
pub(crate) struct Correlator {
    source: Source,
    names: Names,
    groups: Lru<Group, Similar>,
    events: Lru<Identity, Seen>,
    spam: Lru<Subject, Budget>,
}

/// The object of an event and its type. This is the key of the spam filter.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    api_version: String,
    type_: Type,
}

/// The key of aggregation.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Group {
    subject: Subject,
    reason: String,
}

/// The key of counting. Each has one Event on the server.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Single { group: Group, field_path: String, message: String },
    Combined(Group),
}

/// The messages of a group that have separate Events.
struct Similar {
    last: Instant,
    messages: BTreeSet<String>,
}

struct Seen {
    name: String,
    first: Timestamp,
    count: i32,
}

/// A token bucket that refuses instead of waiting.
struct Budget {
    /// When the bucket is full again.
    whole_at: Instant,
}

impl Correlator {
    pub(crate) fn new(source: Source, rng: Rng) -> Self {
        Self {
            source,
            names: Names::new(rng),
            groups: Lru::new(REMEMBERED),
            events: Lru::new(REMEMBERED),
            spam: Lru::new(REMEMBERED),
        }
    }

    /// Returns the Event to store. If its count is above one, it should already exist. `None` for spam, which is
    /// counted in the next Event of the same key.
    pub(crate) fn observe(&mut self, report: Report) -> Option<Event> {
        let Report { object, type_, reason, message, wall, at } = report;
        let subject = Subject::new(&object, type_);
        let group = Group { subject: subject.clone(), reason: reason.clone() };
        let similar = self.groups.entry(group.clone(), || Similar { last: at, messages: BTreeSet::new() });
        let (identity, message) = if similar.combines(&message, at) {
            (Identity::Combined(group), format!("{COMBINED}{message}"))
        } else {
            let field_path = object.field_path.clone().unwrap_or_default();
            (Identity::Single { group, field_path, message: message.clone() }, message)
        };
        let seen =
            self.events.entry(identity, || Seen { name: self.names.name(&subject.name, wall), first: wall, count: 0 });
        seen.count = seen.count.saturating_add(1);
        // The spam filter is last, so that dropped reports are counted.
        let budget = self.spam.entry(subject, || Budget { whole_at: at });
        budget.accepts(at).then(|| build(&self.source, seen, object, type_, reason, message, wall))
    }
}

impl Subject {
    fn new(object: &ObjectReference, type_: Type) -> Self {
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
    /// True for a message that uses the combined Event. The first nine messages of a group have separate Events.
    fn combines(&mut self, message: &str, now: Instant) -> bool {
        if now.saturating_duration_since(self.last) > SILENCE {
            self.messages.clear();
        }
        self.last = now;
        if self.messages.contains(message) {
            return false;
        }
        if self.messages.len() + 1 >= ALIKE {
            return true;
        }
        self.messages.insert(message.to_owned());
        false
    }
}

impl Budget {
    fn accepts(&mut self, now: Instant) -> bool {
        let whole_at = self.whole_at.max(now) + REFILL;
        let accepted = whole_at.saturating_duration_since(now) <= REFILL * BURST;
        if accepted {
            self.whole_at = whole_at;
        }
        accepted
    }
}

fn build(
    source: &Source,
    seen: &Seen,
    object: ObjectReference,
    type_: Type,
    reason: String,
    message: String,
    now: Timestamp,
) -> Event {
    let Source { component, host } = source;
    // Events of cluster-scoped objects are in the namespace `default`.
    let namespace = object.namespace.clone().filter(|it| !it.is_empty()).unwrap_or_else(|| "default".to_owned());
    let host = (!host.is_empty()).then(|| host.clone());
    Event {
        metadata: ObjectMeta { name: Some(seen.name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: object,
        type_: Some(type_.as_str().to_owned()),
        reason: Some(reason),
        message: Some(message),
        first_timestamp: Some(Time(seen.first)),
        last_timestamp: Some(Time(now)),
        count: Some(seen.count),
        source: Some(EventSource { component: Some(component.clone()), host: host.clone() }),
        reporting_component: Some(component.clone()),
        reporting_instance: host,
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
