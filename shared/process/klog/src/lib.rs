//! Log lines as kube-controller-manager writes them.
//!
//! Code calls `tracing::info!(controller, %key, "What was decided")`. This crate decides which lines are written
//! ([`Verbosity`] and `--vmodule`), formats them ([`Format`]), and ensures that a reader that stops reading does not
//! block the process.
//!
//! # What a line's level means
//! | written as | `-v` | for |
//! | --- | --- | --- |
//! | `error!`, `warn!`, `info!` | 0 | what an operator must see |
//! | `debug!(target: "v2", ..)` | 2 | changes of the system's state: informers, connections, identities |
//! | `debug!(target: "v3", ..)` | 3 | what was done to objects, such as events |
//! | `debug!` | 4 | one line for each key that was worked on, and each retry |
//! | `trace!` | 6 | each request |
//! | target [`FLAG`] | 1 | the flags at start |
//!
//! Any `target: "vN"` means verbosity N. Levels above 6 add nothing. Crates that are not ours ([`OUR_CRATES`]) log only
//! warnings and errors, at every verbosity, because their lines might contain tokens or keys.
//!
//! # Fields
//! A line also has the fields of the spans around it (`controller` and `key` of a sync), each name once. The field
//! `err` comes first, as in klog. Strings are quoted as in Go; a value of several lines is indented by a tab.
//!
//! # A reader that does not read
//! klog's writes block, so a full pipe stops the renewal of the lease. Here a separate thread writes, and the lines
//! that wait for it are bounded, to 1 MiB for each stream. Beyond that, lines are dropped and counted, and a line with
//! their number is written as soon as the reader reads again. [`Handle::end`] waits for the last line.

mod filter;
mod format;
mod glob;
mod handle;
mod layer;
mod options;
mod stream;
mod values;

use std::io;

use clock::Clock;
use tracing::Subscriber;
use tracing_subscriber::{Registry, layer::SubscriberExt, reload};

use crate::{filter::Filter, format::Formatter, layer::Lines, stream::Stream};
pub use crate::{
    filter::{FLAG, OUR_CRATES},
    handle::Handle,
    options::{Format, Options, Vmodule, VmoduleError},
};

/// How much is logged: `-v`. klog has no upper bound; here levels above 6 add nothing.
pub type Verbosity = u32;

/// From now on this process logs to its standard streams, also panics.
///
/// # Errors
/// When the process has a log already, or the writer thread cannot be started.
pub fn install(options: Options, clock: Clock) -> io::Result<Handle> {
    let (subscriber, handle) = subscriber(options, clock, io::stdout(), io::stderr())?;
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
    // The default panic hook prints lines in another format.
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("not a text");
        let at = panic.location().map(ToString::to_string);
        tracing::error!(err = message, at, "Observed a panic");
    }));
    Ok(handle)
}

/// A log that writes to these two streams. `info` is used only when streams are split.
///
/// # Errors
/// When the writer thread cannot be started.
pub fn subscriber(
    options: Options,
    clock: Clock,
    info: impl io::Write + Send + 'static,
    error: impl io::Write + Send + 'static,
) -> io::Result<(impl Subscriber + Send + Sync, Handle)> {
    let Options { format, verbosity, vmodule, split_stream, info_buffer, flush_every } = options;
    let formatter = Formatter::new(format, clock);
    let errors = Stream::start("log", error, 0, flush_every, formatter.clone())?;
    let infos = match split_stream {
        true => Some(Stream::start("log-info", info, info_buffer, flush_every, formatter.clone())?),
        false => None,
    };
    let (filter, reload) = reload::Layer::new(Filter { verbosity, vmodule });
    let handle = Handle::new(verbosity, reload, infos.iter().chain([&errors]).cloned().collect());
    let lines = Lines { formatter, infos, errors };
    Ok((Registry::default().with(filter).with(lines), handle))
}
