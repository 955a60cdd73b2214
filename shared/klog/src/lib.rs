//! Log lines as kube-controller-manager writes them.
//!
//! Code says `tracing::info!(controller, %key, "What was decided")`; this crate decides which lines are written
//! ([`Verbosity`] and `--vmodule`), how they look ([`Format`]), and that a reader who stops reading stops nobody here.
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
//! Any `target: "vN"` stands for verbosity N. Everything from 7 on is what 6 is. Other people's crates are heard only when
//! they warn, however high the verbosity ([`OURS`]): we do not know what they would say of tokens and keys.
//!
//! # Fields
//! Those of the spans around a line come out with it (`controller` and `key` of whoever works), each name once. A field
//! `err` comes first, as in klog. Strings are quoted as Go quotes them, a value of several lines is indented by a tab.
//!
//! # A reader that is stuck
//! klog's writes block, so a full pipe stops the renewal of the lease. Here a thread of its own writes, and what waits for
//! it is bounded ([`PENDING_LIMIT`]): beyond that lines are dropped, counted, and the number is told in a line as soon as
//! the reader takes some. [`Handle::end`] waits for the last line.

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
    filter::{FLAG, OURS},
    handle::Handle,
    options::{Format, Options, Vmodule, VmoduleError},
    stream::PENDING_LIMIT,
};

/// How much is said: `-v`. klog knows no upper bound; beyond 6 nothing more is said here.
pub type Verbosity = u32;

/// Makes this process log to its standard streams, panics included, from now on.
///
/// # Errors
/// When the process has a log already, or no thread for it.
pub fn install(options: Options, clock: Clock) -> io::Result<Handle> {
    let (subscriber, handle) = subscriber(options, clock, io::stdout(), io::stderr())?;
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
    // The default hook prints lines of another shape.
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("not a text");
        let at = panic.location().map(ToString::to_string);
        tracing::error!(err = message, at, "Observed a panic");
    }));
    Ok(handle)
}

/// A log that writes to these two: `info` is used only where streams are split.
///
/// # Errors
/// When no thread can be started for it.
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
