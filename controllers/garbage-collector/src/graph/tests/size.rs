//! Tests of the cost: memory by counting allocated bytes, time by counting lookups.

use std::collections::BTreeSet;

use api::{Cached, Meta, Uid};

use super::super::{Graph, fixture::*, ids::steps, node::Refs};

/// The limit for everything that the graph stores for one object.
const MOST_BYTES: usize = 250;
const MANY: usize = 100_000;

/// Names and uids of realistic length.
fn uid(number: usize) -> String {
    format!("6b4e1c52-8d1f-4a0b-9b6e-{number:012x}")
}

/// Decoded as by an informer: equal owners are shared.
fn decoded(number: usize, owner: Option<usize>) -> Meta {
    let owners = owner.map(|it| {
        let (uid, name) = (uid(it), name(it));
        format!(
            r#","ownerReferences":[{{"apiVersion":"v1","kind":"Pod","name":"{name}","uid":"{uid}","controller":true}}]"#
        )
    });
    let (uid, name, owners) = (uid(number), name(number), owners.unwrap_or_default());
    let object = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{uid}","resourceVersion":"{number}"{owners}}}}}"#
    );
    Meta::decode_object(object.as_bytes()).unwrap()
}

fn name(number: usize) -> String {
    format!("web-7448499f4d-{number:05}")
}

/// Owners first, each with `each` dependents.
fn filled(owners: usize, each: usize) -> World {
    let mut world = World::new();
    for owner in 0..owners {
        world.graph.observe(world.pods, decoded(owner, None));
        for child in 0..each {
            world.graph.observe(world.pods, decoded(owners + owner * each + child, Some(owner)));
        }
    }
    world
}

#[test]
fn an_object_costs_at_most_250_bytes_in_total() {
    for (owners, each) in [(1, MANY), (1_000, 100), (20_000, 5), (50_000, 1)] {
        let world = filled(owners, each);
        let (objects, bytes) = (owners * (each + 1), bytes(&world.graph));
        assert!(bytes / objects <= MOST_BYTES, "{owners} owners of {each}: {} bytes an object", bytes / objects);
    }
}

#[test]
fn removed_objects_free_their_memory() {
    let mut world = filled(1, 20_000);
    let full = bytes(&world.graph);
    for number in 0..20_001 {
        world.pod_deleted(&uid(number));
    }
    world.due();
    assert_eq!(world.graph.size(), (0, 0));
    assert!(bytes(&world.graph) < full / 50, "{} of {full}", bytes(&world.graph));
}

/// Lookups for each object: to add, to change, to read and to remove it.
fn steps_each(dependents: usize) -> [u64; 4] {
    let mut world = World::new();
    world.graph.observe(world.pods, decoded(0, None));
    let each = |from: u64| (steps::taken() - from) / dependents as u64;
    let numbers = || 1..=dependents;

    let begin = steps::taken();
    numbers().for_each(|it| world.graph.observe(world.pods, decoded(it, Some(0))));
    let added = each(begin);

    let begin = steps::taken();
    numbers().for_each(|it| world.graph.observe(world.pods, decoded(it, (it % 2 == 0).then_some(0))));
    let changed = each(begin);

    let begin = steps::taken();
    numbers().for_each(|it| assert!(world.graph.node(&observed(&uid(it))).is_some()));
    let asked = each(begin);

    let begin = steps::taken();
    numbers().for_each(|it| assert_eq!(world.graph.on_deleted(world.pods, &Uid::new(&uid(it))), None));
    [added, changed, asked, each(begin)]
}

#[test]
fn one_of_a_hundred_thousand_dependents_takes_no_more_steps_than_one_of_ten() {
    let (few, many) = (steps_each(10), steps_each(MANY));
    for (few, many) in few.into_iter().zip(many) {
        // A bucket of a large table may have false matches; a scan would need thousands of lookups.
        assert!(many <= few + 6, "{many} lookups for one of many, {few} for one of few");
    }
}

/// Everything that is allocated for a graph, in the size classes of the allocator.
fn bytes(graph: &Graph) -> usize {
    let mut total = graph.slab().bytes();
    for members in graph.monitors().map(|it| &it.members) {
        total += members.bytes();
    }
    let mut owners = BTreeSet::new();
    for node in graph.slab().iter() {
        total += node.below.as_ref().map_or(0, |it| given(size_of_val(&**it)) + it.dependents.bytes());
        let Some(observed) = node.observed() else { continue };
        total += given(observed.name.len()) + observed.rare.as_ref().map_or(0, |it| given(size_of_val(&**it)));
        let Refs::Full(refs) = &observed.owners else { continue };
        if !refs.is_empty() && owners.insert(refs.as_ptr()) {
            // The reference counts; the place in the table of shared references, of which at least half are unused; the
            // name in the interner, with its own counts and link.
            total += given(16 + size_of_val(&**refs)) + 2 * 25;
            total += refs.iter().map(|it| given(40) + given(it.name.len())).sum::<usize>();
        }
    }
    total
}

/// The size classes of jemalloc that matter here.
pub(in super::super) fn given(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        129..=256 => bytes.next_multiple_of(32),
        257..=512 => bytes.next_multiple_of(64),
        513..=1024 => bytes.next_multiple_of(128),
        1025..=4096 => bytes.next_multiple_of(512),
        _ => bytes.next_multiple_of(4096),
    }
}
