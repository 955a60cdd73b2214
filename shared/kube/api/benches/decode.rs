//! Time and memory for each pod: `cargo bench -p api`.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::{hint::black_box, sync::Arc, time::Instant};

use api::{Cached, Frame, Meta, Pod};
use common::resident;

#[path = "../tests/common/mod.rs"]
mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 20_000;

fn main() {
    let mut source = common::Pods::new();
    let bytes = source.frame(0).len();
    println!("a frame of {bytes} bytes");
    // Both are kept, because memory that one releases would hide what the other allocates.
    let _metadata = frames::<Meta>("metadata", &mut source);
    let _pods = frames::<Pod>("pod", &mut source);

    let page = source.page(0, 500);
    let start = Instant::now();
    for _ in 0..20 {
        black_box(Pod::decode_page(black_box(page)).is_ok());
    }
    println!("pod in a page: {:.2} µs", start.elapsed().as_secs_f64() * 1e6 / 20.0 / 500.0);
}

fn frames<T: Cached>(name: &str, source: &mut common::Pods) -> Vec<Arc<T>> {
    let (before, mut spent, mut kept) = (resident(), 0.0, Vec::with_capacity(PODS));
    for n in 0..PODS {
        let frame = source.frame(n);
        let start = Instant::now();
        let decoded = T::decode_frame(black_box(frame));
        spent += start.elapsed().as_secs_f64();
        if let Frame::Object(_, object) = decoded {
            kept.push(Arc::new(object));
        }
    }
    let each = (resident() - before) / kept.len();
    println!("{name} in a frame: {:.2} µs, {each} bytes resident", spent * 1e6 / PODS as f64);
    kept
}
