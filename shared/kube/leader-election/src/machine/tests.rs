use std::time::Duration;

use api::Version;
use serde_json::json;

use super::*;

/// An input of the machine.
enum In {
    Tick,
    Read(Lease),
    Absent,
    Stored(u64),
    Failed,
    Observed(Lease),
    Deleted(Lease),
}
use In::{Absent, Deleted, Failed, Observed, Read, Stored, Tick};

/// The time in seconds, the input, and the expected actions.
type Row<'a> = (f64, In, &'a [&'a str]);

fn config() -> Config {
    Config {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        namespace: "kube-system".into(),
        name: "kcm".into(),
        identity: "us".into(),
    }
}

fn at(seconds: f64) -> BootInstant {
    BootInstant::from_millis(1_000_000_000) + Duration::from_secs_f64(seconds)
}

/// A Lease of another manager. `version` also makes its record different from other ones.
fn lease(holder: &str, transitions: i64, version: u64) -> Lease {
    with(holder, transitions, version, &json!({}))
}

/// The same with a fence of 10 s, as from a leader of ours.
fn held_by_ours(holder: &str, transitions: i64, version: u64) -> Lease {
    let note = format!(r#"{{"transitions":{transitions},"ms":10000}}"#);
    with(holder, transitions, version, &json!({ "mini-kcm.io/fence": note }))
}

fn released_by_ours(transitions: i64, version: u64) -> Lease {
    let note = format!(r#"{{"transitions":{transitions},"versions":{{"pods":"9"}}}}"#);
    with("", transitions, version, &json!({ "mini-kcm.io/hand-over": note }))
}

fn with(holder: &str, transitions: i64, version: u64, annotations: &serde_json::Value) -> Lease {
    let json = json!({
        "metadata": { "name": "kcm", "resourceVersion": version.to_string(), "annotations": annotations },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": transitions,
            "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": format!("2020-01-01T00:00:{version:02}.000000Z"),
        },
    });
    Lease::decode(json.to_string().as_bytes()).unwrap()
}

fn describe(action: &ElectionAction) -> String {
    match action {
        ElectionAction::Send(LeaseRequest::Get) => "get".to_owned(),
        ElectionAction::Send(LeaseRequest::Create(it)) => {
            format!("create {} t{}", it.record.holder(), it.record.transitions())
        }
        ElectionAction::Send(LeaseRequest::Update(it)) => {
            format!("update {} t{} @{}", it.record.holder(), it.record.transitions(), it.version)
        }
        ElectionAction::Renewed(_) => "renewed".to_owned(),
        ElectionAction::SlowPath => "slow path".to_owned(),
        ElectionAction::Failed(_) => "failed".to_owned(),
        ElectionAction::Signal(Signal::ProveAhead { last_write }) => {
            format!("prove as of {}", last_write.saturating_since(at(0.0)).as_secs_f64())
        }
        ElectionAction::Signal(Signal::Acquired(Takeover::CrashOfOurs { last_change, .. })) => {
            format!("acquired from a crash of ours at {}", last_change.saturating_since(at(0.0)).as_secs_f64())
        }
        ElectionAction::Signal(Signal::Acquired(takeover)) => {
            let takeover = format!("{takeover:?}");
            format!("acquired {}", takeover.split('(').next().unwrap_or_default())
        }
        ElectionAction::Signal(Signal::Lost(why)) => format!("lost: {why}"),
        ElectionAction::Signal(Signal::NewLeader(holder)) => format!("leader {holder}"),
    }
}

#[track_caller]
fn check(name: &str, rows: Vec<Row<'_>>) {
    let mut machine = Machine::new(config(), Rng::with_seed(1), at(0.0));
    run(&mut machine, name, rows);
}

#[track_caller]
fn run(machine: &mut Machine, name: &str, rows: Vec<Row<'_>>) {
    for (seconds, input, want) in rows {
        let now = at(seconds);
        let wall = Timestamp::UNIX_EPOCH + Duration::from_secs_f64(seconds);
        match input {
            Tick => {}
            Read(lease) => machine.on_response(RequestOutcome::Read(Box::new(lease)), now),
            Absent => machine.on_response(RequestOutcome::Absent, now),
            Stored(version) => {
                let written = Written {
                    name: "kcm".into(),
                    uid: Uid::new("u"),
                    version: Version::from(version),
                    creation: None,
                    controller: None,
                };
                machine.on_response(RequestOutcome::Stored(written), now);
            }
            Failed => machine.on_response(RequestOutcome::Failed("request failed".to_owned()), now),
            Observed(lease) => machine.on_lease_event(LeaseEvent::Current(Box::new(lease)), now),
            Deleted(lease) => machine.on_lease_event(LeaseEvent::Deleted(Box::new(lease)), now),
        }
        let got: Vec<String> = std::iter::from_fn(|| machine.next_action(now, wall)).map(|it| describe(&it)).collect();
        assert_eq!(got, want, "{name} at {seconds}");
    }
}

/// A machine that leads since 0.01 s, with version 1 of the Lease.
fn leader() -> Machine {
    let mut machine = Machine::new(config(), Rng::with_seed(1), at(0.0));
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Absent, &["create us t0"]),
        (0.01, Stored(1), &["leader us", "renewed", "acquired First"]),
    ];
    run(&mut machine, "first", rows);
    machine
}

