//! The whole path from `tracing` to the bytes: levels, `--vmodule`, spans, and changes at run time.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{io, sync::Arc};

use clock::Clock;
use klog::{FLAG, Format, Handle, Options, Vmodule};
use parking_lot::Mutex;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().clone()).unwrap().lines().map(str::to_owned).collect()
    }

    /// The text after the header.
    fn messages(&self) -> Vec<String> {
        self.lines().iter().map(|it| it.split_once("] ").map_or(it.clone(), |it| it.1.to_owned())).collect()
    }
}

/// Returns what `action` writes to stdout and to stderr.
fn log(options: Options, action: impl FnOnce(&Handle)) -> (Written, Written) {
    let (info, error) = (Written::default(), Written::default());
    let (subscriber, handle) = klog::subscriber(options, Clock::system(), info.clone(), error.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        action(&handle);
        handle.end(|| {});
    });
    (info, error)
}

fn log_all() {
    tracing::error!("error");
    tracing::warn!("warn");
    tracing::info!("info");
    tracing::debug!(target: "v2", "two");
    tracing::debug!(target: "v3", "three");
    tracing::debug!("debug");
    tracing::trace!("trace");
    tracing::debug!(target: FLAG, "FLAG: --v=\"4\"");
    tracing::debug!(target: "v10", "ten");
}

#[test]
fn each_verbosity_logs_the_levels_of_the_table() {
    let always = ["\"error\"", "\"warn\"", "\"info\""];
    for (verbosity, more) in [
        (0, vec![]),
        (1, vec!["FLAG: --v=\"4\""]),
        (2, vec!["\"two\"", "FLAG: --v=\"4\""]),
        (3, vec!["\"two\"", "\"three\"", "FLAG: --v=\"4\""]),
        (4, vec!["\"two\"", "\"three\"", "\"debug\"", "FLAG: --v=\"4\""]),
        (5, vec!["\"two\"", "\"three\"", "\"debug\"", "FLAG: --v=\"4\""]),
        (6, vec!["\"two\"", "\"three\"", "\"debug\"", "\"trace\"", "FLAG: --v=\"4\""]),
        (9, vec!["\"two\"", "\"three\"", "\"debug\"", "\"trace\"", "FLAG: --v=\"4\""]),
        (10, vec!["\"two\"", "\"three\"", "\"debug\"", "\"trace\"", "FLAG: --v=\"4\"", "\"ten\""]),
    ] {
        let (info, error) = log(Options { verbosity, ..Options::default() }, |_| log_all());
        assert_eq!(error.messages(), [always.to_vec(), more].concat(), "-v={verbosity}");
        assert!(info.lines().is_empty(), "one stream unless split");
    }
}

#[test]
fn acceptance_shell_027_verbosity_changes_at_run_time_both_ways() {
    let (_, error) = log(Options::default(), |handle| {
        for verbosity in [0, 4, 0, 6] {
            handle.set_verbosity(verbosity);
            assert_eq!(handle.verbosity(), verbosity);
            tracing::debug!(verbosity, "debug");
            tracing::trace!(verbosity, "trace");
        }
    });
    assert_eq!(error.messages(), ["\"debug\" verbosity=4", "\"debug\" verbosity=6", "\"trace\" verbosity=6"]);
}

#[test]
fn vmodule_sets_the_verbosity_of_a_file_a_crate_or_a_module() {
    for (vmodule, want) in [
        ("lines=4", true),
        ("l?ne*=4", true),
        ("lines=3", false),
        ("lines::inner=4", true),
        ("lines::*=4", true),
        ("other=9", false),
        ("lines=1,lines::inner=9", false),
    ] {
        let options = Options { vmodule: Vmodule::parse(vmodule).unwrap(), ..Options::default() };
        let (_, error) = log(options, |_| inner::log_one());
        assert_eq!(error.messages().len(), usize::from(want), "--vmodule={vmodule}");
    }
}

mod inner {
    pub(crate) fn log_one() {
        tracing::debug!("inside");
    }
}

#[test]
fn lines_inside_spans_name_controller_and_key() {
    let (_, error) = log(Options::default(), |_| {
        let controller = tracing::info_span!("controller", controller = "job-controller");
        controller.in_scope(|| {
            let key = tracing::info_span!("sync", key = %"ns/a", uid = tracing::field::Empty);
            key.in_scope(|| {
                key.record("uid", 7);
                tracing::info!(controller = "job-controller", r#type = "x", took = ?std::time::Duration::from_millis(3), "done");
            });
            tracing::warn!(err = &io::Error::other("refused") as &dyn std::error::Error, "outside of the key");
        });
        tracing::info!("outside");
    });
    assert_eq!(
        error.messages(),
        [
            "\"done\" controller=\"job-controller\" key=\"ns/a\" uid=7 type=\"x\" took=\"3ms\"",
            "\"outside of the key\" err=\"refused\" controller=\"job-controller\"",
            "\"outside\"",
        ]
    );
}

#[test]
fn streams_are_split_like_upstream() {
    for (format, errors) in [(Format::Text, 2), (Format::Json, 1)] {
        let options = Options { format, split_stream: true, info_buffer: 64, ..Options::default() };
        let (info, error) = log(options, |_| log_all());
        assert_eq!((info.lines().len(), error.lines().len()), (3 - errors, errors), "{format:?}");
    }
}
