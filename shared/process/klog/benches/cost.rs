//! The cost of a line that is not written, of a line that is written, and of the span around each sync.
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]
#![expect(clippy::expect_used, reason = "a bench may end at the first error")]

use std::{hint::black_box, io, time::Instant};

use clock::Clock;
use klog::Options;

const ROUNDS: u32 = 1_000_000;

fn main() {
    let (subscriber, _handle) =
        klog::subscriber(Options::default(), Clock::system(), io::sink(), io::sink()).expect("a thread can be started");
    tracing::subscriber::set_global_default(subscriber).expect("no other subscriber is set");
    measure("a line that is not written", || tracing::debug!(key = black_box("ns/name"), "synced"));
    measure("a span of a key", || {
        let span = tracing::info_span!("sync", controller = "job-controller", key = %black_box("ns/name"));
        span.in_scope(|| black_box(()));
    });
    measure("a line that is written, in such a span", || {
        let span = tracing::info_span!("sync", controller = "job-controller", key = %black_box("ns/name"));
        span.in_scope(|| tracing::info!(created = 3, "synced"));
    });
}

fn measure(what: &str, mut act: impl FnMut()) {
    let started = Instant::now();
    for _ in 0..ROUNDS {
        act();
    }
    println!("{what}: {} ns", started.elapsed().as_nanos() / u128::from(ROUNDS));
}