#[test]
fn a_leader_renews_each_retry_period_without_reading() {
    let mut machine = leader();
    let rows: Vec<Row<'_>> = vec![
        (1.99, Tick, &[]),
        (2.0, Tick, &["update us t0 @1"]),
        (2.01, Stored(2), &["renewed"]),
        (3.99, Tick, &[]),
        (4.0, Tick, &["update us t0 @2"]),
    ];
    run(&mut machine, "renewals", rows);
    assert_eq!(machine.held_since(), Some(at(2.0)), "counted from the sending");
}

#[test]
fn acceptance_machinery_050_a_conflict_on_the_fast_path_leads_to_the_slow_one() {
    let mut machine = leader();
    let edited =
        Lease::decode(serde_json::to_string(&machine.observed.as_ref().unwrap().lease).unwrap().as_bytes()).unwrap();
    let rows: Vec<Row<'_>> = vec![
        (2.0, Tick, &["update us t0 @1"]),
        (2.01, Failed, &["failed", "get"]),
        (2.02, Read(edited.with_stored_version(Uid::new("u"), Version::from(7))), &["slow path", "update us t0 @7"]),
        (2.03, Stored(8), &["renewed"]),
        (4.02, Tick, &["update us t0 @8"]),
    ];
    run(&mut machine, "slow path", rows);
}

#[test]
fn newer_version_from_the_watch_is_kept_when_the_response_arrives() {
    let mut machine = leader();
    let wall = Timestamp::UNIX_EPOCH + Duration::from_secs(2);
    let renewed = machine.observed.as_ref().unwrap().lease.renewed(&config(), wall);
    let edited = renewed.with_stored_version(Uid::new("u"), Version::from(9));
    let rows: Vec<Row<'_>> = vec![
        (2.0, Tick, &["update us t0 @1"]),
        // Our own renewal was version 8; a user has edited a label since.
        (2.01, Observed(edited), &[]),
        (2.02, Stored(8), &["renewed"]),
        (4.0, Tick, &["update us t0 @9"]),
    ];
    run(&mut machine, "overtaken", rows);
}

#[test]
fn a_lease_that_was_deleted_and_restored_by_hand_is_still_ours() {
    let mut machine = leader();
    let lease = machine.observed.as_ref().unwrap().lease.clone();
    let rows: Vec<Row<'_>> = vec![
        (1.0, Deleted(lease.clone().with_stored_version(Uid::new("u"), Version::from(2))), &["get"]),
        (1.01, Read(lease.with_stored_version(Uid::new("v"), Version::from(3))), &["slow path", "update us t0 @3"]),
        (1.02, Stored(4), &["renewed"]),
    ];
    run(&mut machine, "restored", rows);
}

#[test]
fn a_leader_that_cannot_renew_stops_at_the_deadline_counted_from_the_last_sending() {
    let mut machine = leader();
    let rows: Vec<Row<'_>> = vec![
        (2.0, Tick, &["update us t0 @1"]),
        (2.5, Stored(2), &["renewed"]),
        (4.0, Tick, &["update us t0 @2"]),
        (9.0, Failed, &["failed", "get"]),
        // The request had no response for a long time, so the next attempt does not wait for the retry period.
        (9.1, Failed, &["failed", "update us t0 @2"]),
        (11.99, Tick, &[]),
        (12.0, Tick, &["lost: no renewal succeeded for 10.0s: request failed"]),
        (12.1, Stored(3), &[]),
        (99.0, Tick, &[]),
    ];
    run(&mut machine, "no renewal", rows);
    assert!(machine.is_over());
}

