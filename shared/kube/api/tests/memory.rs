//! The memory of a cached pod, measured as resident memory of the process with the allocator that we ship.

use std::sync::Arc;

use api::{Cached, Event, Frame, Pod};
use common::resident;

mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn decode(frame: &[u8]) -> Arc<Pod> {
    let Frame::Object(Event::Added, pod) = Pod::decode_frame(frame) else { panic!() };
    Arc::new(pod)
}

#[test]
fn a_cached_pod_costs_at_most_1000_bytes() {
    const PODS: usize = 20_000;
    let mut source = common::Pods::new();
    let mut pods = Vec::with_capacity(PODS);
    // The first pods also load code and tables, which do not grow with the cluster.
    let warm: Vec<_> = (0..100).map(|n| decode(source.frame(PODS + n))).collect();
    let (before, mut wire) = (resident(), 0);
    for n in 0..PODS {
        let frame = source.frame(n);
        wire += frame.len();
        pods.push(decode(frame));
    }
    let (each, wire) = ((resident() - before) / PODS, wire / PODS);
    assert!((8_000..11_000).contains(&wire), "{wire} bytes of JSON are too few or too many for a server");
    assert!(each <= 1_000, "{each} bytes");
    assert!(each > 100, "{each} bytes: the measurement failed");

    let (first, next_of_owner) = (&pods[0], &pods[400]);
    assert!(Arc::ptr_eq(&first.meta.owners, &next_of_owner.meta.owners));
    assert!(Arc::ptr_eq(&first.tolerations, &pods[1].tolerations));
    assert_eq!((first.labels.iter().count(), first.conditions.len(), first.containers.len()), (6, 5, 3));
    drop(warm);
}
