//! Runs the process: from the command line to the exit code.

use std::{io::Write, process::ExitCode, time::Duration};

use client::{Connection, Plugins, PoolOptions, Term};
use clock::Clock;
use metrics::Metrics;
use tasks::{Scope, Spawner};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    flags::{self, Invocation},
    manager::{self, Deps, Exit},
    serve::ReviewConnections,
};

/// The TCP user timeout of write connections without leader election: a peer that does not answer is detected after it.
const UNELECTED_WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Parses the flags, runs the manager and returns the exit code.
#[must_use]
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let config = match flags::parse(args) {
        Invocation::Print(text) => {
            return if print(&text) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Invocation::Run(typed) => Config::new(typed),
    };
    let config = match config {
        Ok(config) => config,
        Err(errors) => {
            for error in errors {
                print_error(&error);
            }
            return ExitCode::FAILURE;
        }
    };
    let log = match klog::install(config.logging.clone(), Clock::system()) {
        Ok(log) => log,
        Err(err) => {
            print_error(&format!("cannot log: {err}"));
            return ExitCode::FAILURE;
        }
    };
    log_start(&config);
    // One worker thread. Controllers mostly wait for the API server, and waking a second thread costs CPU.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(err) => {
            log.end(|| tracing::error!(%err, "command failed"));
            return ExitCode::FAILURE;
        }
    };
    if config.identity.preflight {
        let code = runtime.block_on(run_preflight(config, log.clone()));
        runtime.shutdown_background();
        log.end(|| ());
        return code;
    }
    let exit = runtime.block_on(run(config, log.clone()));
    // The shutdown timeouts have passed. Tasks that still run are aborted.
    runtime.shutdown_background();
    // The exit cause must be the last line of the log, because operators look for it there.
    match exit {
        Exit::Clean => {
            log.end(|| tracing::info!("Stopped in order"));
            ExitCode::SUCCESS
        }
        Exit::Failed(cause) => {
            log.end(|| tracing::error!(err = cause, "command failed"));
            ExitCode::FAILURE
        }
    }
}

/// Logs the flags and then the version, as the first lines of every log.
fn log_start(config: &Config) {
    for (name, value) in &config.observability.flags {
        tracing::debug!(target: klog::FLAG, "FLAG: --{name}={value:?}");
    }
    tracing::info!(version = concat!("v", env!("CARGO_PKG_VERSION")), "Starting");
}

/// `--preflight`
async fn run_preflight(config: Config, log: klog::Handle) -> ExitCode {
    let deps = match deps(&config, log, CancellationToken::new()).await {
        Ok(deps) => deps,
        Err(cause) => {
            print_error(&cause);
            return ExitCode::FAILURE;
        }
    };
    let report = manager::preflight(config, deps).await;
    if print(&report.text()) && report.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(config: Config, log: klog::Handle) -> Exit {
    let stop = CancellationToken::new();
    let second = match handle_signals(stop.clone()) {
        Ok(second) => second,
        Err(err) => return Exit::Failed(format!("cannot listen for signals: {err}")),
    };
    let deps = match deps(&config, log, stop).await {
        Ok(deps) => deps,
        Err(cause) => return Exit::Failed(cause),
    };
    tokio::select! {
        biased;
        () = second => Exit::Failed("second signal: stopped at once".to_owned()),
        exit = manager::run(config, deps) => exit,
    }
}

/// The dependencies of a manager in its own process: the system clock, and connections to the API server of the flags.
///
/// # Errors
/// Why the flags give no usable connection. The text names the flag.
pub async fn deps(config: &Config, log: klog::Handle, stop: CancellationToken) -> Result<Deps, String> {
    let clock = Clock::system();
    let term = match config.election {
        Some(_) => Term::new(clock.clone()),
        None => Term::endless(clock.clone()),
    };
    let scope = Scope::new();
    let server = client::load(config.kubeconfig.as_deref(), config.master.as_deref()).map_err(|err| err.to_string())?;
    // The connection drops bytes of the old term that are not acknowledged when the Lease expires.
    let election = config.election.as_ref();
    let write_timeout =
        election.map_or(UNELECTED_WRITE_TIMEOUT, |it| it.lease_duration.saturating_sub(it.renew_deadline));
    let metrics = Metrics::with(config.observability.filter.clone());
    metrics.register(Box::new(metrics::process::Process::this()));
    let options = PoolOptions {
        spawner: scope.spawner(),
        term: term.clone(),
        clock: clock.clone(),
        write_timeout,
        lease_attempt: election.map_or(Duration::MAX, |it| it.with_identity(String::new()).request_timeout()),
        plugins: Plugins::new(&metrics),
    };
    let review_connections = match &config.serving {
        Some(serving) => ReviewConnections::open(serving, &options)?,
        None => ReviewConnections::default(),
    };
    let connection = Connection::open(server, options).map_err(|err| err.to_string())?;
    register_process_metrics(&metrics, log.clone(), scope.spawner());
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Deps {
        connection,
        review_connections,
        term,
        clock,
        seed: fastrand::u64(..),
        metrics,
        log,
        scope,
        stop,
        hostname,
    })
}

/// Registers the process metrics, which exist once per process. The task count covers the scope of `spawner` on all
/// runtimes, also on that of the serving port.
fn register_process_metrics(metrics: &Metrics, log: klog::Handle, spawner: Spawner) {
    let tasks = metrics.gauges(
        "go_goroutines",
        "Number of tasks that currently exist, under the name that dashboards use.",
        &[],
    );
    let dropped = metrics.counters(
        "mini_kcm_log_lines_dropped_total",
        "Log lines that were dropped, because the reader of the log was too slow.",
        &[],
    );
    let (tasks, dropped) = (tasks.with_label_values::<&str>(&[]), dropped.with_label_values::<&str>(&[]));
    metrics.before_encode(move || {
        tasks.set(i64::try_from(spawner.task_count()).unwrap_or(i64::MAX));
        dropped.inc_by(log.newly_dropped());
    });
}

/// Handles SIGTERM and SIGINT. The first signal cancels `stop`. The returned future completes at the second signal.
fn handle_signals(stop: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        for message in ["Received a stop signal", "Received a second stop signal"] {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("{message}");
            stop.cancel();
        }
    })
}

/// Writes the requested text to standard output. Returns false, and reports on standard error, when the write failed.
fn print(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if let Err(err) = &written {
        print_error(&format!("cannot write to standard output: {err}"));
    }
    written.is_ok()
}

/// Writes to standard error, because the log does not exist yet.
fn print_error(text: &str) {
    // A failed write to standard error cannot be reported.
    let _ = writeln!(std::io::stderr().lock(), "Error: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_every_runtime_are_in_the_metric() {
        let (metrics, scope) = (Metrics::new(), Scope::new());
        register_process_metrics(&metrics, klog::Handle::detached(), scope.spawner());
        let runtimes = [(), ()].map(|()| tokio::runtime::Builder::new_current_thread().build().unwrap());
        for runtime in &runtimes {
            runtime.block_on(async {
                scope.spawner().spawn("sleeper", std::future::pending());
            });
        }
        let text = metrics.encode();
        assert!(text.lines().any(|it| it == "go_goroutines 2"), "{text}");
    }
}