#[test]
fn acceptance_machinery_056_after_a_pause_the_old_term_is_not_renewed() {
    let cases: [(&str, Vec<Row<'_>>); 3] = [
        ("paused between two renewals", vec![(30.0, Tick, &["lost: no renewal succeeded for 30.0s"])]),
        (
            "paused while a renewal was in flight, whose response is delayed",
            vec![(2.0, Tick, &["update us t0 @1"]), (30.0, Stored(2), &["lost: no renewal succeeded for 30.0s"])],
        ),
        (
            "the watch event comes first",
            vec![(30.0, Observed(lease("b", 1, 9)), &["lost: no renewal succeeded for 30.0s"])],
        ),
    ];
    for (name, rows) in cases {
        let mut machine = leader();
        run(&mut machine, name, rows);
        run(&mut machine, name, vec![(31.0, Failed, &[]), (60.0, Tick, &[]), (60.0, Observed(lease("", 1, 9)), &[])]);
    }
}

#[test]
fn acceptance_machinery_049_a_leader_whose_lease_is_held_by_another_ends_its_term_at_once() {
    let cases: [(&str, Vec<Row<'_>>); 3] = [
        ("observed by the watch", vec![(1.0, Observed(lease("b", 1, 5)), &["lost: b holds the lease"])]),
        (
            "read after a conflict",
            vec![
                (2.0, Tick, &["update us t0 @1"]),
                (2.01, Failed, &["failed", "get"]),
                (2.02, Read(lease("b", 1, 5)), &["lost: b holds the lease"]),
            ],
        ),
        (
            "observed by the watch while a renewal is in flight",
            vec![(2.0, Tick, &["update us t0 @1"]), (2.01, Observed(lease("b", 1, 5)), &["lost: b holds the lease"])],
        ),
    ];
    for (name, rows) in cases {
        let mut machine = leader();
        run(&mut machine, name, rows);
        // It stays over, even if the other process releases the Lease.
        let after: Vec<Row<'_>> = vec![(3.0, Failed, &[]), (4.0, Observed(lease("", 1, 9)), &[]), (30.0, Tick, &[])];
        run(&mut machine, name, after);
        assert!(machine.is_over(), "{name}");
    }
}

#[test]
fn acceptance_machinery_049_a_leader_whose_lease_was_emptied_stops_at_its_deadline_and_does_not_write_it_back() {
    let mut machine = leader();
    let emptied = || lease("", 0, 5);
    let rows: Vec<Row<'_>> = vec![
        (1.0, Observed(emptied()), &[]),
        (2.0, Tick, &["get"]),
        (2.01, Read(emptied()), &["failed"]),
        (4.01, Tick, &["get"]),
        (4.02, Read(emptied()), &["failed"]),
        (9.9, Tick, &["get"]),
        (10.0, Tick, &["lost: no renewal succeeded for 10.0s: the lease has no holder"]),
    ];
    run(&mut machine, "emptied by a user", rows);
}

#[test]
fn no_term_begins_by_a_write_that_another_holder_has_replaced_already() {
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(lease("", 4, 1)), &["update us t5 @1"]),
        // Our write is version 2. Its response arrives after the watch has shown version 3.
        (0.01, Observed(lease("b", 6, 3)), &["leader b"]),
        (0.02, Stored(2), &[]),
        (4.5, Tick, &["get"]),
    ];
    check("replaced", rows);
}

#[test]
fn new_process_waits_a_full_lease_duration_from_its_first_observation() {
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(lease("go", 4, 1)), &["leader go"]),
        (4.5, Tick, &["get"]),
        (4.5, Read(lease("go", 4, 1)), &[]),
        (9.0, Tick, &["get"]),
        (9.0, Read(lease("go", 4, 1)), &[]),
        (13.5, Tick, &["get"]),
        (13.5, Read(lease("go", 4, 1)), &[]),
        (14.999, Tick, &[]),
        // At the end of the lease, not at the next poll.
        (15.0, Tick, &["get"]),
        (15.01, Read(lease("go", 4, 1)), &["update us t5 @1"]),
        (15.02, Stored(2), &["leader us", "renewed", "acquired Other"]),
    ];
    check("newcomer", rows);
}

