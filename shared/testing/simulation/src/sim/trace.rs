use std::fmt::Write as _;

use clock::{Clock, Instant};
use parking_lot::Mutex;

/// The trace of a run with virtual time, one line per step. It costs nothing while it is off: a failed run is repeated
/// with the trace on.
pub(crate) struct Trace {
    lines: Option<Mutex<Vec<String>>>,
    clock: Clock,
    begin: Instant,
}

impl Trace {
    pub(crate) fn new(on: bool, clock: Clock) -> Self {
        let begin = clock.now();
        Self { lines: on.then(Mutex::default), clock, begin }
    }

    pub(crate) fn record(&self, what: impl FnOnce() -> String) {
        let Some(lines) = &self.lines else { return };
        let millis = self.clock.now().saturating_duration_since(self.begin).as_millis();
        let mut line = format!("{:>6}.{:03} ", millis / 1000, millis % 1000);
        // Writing into a string cannot fail.
        let _ = write!(line, "{}", what());
        lines.lock().push(line);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        self.lines.as_ref().map(|it| std::mem::take(&mut *it.lock())).unwrap_or_default()
    }
}
