//! Values over time, and what each process was shown of them.

use std::{collections::BTreeMap, time::Duration};

use clock::Instant;
use serde::Deserialize;
use testing::sim::Delivery;

/// A stored write: its version and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) version: u64,
    pub(super) at: Instant,
}

/// All values of something, each with the write that set it.
pub(super) struct Timeline<T>(Vec<(Point, T)>);

/// A value, and the writes that set and replaced it.
pub(super) struct Period<'a, T> {
    pub(super) from: Point,
    pub(super) until: Option<Point>,
    pub(super) value: &'a T,
}

impl<T> Copy for Period<'_, T> {}

impl<T> Clone for Period<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: PartialEq> Timeline<T> {
    pub(super) fn starting_with(value: T, from: Point) -> Self {
        Self(vec![(from, value)])
    }

    pub(super) fn record(&mut self, value: T, from: Point) {
        if self.0.last().is_none_or(|it| it.1 != value) {
            self.0.push((from, value));
        }
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.0.last().map(|it| &it.1)
    }

    /// All periods, the oldest first.
    pub(super) fn periods(&self) -> Vec<Period<'_, T>> {
        let ends = self.0.iter().skip(1).map(|it| Some(it.0)).chain([None]);
        self.0.iter().zip(ends).map(|((from, value), until)| Period { from: *from, until, value }).collect()
    }

    /// The values since this version: a process that knows it has seen one of them.
    pub(super) fn since(&self, version: u64) -> impl Iterator<Item = &T> {
        self.values_since(move |it| it.version <= version)
    }

    /// The values of the time since `begin`, and of the time `before` it.
    pub(super) fn after(&self, begin: Instant, before: Duration) -> impl Iterator<Item = &T> {
        self.values_since(move |it| it.at + before <= begin)
    }

    fn values_since(&self, is_known: impl Fn(&Point) -> bool) -> impl Iterator<Item = &T> {
        let first = self.0.iter().rposition(|it| is_known(&it.0)).unwrap_or(0);
        self.0[first..].iter().map(|it| &it.1)
    }
}

/// For each process and each resource: when it was shown which version. A watch shows all versions in order, so a
/// process knows all versions up to this one.
#[derive(Default)]
pub(super) struct ShownVersions(BTreeMap<String, BTreeMap<String, Vec<Point>>>);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Line {
    r#type: String,
    /// Of an event.
    object: Item,
    /// Of a list.
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    r#continue: String,
}

impl ShownVersions {
    /// Records a line that a process was just shown.
    pub(super) fn record(&mut self, delivery: &Delivery, now: Instant) {
        let Ok(Line { r#type, object, metadata }) = serde_json::from_slice(delivery.text) else { return };
        // The objects of a first set have any order. Only its end shows a state.
        if r#type == "ADDED" {
            return;
        }
        let version = match metadata.resource_version.parse() {
            Ok(_) if !metadata.r#continue.is_empty() => return,
            Ok(version) => version,
            Err(_) => object.metadata.resource_version.parse().unwrap_or(0),
        };
        let resources = self.0.entry(delivery.by.to_owned()).or_default();
        let points = resources.entry(delivery.resource.to_owned()).or_default();
        if version > points.last().map_or(0, |it| it.version) {
            points.push(Point { version, at: now });
        }
    }

    fn points(&self, by: &str, resource: &str) -> &[Point] {
        self.0.get(by).and_then(|it| it.get(resource)).map_or(&[], Vec::as_slice)
    }

    /// The time since which a process has watched a resource.
    pub(super) fn watched_since(&self, by: &str, resource: &str) -> Option<Instant> {
        self.points(by, resource).first().map(|it| it.at)
    }

    /// The newest version that a process knew so long ago, or the first that it knew.
    pub(super) fn known_before(&self, by: &str, resource: &str, ago: Duration, now: Instant) -> u64 {
        let points = self.points(by, resource);
        let known = points.iter().rfind(|it| it.at + ago <= now).or(points.first());
        known.map_or(0, |it| it.version)
    }

    /// The time at which a process was shown this version, or a later one.
    pub(super) fn shown_at(&self, by: &str, resource: &str, version: u64) -> Option<Instant> {
        let points = self.points(by, resource);
        points.get(points.partition_point(|it| it.version < version)).map(|it| it.at)
    }

    /// True if a process was shown a state of this period.
    pub(super) fn has_shown<T>(&self, by: &str, resource: &str, period: &Period<T>) -> bool {
        let points = self.points(by, resource);
        let first = points.get(points.partition_point(|it| it.version < period.from.version));
        first.is_some_and(|it| period.until.is_none_or(|until| it.version < until.version))
    }
}
