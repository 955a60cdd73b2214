//! Standbys, restarts and the end of a term.

use harness::pass;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, is_punctual, names};

#[tokio::test(start_paused = true)]
async fn a_warm_standby_that_leads_sets_unknown_at_the_original_deadline() {
    let world = World::with(&["a", "b"]);
    let leader = world.start().await;
    let standby = world.standby().await;
    world.kubelets(&["a", "b"], 5 * SEC).await;
    world.renew("a");
    world.kubelets(&["b"], 30 * SEC).await;
    drop(leader);
    world.kubelets(&["b"], 45 * SEC).await;
    let _manager = standby.lead();
    world.kubelets(&["b"], 55 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.kubelets(&["b"], 60 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 55 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn a_warm_standby_that_leads_sets_unknown_at_once_what_became_due_between_the_terms() {
    let world = World::with(&["a", "b"]);
    let leader = world.start().await;
    let standby = world.standby().await;
    world.kubelets(&["b"], 45 * SEC).await;
    drop(leader);
    world.kubelets(&["b"], 62 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "a standby writes nothing");
    let _manager = standby.lead();
    world.kubelets(&["b"], 63 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 62 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_whose_watches_were_interrupted_gives_a_full_grace_period() {
    let world = World::with(&["a", "b"]);
    let standby = world.standby().await;
    world.kubelets(&["b"], 20 * SEC).await;
    world.begin_outage(&["leases"]);
    world.kubelets(&["b"], 40 * SEC).await;
    world.end_outage();
    world.kubelets(&["b"], 75 * SEC).await;
    let _manager = standby.lead();
    world.kubelets(&["b"], 85 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.kubelets(&["b"], 130 * SEC).await;
    let unknown_at = world.unknown_at("a");
    assert!(unknown_at.len() == 1 && unknown_at[0] >= 90 * SEC, "{unknown_at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cold_process_gives_a_full_grace_period() {
    let world = World::with(&["a", "b"]);
    let leader = world.start().await;
    world.kubelets(&["b"], 45 * SEC).await;
    drop(leader);
    world.kubelets(&["b"], 47 * SEC).await;
    let _manager = world.start().await;
    world.kubelets(&["b"], 97 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.kubelets(&["b"], 100 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 97 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn the_pace_is_kept_across_a_hand_over() {
    for is_warm in [true, false] {
        let world = World::new();
        let (alive, dead) = (names("alive", 5), names("dead", 4));
        alive.iter().chain(&dead).for_each(|it| world.add(it));
        let leader = world.start().await;
        let standby = if is_warm { Some(world.standby().await) } else { None };
        world.kubelets(&alive, 52 * SEC).await;
        assert_eq!(world.tainted().len(), 1);
        drop(leader);
        let _manager = match standby {
            Some(standby) => standby.lead(),
            None => world.start().await,
        };
        world.kubelets(&alive, 100 * SEC).await;
        let times: Vec<_> = world.taintings().into_iter().map(|it| it.1).collect();
        assert_eq!(times.len(), 4, "warm {is_warm}: {times:?}");
        let pauses: Vec<_> = times.windows(2).map(|it| it[1] - it[0]).collect();
        assert!(pauses.iter().all(|it| *it >= 10 * SEC && *it <= 11_200 * MS), "warm {is_warm}: {pauses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pace_is_kept_by_a_cold_process_although_taints_have_only_whole_seconds() {
    let world = World::new();
    let (alive, dead) = (names("alive", 5), names("dead", 2));
    alive.iter().chain(&dead).for_each(|it| world.add(it));
    world.sleep_until(900 * MS).await;
    dead.iter().for_each(|it| world.renew(it));
    let leader = world.start().await;
    world.kubelets(&alive, 53 * SEC).await;
    drop(leader);
    let _manager = world.start().await;
    world.kubelets(&alive, 100 * SEC).await;
    let times: Vec<_> = world.taintings().into_iter().map(|it| it.1).collect();
    assert!(times.len() == 2 && times[1] - times[0] >= 10 * SEC, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_006_a_new_process_taints_nodes_that_wait_and_keeps_the_taints_of_others() {
    let world = World::new();
    let (alive, dead) = (names("alive", 5), names("dead", 3));
    alive.iter().chain(&dead).for_each(|it| world.add(it));
    let leader = world.start().await;
    world.kubelets(&alive, 52 * SEC).await;
    drop(leader);
    let tainted = world.tainted()[0].0.clone();
    world.cluster.clear_requests();
    world.kubelets(&alive, 70 * SEC).await;
    let _manager = world.start().await;
    world.kubelets(&alive, 71 * SEC).await;
    assert_eq!(world.tainted().len(), 1, "the interval is over, so one is tainted at once");
    world.kubelets(&alive, 100 * SEC).await;
    assert_eq!(world.tainted().len(), 2);
    assert!(world.tainted().iter().all(|it| it.0 != tainted));
    assert_eq!(world.call_count("patch nodes/status"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_during_a_full_disruption_taints_nothing() {
    let world = World::with(&["a", "b", "c"]);
    let leader = world.start().await;
    world.sleep_until(100 * SEC).await;
    drop(leader);
    world.sleep_until(120 * SEC).await;
    let _manager = world.start().await;
    world.sleep_until(400 * SEC).await;
    assert_eq!(world.tainted(), []);
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_status_and_the_taint_is_healed_by_the_next_process() {
    let world = World::with(&["a", "b"]);
    world.add_pod("on-a", "a");
    let leader = world.start().await;
    world.fail_requests(|line, _| match line {
        "patch nodes a" | "patch pods/status on-a" => Some(Interception::Hang),
        _ => None,
    });
    world.kubelets(&["b"], 55 * SEC).await;
    assert_eq!((world.ready("a"), world.taints("a").len()), ("Unknown".to_owned(), 0));
    drop(leader);
    world.fail_requests(|_, _| None);
    world.kubelets(&["b"], 57 * SEC).await;
    let _manager = world.start().await;
    assert_eq!(world.taints("a"), ["unreachable:NoExecute", "unreachable:NoSchedule"]);
    assert!(world.is_marked("on-a"), "k/k#135205");
}

#[tokio::test(start_paused = true)]
async fn a_standby_has_no_effect() {
    let world = World::with(&["a"]);
    world.create_old("b", "Unknown", 3600, &[]);
    world.add_pod("on-b", "b");
    let _standby = world.standby().await;
    world.sleep_until(300 * SEC).await;
    assert_eq!((world.lines(), world.lease_reads()), (vec![], 0));
    assert_eq!(world.node_events().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_its_end_a_term_writes_nothing() {
    let world = World::with(&["a", "b", "c", "d", "e"]);
    let manager = world.start().await;
    world.kubelets(&["c", "d", "e"], 51 * SEC).await;
    assert_eq!(world.tainted().len(), 1, "another one waits");
    manager.stop_and_wait().await;
    let before = world.lines().len();
    world.kubelets(&["d"], 300 * SEC).await;
    assert_eq!(world.lines().len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_a_live_read_and_between_attempts_ends_soon() {
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    world.on_lease_read(|_| Interception::DelayAnswer(SEC));
    world.kubelets(&["b"], 50 * SEC + 500 * MS).await;
    manager.stop_and_wait().await;
    assert!(world.elapsed() <= 53 * SEC, "{:?}", world.elapsed());

    let world = World::with(&["a"]);
    let manager = world.start().await;
    world.fail_requests(|line, _| if line == "patch nodes a" { harness::failure(409, "Conflict") } else { None });
    world.update("a", |it| it["spec"]["unschedulable"] = json!(true));
    pass(150 * MS).await;
    manager.stop_and_wait().await;
    assert!(world.elapsed() <= 3 * SEC, "{:?}", world.elapsed());
}
