//! `sync_pods KUBECONFIG`: syncs a pod informer with the manager's configuration (allocator, two workers, TLS, HTTP/2)
//! and prints the cost as one line of JSON. It is a separate process, so that nothing else is measured.

#![expect(clippy::print_stdout, reason = "the figures are its output")]

use std::{path::Path, time::Duration};

use anyhow::Context;
use api::Pod;
use clock::Clock;
use e2e::{StandaloneInformers, Usage};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Long enough for the allocator to return memory that only the sync needed.
const MEMORY_PAUSE: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let kubeconfig = std::env::args().nth(1).context("usage: sync_pods KUBECONFIG")?;
    let clock = Clock::system();
    let view = StandaloneInformers::open(Path::new(&kubeconfig), 1)?;
    let began = clock.now();
    let pods = view.informers.typed::<Pod>();
    let watched = pods.watched();
    tokio::time::timeout(Duration::from_secs(300), watched.wait_for_sync()).await.context("not synced")?;
    let wall = clock.now() - began;
    let synced = Usage::of(std::process::id())?;
    tokio::time::sleep(MEMORY_PAUSE).await;
    let after_pause = Usage::of(std::process::id())?;
    let line = json!({
        "pods": pods.store().len(),
        "wall_ms": wall.as_millis(),
        "cpu_ms": synced.cpu.as_millis(),
        "peak_kib": after_pause.peak_kib,
        "resident_kib": after_pause.resident_kib,
        "anonymous_kib": after_pause.anonymous_kib,
    });
    println!("{line}");
    Ok(())
}
