use clock::Clock;

use super::*;

struct Rig {
    correlator: Correlator,
    start: Instant,
}

fn rig() -> Rig {
    let component = ReportingComponent { component: "job-controller".to_owned(), host: "host-1".to_owned() };
    Rig { correlator: Correlator::new(component, Rng::with_seed(1)), start: Clock::system().now() }
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        ..ObjectReference::default()
    }
}

impl Rig {
    fn observe(&mut self, object: ObjectReference, reason: &str, message: &str, secs: u64) -> Option<Event> {
        let since = Duration::from_secs(secs);
        self.correlator.observe(Report {
            object,
            type_: EventType::Warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
            wall: Timestamp::UNIX_EPOCH + since,
            at: self.start + since,
        })
    }

    /// Name, count and message of the Event for a report about pod `a`.
    fn about_a(&mut self, reason: &str, message: &str, secs: u64) -> (String, i32, String) {
        let event = self.observe(pod("a"), reason, message, secs).unwrap();
        (event.metadata.name.unwrap(), event.count.unwrap(), event.message.unwrap())
    }
}

#[test]
fn repeated_reports_are_one_event_with_a_count() {
    let mut rig = rig();
    let (name, count, _) = rig.about_a("Failed", "m", 1);
    assert_eq!((name.as_str(), count), ("a.3b9aca00", 1));
    assert_eq!(rig.about_a("Failed", "m", 60), (name.clone(), 2, "m".to_owned()));
    let third = rig.observe(pod("a"), "Failed", "m", 3_600).unwrap();
    assert_eq!((third.metadata.name, third.count), (Some(name.clone()), Some(3)));
    assert_eq!(third.first_timestamp, Some(Time(Timestamp::from_second(1).unwrap())));
    assert_eq!(third.last_timestamp, Some(Time(Timestamp::from_second(3_600).unwrap())));

    for (what, object, reason, message) in [
        ("reason", pod("a"), "Other", "m"),
        ("message", pod("a"), "Failed", "other"),
        ("object", pod("b"), "Failed", "m"),
        ("kind", ObjectReference { kind: Some("Job".to_owned()), ..pod("a") }, "Failed", "m"),
        ("namespace", ObjectReference { namespace: Some("other".to_owned()), ..pod("a") }, "Failed", "m"),
        ("version", ObjectReference { api_version: Some("v2".to_owned()), ..pod("a") }, "Failed", "m"),
        ("uid", ObjectReference { uid: Some("other".to_owned()), ..pod("a") }, "Failed", "m"),
        ("field", ObjectReference { field_path: Some("spec".to_owned()), ..pod("a") }, "Failed", "m"),
    ] {
        assert_eq!(rig.observe(object, reason, message, 3_600).unwrap().count, Some(1), "another {what}");
    }
    let (version, path) = (Some("9".to_owned()), Some(String::new()));
    let object = ObjectReference { resource_version: version, field_path: path, ..pod("a") };
    assert_eq!(
        rig.observe(object, "Failed", "m", 3_600).unwrap().count,
        Some(4),
        "resourceVersion and an empty path do not matter"
    );
}

#[test]
fn acceptance_machinery_037_the_tenth_message_of_a_reason_and_all_further_ones_are_combined() {
    let mut rig = rig();
    for at in 0..9 {
        assert_eq!(rig.about_a("Failed", &format!("m{at}"), at).2, format!("m{at}"));
    }
    let (combined, count, message) = rig.about_a("Failed", "m9", 9);
    assert_eq!((count, message.as_str()), (1, "(combined from similar events): m9"));
    assert_eq!(rig.about_a("Failed", "m10", 10), (combined.clone(), 2, format!("{COMBINED_PREFIX}m10")));
    assert_eq!(rig.about_a("Failed", "m10", 11).1, 3);
    assert_eq!(rig.about_a("Failed", "m3", 12).1, 2, "an earlier message is counted in its own event");
    assert_eq!(rig.about_a("Other", "m99", 13).2, "m99", "another reason");

    // A pause of exactly ten minutes changes nothing. After one more second the messages are counted from the start.
    assert_eq!(rig.about_a("Failed", "m11", 12 + 600).0, combined);
    assert_eq!(rig.about_a("Failed", "m12", 12 + 1_201).2, "m12");
}

#[test]
fn acceptance_machinery_038_of_thirty_events_of_one_object_and_type_in_a_minute_25_are_written() {
    let mut rig = rig();
    let written: Vec<_> = (0..30).map(|at| rig.observe(pod("a"), &format!("R{at}"), "m", at).is_some()).collect();
    assert_eq!(written, [vec![true; 25], vec![false; 5]].concat());
    assert!(rig.observe(pod("b"), "R", "m", 30).is_some(), "another object");

    // One more Event is allowed every five minutes. Dropped reports were counted.
    let next = rig.observe(pod("a"), "R29", "m", 300).unwrap();
    assert_eq!(next.count, Some(2));
    assert!(rig.observe(pod("a"), "R", "m", 300).is_none());
}

#[test]
fn event_has_the_same_fields_as_upstream() {
    let mut rig = rig();
    let event = rig.observe(pod("a"), "Failed", "m", 1).unwrap();
    let want = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": "a.3b9aca00", "namespace": "ns" },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "a", "uid": "uid-a" },
        "type": "Warning",
        "reason": "Failed",
        "message": "m",
        "firstTimestamp": "1970-01-01T00:00:01Z",
        "lastTimestamp": "1970-01-01T00:00:01Z",
        "count": 1,
        "source": { "component": "job-controller", "host": "host-1" },
        "reportingComponent": "job-controller",
        "reportingInstance": "host-1",
    });
    assert_eq!(serde_json::to_value(event).unwrap(), want);
}

#[test]
fn acceptance_machinery_041_an_event_about_a_cluster_scoped_object_is_in_default() {
    let mut rig = rig();
    for namespace in [None, Some(String::new())] {
        let node = ObjectReference { kind: Some("Node".to_owned()), namespace, ..pod("n1") };
        let event = rig.observe(node.clone(), "NotReady", "m", 1).unwrap();
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(event.involved_object, node);
    }
}
