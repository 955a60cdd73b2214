//! Everything at once, from a seed: lost answers, refusals, delays, late objects, crashes. `SEED=7 cargo test chaos`
//! replays one, `SEEDS=1000` tries a thousand.

use std::time::Duration;

use fastrand::Rng;
use test_cluster::{Call, Verdict};

use crate::world::{MS, SEC, World, line, pass};

const KINDS: [&str; 5] = ["pods", "configmaps", "secrets", "jobs", "widgets.example.com"];
const NAMESPACES: usize = 8;

#[test]
fn no_namespace_goes_before_its_content_whatever_happens() {
    let number = |name| std::env::var(name).ok().map(|it| it.parse::<u64>().unwrap());
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(25),
    };
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let ended = runtime.block_on(run(seed));
        assert!(ended.is_ok(), "SEED={seed}: {ended:?}");
    }
}

async fn run(seed: u64) -> Result<(), String> {
    let world = World::new();
    let mut rng = Rng::with_seed(seed);
    world.custom_kind("widgets", "Widget");
    for number in 0..NAMESPACES {
        fill(&world, &name(number), &mut rng);
    }
    let broken = faults(&world, rng.fork());
    let mut manager = Some(world.start().await);
    for number in 0..NAMESPACES {
        world.delete_namespace(&name(number));
        pass(rng.u32(0..1500) * MS).await;
        // Another API server has not heard of the deletion yet.
        let late = format!("late-{number}");
        world.config_map(&name(number), &late);
        if rng.u8(0..4) == 0 {
            // The old one is gone before the new one is there.
            drop(manager.take());
            manager = Some(world.start().await);
        }
    }
    for _ in 0..10 {
        pass(rng.u32(1000..8000) * MS).await;
        kubelet(&world, &mut rng);
    }
    // Faults stop, the kubelet ends what is left, and everybody lets go.
    world.spoil(|_, _| None);
    for kind in KINDS {
        for object in world.cluster.list(kind, "") {
            let [namespace, name] = ["namespace", "name"].map(|it| object["metadata"][it].as_str().unwrap().to_owned());
            world.release(kind, &namespace, &name);
            if kind == "pods" {
                world.cluster.delete(kind, &namespace, &name);
            }
        }
    }
    pass(200 * SEC).await;
    drop(manager);
    let left: Vec<_> = (0..NAMESPACES).map(name).filter(|it| world.exists(it)).collect();
    let broken = broken.lock().unwrap().clone();
    if left.is_empty() && broken.is_empty() { Ok(()) } else { Err(format!("left: {left:?}, broken: {broken:?}")) }
}

fn name(number: usize) -> String {
    format!("n-{number}")
}

fn fill(world: &World, namespace: &str, rng: &mut Rng) {
    world.namespace(namespace);
    for number in 0..rng.usize(0..4) {
        let held: &[&str] = if rng.u8(0..3) == 0 { &["x.io/hold"] } else { &[] };
        world.pod(namespace, &format!("p-{number}"), rng.u32(0..20), held);
    }
    for (api_version, kind) in
        [("v1", "ConfigMap"), ("v1", "Secret"), ("batch/v1", "Job"), ("example.com/v1", "Widget")]
    {
        for number in 0..rng.usize(0..5) {
            let held: &[&str] = if rng.u8(0..5) == 0 { &["x.io/hold"] } else { &[] };
            world.object(api_version, kind, namespace, &format!("o-{number}"), held);
        }
    }
}

/// Spoils one call in four, and looks at what each finalize would let go. Returns what must never happen.
fn faults(world: &World, mut rng: Rng) -> std::sync::Arc<std::sync::Mutex<Vec<String>>> {
    let broken = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (told, cluster) = (broken.clone(), world.cluster.clone());
    world.spoil(move |_, call| {
        let count = |kind: &str, namespace: &str| cluster.list(kind, namespace).len();
        if call.subresource == "finalize" && KINDS.iter().any(|it| count(it, &call.name) > 0) {
            told.lock().unwrap().push(format!("{} with content", line(call)));
        }
        let other = call.verb == "deletecollection" && call.resource != "pods";
        if other && count("pods", &call.namespace) > 0 {
            told.lock().unwrap().push(format!("{} before its pods", line(call)));
        }
        spoil(call, &mut rng)
    });
    broken
}

fn spoil(call: &Call, rng: &mut Rng) -> Option<Verdict> {
    let verdict = match rng.u8(0..40) {
        0 => Verdict::status(500, "InternalError", "etcd is away"),
        1 => Verdict::status(429, "TooManyRequests", "slow down").retry_after(1),
        2 => Verdict::text(503, "service unavailable"),
        3 => Verdict::LoseAnswer,
        4 => Verdict::Fail,
        5 => Verdict::Hang,
        6 => Verdict::Delay(Duration::from_millis(rng.u64(0..3000))),
        7 => Verdict::DelayAnswer(Duration::from_millis(rng.u64(0..3000))),
        8 if call.verb == "update" => Verdict::status(409, "Conflict", "the object has been modified"),
        8 | 9 if !call.resource.is_empty() => Verdict::status(404, "NotFound", ""),
        _ => return None,
    };
    // A server that says "not found" of what is there lies; it may for collections, as of a kind that comes or goes,
    // but then it has nothing of that kind to show either.
    let lies = matches!(verdict, Verdict::Answer { status: 404, .. }) && call.verb != "deletecollection";
    (!lies).then_some(verdict)
}

/// Ends some pods, and lets go of some objects.
fn kubelet(world: &World, rng: &mut Rng) {
    for pod in world.cluster.list("pods", "") {
        let [namespace, name] = ["namespace", "name"].map(|it| pod["metadata"][it].as_str().unwrap().to_owned());
        if pod["metadata"]["deletionTimestamp"].is_string() && rng.bool() {
            world.release("pods", &namespace, &name);
            world.cluster.delete("pods", &namespace, &name);
        }
    }
}
