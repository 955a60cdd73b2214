use std::collections::BTreeMap;

use crate::support::{Mode, Process, Server, epoch, secs, sleep};
use api::Version;
use leader_election::{EVENT_REASON, Notes, ReleaseError, Signal, Takeover, became_leader, stopped_leading};
use serde_json::{Value, json};

const OLD: &str = "2020-01-01T00:00:00.000000Z";

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_042_without_a_lease_it_is_created() {
    let server = Server::new();
    let mut it = Process::start(&server, "host_6b4e1c52-8d1f-4a0b-9b6e-0123456789ab", 1);
    assert_eq!(it.wait_until_leading(0.1).await, Takeover::First);
    let now = server.spec()["renewTime"].clone();
    assert!(now.as_str().unwrap().starts_with("2027-01-15T08:00:00."), "{now}");
    let want = json!({
        "holderIdentity": "host_6b4e1c52-8d1f-4a0b-9b6e-0123456789ab", "leaseDurationSeconds": 15,
        "leaseTransitions": 0, "acquireTime": now, "renewTime": now,
    });
    assert_eq!(server.spec(), want);
    sleep(60.0).await;
    assert_eq!(server.spec()["acquireTime"], now);
    assert_eq!(server.writes(&it.name).len(), 31, "created, then renewed each two seconds");
    assert_eq!(it.elector.lease_uid().to_string(), "uid-100");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_043_a_standby_of_a_live_holder_writes_nothing() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    let mut b = Process::start(&server, "b", 2);
    assert_eq!(b.signals(600.0).await, [Signal::NewLeader("a".into())]);
    assert!(server.log().iter().all(|it| it.client == "a" || matches!(it.what, "get" | "watch")));
    assert!(a.term.may_start_write() && !b.term.may_start_write());
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_044_a_crash_is_taken_over_at_the_end_of_the_lease() {
    for seed in 0..10 {
        let server = Server::new();
        let mut a = Process::start(&server, "a", seed);
        a.wait_until_leading(0.1).await;
        let mut b = Process::start(&server, "b", 100 + seed);
        sleep(30.0 + 0.3 * seed as f64).await;
        drop(a);
        sleep(0.1).await;
        let last = server.writes("a").last().unwrap().at;

        let Takeover::CrashOfOurs { last_change, .. } = b.wait_until_leading(20.0).await else { panic!("seed {seed}") };
        let waited = server.elapsed() - last;
        // Promise 4; shell 34 and machinery 44 allow 20 s.
        assert!(secs(15.0) <= waited && waited < secs(15.2), "seed {seed}: {waited:?}");
        assert!(b.clock.boot().saturating_since(last_change) <= waited);
        assert_eq!((server.holder().as_str(), server.transitions()), ("b", 1), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_034_the_upper_bound_holds_by_polling_alone() {
    for seed in 0..20 {
        let server = Server::new();
        let mut a = Process::start(&server, "a", seed);
        a.wait_until_leading(0.1).await;
        let link = server.link("b");
        link.forbid_watch();
        let mut b = Process::start_at(&server, "b", 100 + seed, epoch(), link);
        sleep(30.0).await;
        drop(a);
        b.wait_until_leading(20.0).await;
        let last = server.writes("a").last().unwrap().at;
        assert!(server.elapsed() - last < secs(20.0), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn prove_ahead_is_sent_when_the_fence_of_a_crashed_leader_ends() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    let mut b = Process::start(&server, "b", 2);
    sleep(5.0).await;
    assert_eq!(b.signals(0.1).await, [Signal::NewLeader("a".into())], "not while the holder renews");
    drop(a);
    let last = server.writes("a").last().unwrap().at;
    let Signal::ProveAhead { last_write } = b.elector.next().await else { panic!() };
    let after = server.elapsed() - last;
    assert!(secs(10.0) <= after && after < secs(10.1), "{after:?}");
    let ahead = last_write.saturating_since(b.clock.boot());
    assert!(secs(4.4) < ahead && ahead <= secs(4.5), "half a second before the lease ends: {ahead:?}");
    assert_eq!(b.elector.next().await, Signal::NewLeader("b".into()));
    assert!(matches!(b.elector.next().await, Signal::Acquired(Takeover::CrashOfOurs { .. })));
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_045_046_a_new_process_waits_for_the_duration_in_the_lease() {
    let day = secs(86_400.0);
    for (seconds, wall) in [(15, epoch()), (60, epoch()), (15, epoch() + day), (15, epoch() - day)] {
        let server = Server::new();
        server.store_go_record("go", seconds, 7, OLD);
        let mut b = Process::start_at(&server, "b", 3, wall, server.link("b"));
        assert_eq!(b.wait_until_leading(100.0).await, Takeover::Other);
        let waited = server.elapsed().as_secs_f64();
        let wanted = f64::from(seconds);
        assert!(wanted <= waited && waited < wanted + 0.2, "{seconds} {wall}: {waited}");
        assert_eq!(server.spec()["leaseDurationSeconds"], 15);
        assert_eq!((server.holder().as_str(), server.transitions()), ("b", 8));
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_047_a_release_is_taken_at_once_with_its_notes() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    let mut b = Process::start(&server, "b", 2);
    sleep(33.3).await;
    let notes = Notes { versions: BTreeMap::from([("namespaces".to_owned(), Version::from(123))]) };
    let released = server.elapsed();
    a.elector.release(Some(notes.clone())).await.unwrap();
    assert!(!a.term.may_start_write());
    assert_eq!(b.wait_until_leading(1.0).await, Takeover::ReleasedByOurs(notes));
    assert!(server.elapsed() - released < secs(0.15), "promise 4: {:?}", server.elapsed() - released);
    assert_eq!((server.holder().as_str(), server.transitions()), ("b", 1));
    assert!(server.lease()["metadata"]["annotations"].get("mini-kcm.io/hand-over").is_none(), "the notes are removed");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_047_a_release_is_taken_at_the_next_try_where_watching_is_refused() {
    for seed in 0..10 {
        let server = Server::new();
        let mut a = Process::start(&server, "a", seed);
        a.wait_until_leading(0.1).await;
        let link = server.link("b");
        link.forbid_watch();
        let mut b = Process::start_at(&server, "b", 50 + seed, epoch(), link);
        sleep(20.0).await;
        let released = server.elapsed();
        a.elector.release(None).await.unwrap();
        assert_eq!(b.wait_until_leading(10.0).await, Takeover::Other, "without notes everything is proved");
        assert!(server.elapsed() - released < secs(4.5), "seed {seed}");
        assert_eq!(server.transitions(), 1);
        assert!(
            server.log().iter().filter(|it| it.what == "watch" && it.client == "b").count() <= 2,
            "few watch requests"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_048_an_unreachable_leader_stops_before_another_takes_over() {
    for mode in [Mode::Hang, Mode::Broken, Mode::LosesResponses] {
        for seed in 0..6 {
            let server = Server::new();
            let mut a = Process::start(&server, "a", seed);
            a.wait_until_leading(0.1).await;
            let mut b = Process::start(&server, "b", 50 + seed);
            sleep(10.0 + seed as f64 * 0.37).await;
            // The last renewal with a response was sent before this time.
            let cut = server.elapsed();
            a.link.set(mode);
            let why = a.wait_until_lost(11.0).await;
            assert!(why.contains("no renewal succeeded"), "{why}");
            let lost = server.elapsed();
            assert!(lost - cut <= secs(10.01), "{mode:?} {seed}: {:?}", lost - cut);
            assert!(!a.term.is_valid() && a.master_status() == 0);
            assert_ne!(server.holder(), "b", "{mode:?} {seed}: two leaders");
            a.link.set(Mode::Up);
            b.wait_until_leading(25.0).await;
            assert!(a.signals(30.0).await.is_empty(), "an ended term stays ended");
            assert_eq!(server.holder(), "b");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_035_with_renewals_blocked_the_term_ends_ten_seconds_after_the_last_one() {
    for mode in [Mode::Hang, Mode::Broken] {
        for seed in 0..6 {
            let server = Server::new();
            let mut a = Process::start(&server, "a", seed);
            a.wait_until_leading(0.1).await;
            let _b = Process::start(&server, "b", 50 + seed);
            sleep(10.5 + seed as f64 * 0.37).await;
            let renewed = server.writes("a").last().unwrap().at;
            a.link.set(mode);
            a.wait_until_lost(11.0).await;
            let after = server.elapsed() - renewed;
            assert!(secs(9.99) <= after && after <= secs(10.0), "{mode:?} {seed}: {after:?}");
            assert!(!a.term.may_start_write());
            assert_eq!(server.holder(), "a", "{mode:?} {seed}: before another process leads");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn short_outage_does_not_end_the_term() {
    for mode in [Mode::Hang, Mode::Broken, Mode::LosesResponses] {
        for seed in 0..6 {
            let server = Server::new();
            let mut a = Process::start(&server, "a", seed);
            a.wait_until_leading(0.1).await;
            sleep(10.0 + seed as f64 * 0.41).await;
            a.link.set(mode);
            sleep(4.0).await;
            a.link.set(Mode::Up);
            assert!(a.signals(60.0).await.is_empty(), "{mode:?} {seed}");
            assert!(a.term.may_start_write(), "{mode:?} {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_049_a_leader_that_was_overwritten_stops_and_does_not_write_back() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    sleep(7.0).await;
    let before = server.writes("a").len();
    server.store_go_record("go", 15, 1, "2027-01-15T08:00:07.000000Z");
    assert_eq!(a.wait_until_lost(0.01).await, "go holds the lease");
    assert!(!a.term.is_valid());
    sleep(60.0).await;
    assert_eq!((server.writes("a").len(), server.holder().as_str()), (before, "go"));
    assert_eq!(a.elector.release(None).await, Err(ReleaseError::TakenBy("go".into())));
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_050_a_conflict_is_resolved_by_a_read_and_keeps_the_writes_of_others() {
    let server = Server::new();
    let link = server.link("a");
    link.forbid_watch();
    let mut a = Process::start_at(&server, "a", 1, epoch(), link);
    a.wait_until_leading(0.1).await;
    sleep(7.0).await;
    assert_eq!(a.metric("leader_election_slowpath_total"), 0);
    server.edit(|it| {
        it["metadata"]["labels"] = json!({ "by": "hand" });
        it["spec"]["strategy"] = json!("OldestEmulationVersion");
    });
    sleep(10.0).await;
    assert_eq!(a.metric("leader_election_slowpath_total"), 1);
    let conflicts = server.log().iter().filter(|it| it.code == 409).count();
    assert_eq!(conflicts, 1);
    assert_eq!(server.lease()["metadata"]["labels"], json!({ "by": "hand" }));
    assert_eq!(server.spec()["strategy"], "OldestEmulationVersion");
    assert_eq!(server.transitions(), 0);
}

#[tokio::test(start_paused = true)]
async fn edit_by_another_client_causes_no_conflict_with_a_watch() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    sleep(7.0).await;
    server.edit(|it| it["metadata"]["labels"] = json!({ "by": "hand" }));
    sleep(10.0).await;
    assert_eq!(a.metric("leader_election_slowpath_total"), 0);
    assert_eq!(server.lease()["metadata"]["labels"], json!({ "by": "hand" }));
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_052_the_gauge_shows_the_leader_and_the_events_have_the_texts_of_upstream() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    assert_eq!(a.master_status(), 0, "exported from the start");
    a.wait_until_leading(0.1).await;
    let mut b = Process::start(&server, "b", 2);
    sleep(5.0).await;
    assert_eq!((a.master_status(), b.master_status()), (1, 0));
    let metrics = a.metrics.clone();
    a.elector.release(None).await.unwrap();
    assert!(metrics.encode().contains("leader_election_master_status{name=\"kube-controller-manager\"} 0"));
    b.wait_until_leading(1.0).await;
    assert_eq!(b.master_status(), 1);
    assert_eq!(EVENT_REASON, "LeaderElection");
    assert_eq!((became_leader("a").as_str(), stopped_leading("a").as_str()), ("a became leader", "a stopped leading"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_053_a_leader_that_is_blocked_for_more_than_35_s_is_unhealthy() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    assert!(a.health.check().is_ok(), "not started");
    a.wait_until_leading(0.1).await;
    let b = Process::start(&server, "b", 2);
    sleep(20.0).await;
    // Blocked: time advances, but its tasks do not run.
    let (a_blocked, b_blocked) = (a.clock.clone(), b.clock.clone());
    let renewed = server.elapsed() - server.writes("a").last().unwrap().at;
    a_blocked.suspend(secs(34.9) - renewed);
    assert!(a.health.check().is_ok());
    a_blocked.suspend(secs(0.2));
    b_blocked.suspend(secs(100.0));
    let message = a.health.check().unwrap_err().to_string();
    assert_eq!(message, "failed election to renew leadership on lease kube-controller-manager");
    assert!(b.health.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_056_after_a_pause_the_old_term_writes_nothing() {
    for seed in 0..10 {
        let server = Server::new();
        let mut a = Process::start(&server, "a", seed);
        a.wait_until_leading(0.1).await;
        sleep(20.0 + 0.23 * seed as f64).await;
        let before = server.writes("a").len();
        a.clock.suspend(secs(16.0));
        assert!(!a.term.may_start_write() && !a.term.is_valid(), "before any task runs");
        a.wait_until_lost(1.1).await;
        sleep(60.0).await;
        let after = server.writes("a").len();
        // A write in flight may still arrive.
        assert!(after <= before + 1, "seed {seed}: {before} {after}");
        assert!(!a.term.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn go_manager_and_ours_take_over_from_each_other() {
    let server = Server::new();
    // The Go manager releases, as version 1.37 does, and ours takes over.
    server.store_go_record("go", 15, 4, "2027-01-15T08:00:00.100000Z");
    let mut a = Process::start(&server, "a", 1);
    sleep(3.0).await;
    server.edit(|it| {
        it["spec"]["holderIdentity"] = json!("");
        it["spec"]["leaseDurationSeconds"] = json!(1);
    });
    assert_eq!(a.wait_until_leading(0.15).await, Takeover::Other);
    assert_eq!(server.transitions(), 5);

    // Ours releases with notes. The Go manager takes over, keeps the metadata, and crashes.
    let notes = Notes { versions: BTreeMap::from([("pods".to_owned(), Version::from(5))]) };
    a.elector.release(Some(notes)).await.unwrap();
    assert_eq!((server.holder().as_str(), server.spec()["leaseDurationSeconds"].clone()), ("", json!(1)));
    assert!(server.lease()["metadata"]["annotations"]["mini-kcm.io/hand-over"].is_string());
    server.store_go_record("go", 15, 6, "2027-01-15T08:00:10.000000Z");
    let mut b = Process::start(&server, "b", 2);
    assert_eq!(b.wait_until_leading(15.2).await, Takeover::Other, "the notes are of another term");
    assert_eq!(server.transitions(), 7);

    // Ours crashes. The Go manager takes over, keeps the annotation of the fence, and crashes.
    drop(b);
    server.store_go_record("go", 15, 8, "2027-01-15T08:01:00.000000Z");
    let mut c = Process::start(&server, "c", 3);
    assert_eq!(c.signals(14.9).await, [Signal::NewLeader("go".into())], "nothing to prove ahead");
    assert_eq!(c.wait_until_leading(0.3).await, Takeover::Other);
}

#[tokio::test(start_paused = true)]
async fn lost_response_to_an_acquisition_keeps_the_previous_holder() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    let mut b = Process::start(&server, "b", 2);
    sleep(5.0).await;
    let notes = Notes { versions: BTreeMap::from([("pods".to_owned(), Version::from(5))]) };
    a.elector.release(Some(notes.clone())).await.unwrap();
    b.link.set(Mode::LosesResponses);
    sleep(2.0).await;
    assert_eq!(server.holder(), "b", "the write is stored");
    assert!(!b.term.is_valid(), "but its response is lost");
    b.link.set(Mode::Up);
    assert_eq!(b.wait_until_leading(15.0).await, Takeover::ReleasedByOurs(notes));
    assert_eq!(server.transitions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_release_succeeds_despite_conflicts_outages_and_a_renewal_in_flight() {
    for seed in 0..20 {
        let server = Server::new();
        let mut a = Process::start(&server, "a", seed);
        a.wait_until_leading(0.1).await;
        // Each seed releases at another moment of a renewal, which takes 2 ms in each direction. Half of the seeds also
        // have a broken network.
        sleep(1.99 + 0.001 * (seed % 10) as f64).await;
        let link = a.link.clone();
        if seed >= 10 {
            link.set(Mode::Broken);
            tokio::spawn(async move {
                sleep(3.0).await;
                link.set(Mode::Up);
            });
        }
        a.elector.release(None).await.unwrap();
        assert_eq!((server.holder().as_str(), server.transitions()), ("", 0), "seed {seed}");
        sleep(60.0).await;
        assert_eq!(server.holder(), "", "seed {seed}: no further renewal");
    }
}

#[tokio::test(start_paused = true)]
async fn release_while_an_acquisition_is_in_flight_clears_the_holder() {
    for held_before in [false, true] {
        let server = Server::new();
        if held_before {
            server.store_go_record("", 15, 1, "2027-01-15T08:00:00.000000Z");
        }
        let a = Process::start(&server, "a", 1);
        a.link.set(Mode::LateWrites);
        sleep(0.5).await;
        assert!(
            server.writes("a").is_empty() && server.log().len() > 1,
            "the read is done, and the write is in flight"
        );
        a.elector.release(None).await.unwrap();
        sleep(60.0).await;
        assert_eq!((server.holder().as_str(), server.writes("a").len()), ("", 2), "claimed and released");
    }
}

#[tokio::test(start_paused = true)]
async fn release_with_a_lost_response_succeeds_even_if_another_process_leads() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    let mut b = Process::start(&server, "b", 2);
    sleep(5.0).await;
    let link = a.link.clone();
    // The read returns after four milliseconds; the response to the write is lost.
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        link.set(Mode::LosesResponses);
        sleep(2.0).await;
        link.set(Mode::Up);
    });
    assert_eq!(a.elector.release(None).await, Ok(()));
    b.wait_until_leading(0.1).await;
    assert_eq!(server.writes("a").len(), 4, "created, renewed twice, released once");
}

#[tokio::test(start_paused = true)]
async fn ended_term_is_not_renewed() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    a.term.end();
    assert_eq!(a.wait_until_lost(2.1).await, "the term has ended");
    let before = server.log().len();
    sleep(30.0).await;
    assert!(server.log()[before..].iter().all(|it| it.what == "watch"));
}

#[tokio::test(start_paused = true)]
async fn release_stops_at_the_renew_deadline() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    a.link.set(Mode::Hang);
    let from = server.elapsed();
    assert!(matches!(a.elector.release(None).await, Err(ReleaseError::TimedOut { .. })));
    assert_eq!(server.elapsed() - from, secs(10.0));
}

#[tokio::test(start_paused = true)]
async fn released_standby_sends_no_request() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    let b = Process::start(&server, "b", 2);
    sleep(5.0).await;
    let before = server.log().len();
    b.elector.release(Some(Notes::default())).await.unwrap();
    assert_eq!(server.log().len(), before);
    assert_eq!(server.holder(), "a");
}

#[tokio::test(start_paused = true)]
async fn dropped_elector_stops_renewing() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    drop(a.elector);
    let before = server.log().len();
    sleep(30.0).await;
    assert_eq!(server.log().len(), before);
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_recreated_by_its_leader_and_not_taken_by_others() {
    let server = Server::new();
    let mut a = Process::start(&server, "a", 1);
    a.wait_until_leading(0.1).await;
    let mut b = Process::start(&server, "b", 2);
    sleep(5.0).await;
    for _ in 0..5 {
        server.delete();
        assert_eq!(server.lease(), Value::Null);
        sleep(1.1).await;
        assert_eq!((server.holder().as_str(), server.transitions()), ("a", 0));
    }
    assert!(a.signals(30.0).await.is_empty());
    assert_eq!(b.signals(0.1).await, [Signal::NewLeader("a".into())]);
}
