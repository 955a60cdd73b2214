use clock::Timestamp;
use serde_json::Value;

use super::{Column, Printer, ages, cells, column, name, number_at, or, text, text_at, wide};

const COLUMNS: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    column("Name", "string", "name", 1),
];

pub(super) fn printer(plural: &str) -> Option<Printer> {
    (plural == "events").then_some(Printer { columns: COLUMNS, cells })
}

/// For an Event in the form of core/v1, in which it is stored.
fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let known = |time: &Value| ages::parse(time).is_some();
    let mut first = &event["firstTimestamp"];
    if !known(first) {
        first = &event["eventTime"];
    }
    let mut last = &event["lastTimestamp"];
    if !known(last) {
        last = first;
    }
    let mut count = number_at(event, "count").max(1);
    if event["series"].is_object() {
        last = &event["series"]["lastObservedTime"];
        count = number_at(event, "series.count");
    }
    let object = &event["involvedObject"];
    cells![
        ages::since(last, now),
        text_at(event, "type"),
        text_at(event, "reason"),
        involved(object),
        text_at(object, "fieldPath"),
        source(event),
        text_at(event, "message").trim(),
        ages::since(first, now),
        count,
        name(event),
    ]
}

fn involved(object: &Value) -> String {
    let kind = text_at(object, "kind").to_lowercase();
    match text_at(object, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// The component and the host that reported it.
fn source(event: &Value) -> String {
    let component = or(text_at(event, "source.component"), text_at(event, "reportingComponent"));
    match or(text_at(event, "source.host"), text_at(event, "reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
