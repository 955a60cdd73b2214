//! The whole manager under simulation: election, fence, informers, queues and controllers, with everything going wrong that
//! may. How to read a failure and how to write another one stands in `docs/simulation.md`.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

mod manager;
mod namespaces;

use testing::sim;

/// As in the binary: runs are short, and much of them is memory.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[test]
fn namespaces_random() {
    sim::seeds(&namespaces::wild());
}

#[test]
fn namespaces_sweep() {
    sim::sweep(&namespaces::small());
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    for seed in 0..8 {
        let [one, other] = [(); 2].map(|()| sim::trace(&namespaces::wild(), seed).unwrap());
        assert!(one.len() > 200, "seed {seed} does something: {}", one.len());
        let differs = one.iter().zip(&other).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}
