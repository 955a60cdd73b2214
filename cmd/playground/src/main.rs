//! A cluster in one terminal: the embedded API server on a loopback port, fake nodes, mini-kcm, and sample workloads
//! that visibly complete. `kubectl` works beside it; `--kubeconfig` shows the same samples on a real cluster.
//!
//! Reading order: [`run`] is the story from start to cleanup; [`samples`] is the table of what is shown (one entry a
//! sample: its objects, what the user does, and how far it is as a function of objects); [`place`] is where it happens,
//! [`stage`] what is known while it does, [`user`] the hands, [`chaos`] the faults, [`manager`] who controls, [`cleanup`]
//! the end; [`view`] says how it looks, as lines of text, and [`screen`] puts them on a terminal.

mod chaos;
mod cleanup;
mod flags;
mod manager;
mod place;
mod run;
mod samples;
mod screen;
mod seen;
mod signals;
mod stage;
mod user;
mod view;

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
    // Two workers: cluster, nodes and manager wait for each other most of the time.
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