#[test]
fn each_observed_renewal_restarts_the_wait() {
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(lease("go", 4, 1)), &["leader go"]),
        (3.0, Observed(lease("go", 4, 2)), &[]),
        (4.5, Tick, &["get"]),
        (4.6, Read(lease("go", 4, 3)), &[]),
        // A stale event from before the read.
        (4.7, Observed(lease("go", 4, 2)), &[]),
        (9.1, Tick, &["get"]),
        (9.1, Failed, &["failed"]),
        (13.6, Tick, &["get"]),
        (13.6, Failed, &["failed"]),
        (18.1, Tick, &["get"]),
        (18.1, Failed, &["failed"]),
        (19.6, Tick, &["get"]),
        // A failure at the end of the lease does not shorten the wait.
        (19.6, Failed, &["failed"]),
        (19.7, Tick, &[]),
    ];
    check("renewals", rows);
}

#[test]
fn released_lease_is_acquired_as_soon_as_it_is_observed() {
    let before = |then: Vec<Row<'static>>| {
        let mut rows: Vec<Row<'_>> = vec![(0.0, Tick, &["get"]), (0.0, Read(held_by_ours("a", 4, 1)), &["leader a"])];
        rows.extend(then);
        rows
    };
    let cases: [(&str, Vec<Row<'static>>); 6] = [
        (
            "by ours, between two attempts",
            vec![
                (1.0, Observed(released_by_ours(4, 2)), &["update us t5 @2"]),
                (1.01, Stored(3), &["leader us", "renewed", "acquired ReleasedByOurs"]),
            ],
        ),
        (
            "by a Go manager",
            vec![
                (1.0, Observed(lease("", 4, 2)), &["update us t5 @2"]),
                (1.01, Stored(3), &["leader us", "renewed", "acquired Other"]),
            ],
        ),
        (
            "while a read is in flight",
            vec![(4.5, Tick, &["get"]), (4.6, Observed(released_by_ours(4, 2)), &["update us t5 @2"])],
        ),
        (
            "edited while our write is in flight, whose response is awaited",
            vec![
                (1.0, Observed(released_by_ours(4, 2)), &["update us t5 @2"]),
                (1.01, Observed(released_by_ours(4, 3)), &[]),
                (1.02, Failed, &["failed", "get"]),
                (1.03, Read(released_by_ours(4, 3)), &["update us t5 @3"]),
            ],
        ),
        (
            "another standby was faster",
            vec![
                (1.0, Observed(released_by_ours(4, 2)), &["update us t5 @2"]),
                (1.01, Observed(held_by_ours("b", 5, 3)), &["leader b"]),
                (1.02, Failed, &["failed", "get"]),
                (1.03, Read(held_by_ours("b", 5, 3)), &[]),
            ],
        ),
        (
            "known by polling only",
            vec![(4.5, Tick, &["get"]), (4.6, Read(released_by_ours(4, 2)), &["update us t5 @2"])],
        ),
    ];
    for (name, rows) in cases {
        check(name, before(rows));
    }
}

#[test]
fn prove_ahead_is_sent_once_the_fence_of_a_crashed_leader_has_ended() {
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(held_by_ours("a", 4, 1)), &["leader a"]),
        (2.0, Observed(held_by_ours("a", 4, 2)), &[]),
        (4.5, Tick, &["get"]),
        (4.5, Failed, &["failed"]),
        (9.0, Tick, &["get"]),
        (11.99, Tick, &[]),
        (12.0, Tick, &["prove as of 16.5"]),
        (12.1, Failed, &["failed"]),
        // The leader renews after all: the proof is void, and the wait begins again.
        (12.2, Observed(held_by_ours("a", 4, 3)), &[]),
        (22.2, Tick, &["prove as of 26.7", "get"]),
        (22.3, Read(held_by_ours("a", 4, 3)), &[]),
        (26.9, Tick, &["get"]),
        (26.9, Read(held_by_ours("a", 4, 3)), &[]),
        (27.2, Tick, &["get"]),
        (27.2, Read(held_by_ours("a", 4, 3)), &["update us t5 @3"]),
        (27.2, Stored(4), &["leader us", "renewed", "acquired from a crash of ours at 12.2"]),
    ];
    check("crash of ours", rows);
}

