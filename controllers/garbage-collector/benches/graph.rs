//! Measures the cost of an object in the graph, with few and with many dependents: `cargo bench -p
//! garbage-collector-controller`.
//!
//! It measures the time to add, change, read and remove one of ten dependents, and one of a hundred thousand: the
//! second must not be slower. The test `an_object_costs_at_most_250_bytes_in_total` counts the bytes.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]
#![expect(clippy::unwrap_used, reason = "a bench panics on errors")]

#[path = "../src"]
#[expect(dead_code, unused_imports, reason = "the graph is private to its crate, and the bench uses a part of it")]
mod src {
    pub(crate) mod graph;
    pub(crate) mod owners {
        pub(crate) mod absence_proofs;
    }
    pub(crate) mod rules {
        pub(crate) mod evidence;
        pub(crate) mod verdict;
    }
}

use std::time::{Duration, Instant};

use api::{Cached, Meta, Resource, Uid};

use crate::src::{
    graph::{self, Graph, Item, MonitorId},
    owners, rules,
};

const OBJECTS: usize = 100_000;

fn main() {
    println!("dependents of one | added | changed | read | removed");
    for each in [10, 100, 1_000, OBJECTS] {
        measure(each);
    }
}

fn measure(each: usize) {
    let objects: Vec<Meta> = (0..OBJECTS).map(|it| decoded(it, it % each, each)).collect();
    let changed: Vec<Meta> = objects.iter().map(|it| Meta { version: 9_999_999.into(), ..it.clone() }).collect();
    let mut graph = Graph::new(1);
    let by = graph.monitor(&Resource::namespaced("", "v1", "configmaps", "ConfigMap"));
    let uids: Vec<Uid> = objects.iter().map(|it| it.uid.clone()).collect();
    let added = spent(|| objects.into_iter().for_each(|it| graph.observe(by, it)));
    let changed = spent(|| changed.into_iter().for_each(|it| graph.observe(by, it)));
    let asked = spent(|| read(&graph, &uids));
    let removed = spent(|| remove(&mut graph, by, &uids));
    let ns = |it: Duration| it.as_nanos() / OBJECTS as u128;
    println!("{each} | {} ns | {} ns | {} ns | {} ns", ns(added), ns(changed), ns(asked), ns(removed));
}

fn read(graph: &Graph, uids: &[Uid]) {
    for uid in uids {
        assert!(graph.node(&Item::Observed(uid.clone())).is_some());
    }
}

fn remove(graph: &mut Graph, by: MonitorId, uids: &[Uid]) {
    for uid in uids.iter().rev() {
        graph.on_deleted(by, uid);
    }
}

/// The first of each group owns the others.
fn decoded(number: usize, place: usize, each: usize) -> Meta {
    let owner = number - place;
    let uid = |it: usize| format!("6b4e1c52-8d1f-4a0b-9b6e-{it:012x}");
    let owners = match place {
        0 => String::new(),
        _ => format!(
            r#","ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"c{owner}-of-{each}","uid":"{}"}}]"#,
            uid(owner)
        ),
    };
    let text = format!(
        r#"{{"metadata":{{"name":"c{number}-of-{each}","namespace":"ns","uid":"{}","resourceVersion":"{number}"{owners}}}}}"#,
        uid(number)
    );
    Meta::decode_object(text.as_bytes()).unwrap()
}

fn spent(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
