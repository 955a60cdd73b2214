//! A cluster in one terminal: the embedded API server on a loopback port, fake nodes, mini-kcm, and sample workloads
//! that complete visibly. `kubectl` can be used at the same time; `--kubeconfig` runs the same samples on a real
//! cluster.
//!
//! Reading order: [`run`] goes from start to cleanup; [`samples`] is the table of samples (one entry each: its objects,
//! the user's steps, and its progress as a function of objects); [`target`] is the cluster, [`shared_state`] the shared
//! state, [`user`] creates and changes objects, [`chaos`] injects faults, [`manager`] runs mini-kcm, [`cleanup`]
//! removes everything; [`screen_model`] formats the state as lines of text, and [`screen`] writes them to a terminal.

mod chaos;
mod cleanup;
mod flags;
mod manager;
mod observed;
mod run;
mod samples;
mod screen;
mod screen_model;
mod shared_state;
mod signals;
mod target;
mod user;

use std::process::ExitCode;

use crate::flags::Asked;

fn main() -> ExitCode {
    let options = match flags::parse(std::env::args_os()) {
        Asked::Run(options) => options,
        Asked::Print { text, failed } => {
            screen::print(&text, failed);
            return if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    // Two workers are enough: cluster, nodes and manager mostly wait for each other.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => {
            screen::print(&format!("playground: cannot start: {err}\n"), true);
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run::run(*options));
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            screen::print(&format!("playground: {err:#}\n"), true);
            ExitCode::FAILURE
        }
    }
}