#[test]
fn annotation_kept_by_a_go_manager_is_ignored() {
    let stale = r#"{"transitions":3,"ms":10000}"#;
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(with("go", 4, 1, &json!({ "mini-kcm.io/fence": stale }))), &["leader go"]),
        (15.0, Tick, &["get"]),
        (15.0, Read(with("go", 4, 1, &json!({ "mini-kcm.io/fence": stale }))), &["update us t5 @1"]),
        (15.0, Stored(2), &["leader us", "renewed", "acquired Other"]),
    ];
    check("void note", rows);
}

#[test]
fn write_with_a_lost_response_keeps_its_takeover() {
    let ours = |version| {
        let taken = released_by_ours(4, 1).taken(&config(), Timestamp::UNIX_EPOCH);
        taken.with_stored_version(Uid::new("u"), Version::from(version))
    };
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(released_by_ours(4, 1)), &["update us t5 @1"]),
        (5.0, Failed, &["failed"]),
        (9.5, Tick, &["get"]),
        (9.6, Read(ours(2)), &["leader us", "slow path", "update us t5 @2"]),
        (9.7, Stored(3), &["renewed", "acquired ReleasedByOurs"]),
    ];
    check("lost response", rows);
}

#[test]
fn late_response_begins_no_term() {
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Absent, &["create us t0"]),
        (20.0, Stored(1), &["leader us", "failed"]),
        // The lease counts from the sending of the write, so it has expired and is read first.
        (24.5, Tick, &["get"]),
    ];
    check("late response", rows);
}

#[test]
fn a_deleted_lease_is_created_again_by_its_holder_and_by_others_only_after_its_end() {
    let mut machine = leader();
    let gone = machine.observed.as_ref().unwrap().lease.clone().with_stored_version(Uid::new("u"), Version::from(2));
    let rows: Vec<Row<'_>> = vec![
        (1.0, Deleted(gone), &["get"]),
        (1.01, Absent, &["create us t0"]),
        (1.02, Stored(3), &["renewed"]),
        (3.01, Tick, &["update us t0 @3"]),
    ];
    run(&mut machine, "the holder", rows);

    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(lease("go", 4, 1)), &["leader go"]),
        (1.0, Deleted(lease("go", 4, 2)), &[]),
        (4.5, Tick, &["get"]),
        (4.5, Absent, &[]),
        (16.0, Tick, &["get"]),
        (16.0, Absent, &["create us t0"]),
        (16.0, Stored(3), &["leader us", "renewed", "acquired Other"]),
    ];
    check("others", rows);
}

#[test]
fn lease_that_never_had_a_holder_is_a_first_takeover() {
    let untouched = || Lease::decode(br#"{"metadata":{"resourceVersion":"1"},"spec":{}}"#).unwrap();
    let rows: Vec<Row<'_>> = vec![
        (0.0, Tick, &["get"]),
        (0.0, Read(untouched()), &["update us t1 @1"]),
        (0.0, Stored(2), &["leader us", "renewed", "acquired First"]),
    ];
    check("untouched", rows);
}

#[test]
fn waits_between_tries_are_jittered_within_bounds() {
    let mut machine = Machine::new(config(), Rng::with_seed(3), at(0.0));
    let mut now = at(0.0);
    let mut waits = Vec::new();
    for _ in 0..200 {
        assert!(machine.next_action(now, Timestamp::UNIX_EPOCH).is_some());
        machine.on_response(RequestOutcome::Failed("down".to_owned()), now);
        assert!(matches!(machine.next_action(now, Timestamp::UNIX_EPOCH), Some(ElectionAction::Failed(_))));
        assert!(machine.next_action(now, Timestamp::UNIX_EPOCH).is_none());
        let next = machine.next_deadline().unwrap();
        waits.push(next.saturating_since(now).as_secs_f64());
        now = next;
    }
    let (least, most) = waits.iter().fold((f64::MAX, 0.0f64), |(a, b), &it| (a.min(it), b.max(it)));
    assert!((2.0..2.2).contains(&least) && (4.2..=4.4).contains(&most), "{least} {most}");
}
