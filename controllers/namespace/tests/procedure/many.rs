//! Many namespaces at once: what they share, and that none blocks another.

use harness::pass;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, forbidden, line};

fn name(number: usize) -> String {
    format!("n-{number}")
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_024_a_hundred_namespaces_deleted_at_once_are_soon_gone() {
    let world = World::new();
    for number in 0..100 {
        world.create_namespace(&name(number));
        world.config_map(&name(number), "x");
        world.object("v1", "Secret", &name(number), "x", &[]);
    }
    let _manager = world.start().await;
    (0..100).for_each(|number| world.delete_namespace(&name(number)));
    pass(20 * SEC).await;
    let left = (0..100).filter(|number| world.exists(&name(*number))).count();
    assert_eq!(left, 0, "all are gone within a fraction of the 150 s");
}

#[tokio::test(start_paused = true)]
async fn kinds_are_listed_once_and_not_for_each_namespace() {
    let world = World::new();
    (0..20).for_each(|number| world.custom_kind(&format!("w{number}s"), &format!("W{number}")));
    for number in 0..60 {
        world.create_namespace(&name(number));
        world.config_map(&name(number), "x");
    }
    let _manager = world.start().await;
    // Over three seconds, as in a shell loop.
    for number in 0..60 {
        world.delete_namespace(&name(number));
        pass(50 * MS).await;
    }
    pass(20 * SEC).await;
    assert!((0..60).all(|number| !world.exists(&name(number))));

    let calls = world.calls();
    let about_custom = calls.iter().filter(|it| it.group == "example.com").count();
    // Four starts and four ends, one list each.
    assert!(about_custom <= 20 * 8, "{about_custom}");
    let discoveries = calls.iter().filter(|it| line(it) == "GET /apis").count();
    assert!(discoveries <= 8, "{discoveries}");
    let lines = world.lines(&name(30));
    let wanted = [
        "get namespaces n-30",
        "deletecollection configmaps n-30",
        "list configmaps n-30",
        "update namespaces/status n-30",
        "get namespaces n-30",
        "update namespaces/finalize n-30",
    ];
    assert_eq!(lines, wanted);
}

#[tokio::test(start_paused = true)]
async fn hanging_namespaces_do_not_starve_the_others() {
    let world = World::new();
    for number in 0..30 {
        world.create_namespace(&name(number));
        world.config_map(&name(number), "x");
    }
    let _manager = world.start().await;
    let hangs = |it: &str| (0..30).any(|number| it == format!("deletecollection configmaps {}", name(number)));
    world.fail_requests(move |line, _| hangs(line).then_some(Interception::Hang));
    (0..30).for_each(|number| world.delete_namespace(&name(number)));
    // By then the time limit of each has passed.
    pass(120 * SEC).await;
    assert!((0..30).all(|number| world.exists(&name(number))));
    world.create_namespace("good");
    world.config_map("good", "x");
    world.delete_namespace("good");
    pass(10 * SEC).await;
    assert!(!world.exists("good"));
    world.fail_requests(|_, _| None);
    pass(400 * SEC).await;
    assert!((0..30).all(|number| !world.exists(&name(number))));
}

#[tokio::test(start_paused = true)]
async fn slow_failing_namespaces_pause_between_passes() {
    let world = World::new();
    for number in 0..12 {
        world.create_namespace(&name(number));
        world.config_map(&name(number), "x");
    }
    let _manager = world.start().await;
    world.fail_requests(|line, _| line.starts_with("deletecollection configmaps n-").then_some(Interception::Hang));
    (0..12).for_each(|number| world.delete_namespace(&name(number)));
    // Five run a pass of 70 s at any time, so it takes nearly three minutes to sync all. After its pass each pauses, in
    // the end for a minute, and then requests the next permit every 15 s.
    for (warm_up, most) in [(120, 300), (3600, 200)] {
        pass(warm_up * SEC).await;
        world.cluster.clear_requests();
        pass(600 * SEC).await;
        let calls: Vec<_> = world.calls().iter().map(line).collect();
        let looks = calls.iter().filter(|it| it.starts_with("get namespaces n-")).count();
        assert!((40..=most).contains(&looks), "after {warm_up} s: {looks}");
        for number in 0..12 {
            let wanted = format!("deletecollection configmaps n-{number}");
            let turns = calls.iter().filter(|it| **it == wanted).count();
            assert!((2..=5).contains(&turns), "after {warm_up} s: {number} had {turns} turns");
        }
    }
    world.fail_requests(|_, _| None);
    pass(150 * SEC).await;
    assert!((0..12).all(|number| !world.exists(&name(number))));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_in_time_again_is_not_slow_any_more() {
    let world = World::new();
    world.create_namespace("a");
    world.object("v1", "Secret", "a", "held", &["x.io/hold"]);
    let _manager = world.start().await;
    let hang = |line: &str, _: &test_cluster::Call| line.ends_with("secrets a").then_some(Interception::Hang);
    let start = world.clock.now();
    world.fail_requests(hang);
    world.delete_namespace("a");
    pass(11 * SEC).await;
    let looks = world.times("get namespaces a", start);
    assert!(
        looks.len() == 2 && looks[1] >= 10 * SEC,
        "the pass took the whole limit, so the namespace is slow: {looks:?}"
    );
    world.fail_requests(|_, _| None);
    pass(120 * SEC).await;
    assert_eq!(world.true_conditions("a").len(), 2, "the next pass completed");

    world.fail_requests(hang);
    pass(9 * SEC).await;
    let hung = world.times("list secrets a", start);
    pass(120 * SEC).await;
    let looks = world.times("get namespaces a", start);
    let next = looks.iter().find(|it| *it > hung.last().unwrap()).unwrap();
    let patience = *next - *hung.last().unwrap();
    assert!(patience >= 10 * SEC && patience < 11 * SEC, "the usual limit, not 75 s: {patience:?}");
}

#[tokio::test(start_paused = true)]
async fn kinds_with_objects_in_many_namespaces_are_listed_in_each() {
    let world = World::new();
    world.create_namespace("crowd");
    (0..600).for_each(|number| world.config_map("crowd", &format!("x-{number}")));
    world.create_namespace("a");
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert!(!world.exists("a"));
    assert_eq!((world.count("configmaps", "a"), world.count("configmaps", "crowd")), (0, 600));
    let lines: Vec<_> = world.lines("a").into_iter().filter(|it| it.contains("configmaps")).collect();
    assert_eq!(lines, ["deletecollection configmaps a", "list configmaps a", "list configmaps a"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_never_responds_uses_each_worker_for_seconds_only() {
    let world = World::new();
    world.custom_kind("widgets", "Widget");
    for number in 0..40 {
        world.create_namespace(&name(number));
        world.config_map(&name(number), "x");
    }
    let _manager = world.start().await;
    world.fail_requests(|_, call| (call.group == "example.com").then_some(Interception::Hang));
    (0..40).for_each(|number| world.delete_namespace(&name(number)));
    // Ten seconds for each namespace, ten at a time.
    pass(32 * SEC).await;
    let left = (0..40).filter(|number| world.count("configmaps", &name(*number)) > 0).count();
    assert_eq!(left, 0, "of 40");
    pass(300 * SEC).await;
    world.create_namespace("new");
    world.config_map("new", "x");
    world.delete_namespace("new");
    pass(2 * SEC).await;
    assert_eq!(world.count("configmaps", "new"), 0, "hanging namespaces leave workers to the others");
    world.fail_requests(|_, _| None);
    pass(180 * SEC).await;
    assert!((0..40).all(|number| !world.exists(&name(number))));
}

/// Adds this many kinds of one group, which sort before `zebras` in every order.
fn hung_kinds(world: &World, count: usize) {
    (0..count).for_each(|number| world.custom_kind(&format!("hung{number:02}s"), &format!("Hung{number:02}")));
}

#[tokio::test(start_paused = true)]
async fn hanging_kinds_do_not_keep_a_healthy_kind_of_their_group_out_of_a_pass() {
    let world = World::new();
    hung_kinds(&world, 12);
    world.custom_kind("zebras", "Zebra");
    world.create_namespace("a");
    world.object("example.com/v1", "Zebra", "a", "first", &[]);
    let _manager = world.start().await;
    world.fail_requests(|_, call| call.resource.starts_with("hung").then_some(Interception::Hang));
    world.delete_namespace("a");
    pass(15 * SEC).await;
    assert_eq!(world.count("zebras.example.com", "a"), 0, "in the first pass");
    for number in 0..5 {
        world.object("example.com/v1", "Zebra", "a", &format!("late-{number}"), &[]);
        // The rest of a slow pass, and a pause of a minute.
        pass(140 * SEC).await;
        assert_eq!(world.count("zebras.example.com", "a"), 0, "in slow pass {number}");
    }
    world.fail_requests(|_, _| None);
    pass(140 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_slower_than_a_usual_pass_is_deleted_in_a_slow_pass() {
    for (takes, within) in [(3, 10), (5, 60), (15, 60), (55, 90)] {
        let world = World::new();
        world.custom_kind("widgets", "Widget");
        world.create_namespace("a");
        world.object("example.com/v1", "Widget", "a", "x", &[]);
        let _manager = world.start().await;
        world.fail_requests(move |line, _| match line {
            "list widgets.example.com *" => Some(Interception::Hang),
            "deletecollection widgets.example.com a" => Some(Interception::Delay(takes * SEC)),
            _ => None,
        });
        world.delete_namespace("a");
        pass(within * SEC).await;
        assert!(!world.exists("a"), "{takes} s");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_kinds_within_the_limit_do_not_keep_the_last_kinds_out_of_a_pass() {
    let world = World::new();
    hung_kinds(&world, 140);
    world.create_namespace("a");
    world.object("example.com/v1", "Hung99", "a", "x", &[]);
    let _manager = world.start().await;
    // The first passes (30 s and 75 s) end before they have requested all kinds.
    world.fail_requests(|_, call| call.resource.starts_with("hung").then_some(Interception::Delay(4_900 * MS)));
    world.delete_namespace("a");
    pass(400 * SEC).await;
    assert_eq!(world.count("hung99s.example.com", "a"), 0);
    pass(400 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn many_kinds_with_hanging_cluster_lists_delay_no_namespace() {
    let world = World::new();
    hung_kinds(&world, 300);
    world.create_namespace("a");
    world.object("example.com/v1", "Hung298", "a", "x", &[]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| (line.starts_with("list hung") && line.ends_with('*')).then_some(Interception::Hang));
    world.delete_namespace("a");
    pass(900 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_list_of_the_cluster_shortens_no_call_in_the_namespace() {
    let world = World::new();
    world.create_namespace("a");
    world.pod("a", "p", 0, &[]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| match line {
        "list pods *" => forbidden(),
        "deletecollection pods a" => Some(Interception::Delay(6 * SEC)),
        _ => None,
    });
    world.delete_namespace("a");
    pass(8 * SEC).await;
    assert!(!world.exists("a"));
}
