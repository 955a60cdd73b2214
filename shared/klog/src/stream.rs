use std::{io, sync::Arc, thread, time::Duration};

use parking_lot::{Condvar, Mutex};
use tracing::Level;

use crate::{
    format::{Formatter, Place},
    values::Value,
};

/// How many bytes wait for a reader at most, for each of the two streams: some 5,000 lines.
pub const PENDING_LIMIT: usize = 1 << 20;
/// A buffer that has grown is given back down to this.
const KEPT: usize = 1 << 16;
/// A stream that would block is tried again after this.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// After a write the next one is so far off: the lines of who says much are written together, and nobody wakes the writer
/// for each.
const REST: Duration = Duration::from_millis(5);

/// Whole lines on their way to somebody who may have stopped to read.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do for the writer.
    work: Condvar,
    /// Everything has been written.
    idle: Condvar,
    /// That many bytes may wait for `every`.
    hold: usize,
    every: Duration,
}

#[derive(Debug, Default)]
struct State {
    pending: String,
    /// Lines that found no place since the writer last told of some.
    untold: u64,
    /// All that were dropped so far.
    dropped: u64,
    writing: bool,
    /// The writer looks by itself a moment later.
    resting: bool,
    /// What waits is written now.
    flush: bool,
    /// The process ends: what is said now is accepted whatever waits.
    ending: bool,
}

impl Stream {
    /// Starts the thread that writes to `to`. Up to `hold` bytes wait, at most for `every`.
    pub(crate) fn start(
        name: &'static str,
        to: impl io::Write + Send + 'static,
        hold: usize,
        every: Duration,
        formatter: Formatter,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            hold: hold.min(PENDING_LIMIT / 2),
            every,
        });
        let stream = Self(shared.clone());
        // It allocates nothing on its stack.
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(KEPT * 2);
        thread.spawn(move || shared.write_for_ever(to, &formatter))?;
        Ok(stream)
    }

    /// Takes a line; never waits for the reader.
    pub(crate) fn push(&self, line: &str) {
        let mut state = self.0.state.lock();
        let fits = state.pending.len() + line.len() <= PENDING_LIMIT;
        // While some are untold nothing may overtake them: they are told where they are missing.
        if (fits && state.untold == 0) || state.ending {
            let first = state.pending.is_empty();
            state.pending.push_str(line);
            // Between the first and the one that is enough, the writer waits for time to pass.
            let enough = if state.resting { PENDING_LIMIT / 2 } else { self.0.hold };
            if (first && !state.resting) || state.pending.len() > enough {
                self.0.work.notify_one();
            }
        } else {
            state.untold += 1;
            state.dropped += 1;
        }
    }

    /// From now on every line is accepted.
    pub(crate) fn end(&self) {
        self.0.state.lock().ending = true;
    }

    /// Waits until everything is written, at most for `longest`.
    pub(crate) fn flush(&self, longest: Duration) {
        let mut state = self.0.state.lock();
        state.flush = true;
        self.0.work.notify_one();
        let _ = self.0.idle.wait_while_for(&mut state, |it| it.writing || !it.pending.is_empty(), longest);
    }

    /// How many lines were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.state.lock().dropped
    }
}

impl Shared {
    fn write_for_ever(&self, mut to: impl io::Write, formatter: &Formatter) {
        let mut batch = String::new();
        loop {
            self.take(&mut batch, formatter);
            write_all(&mut to, batch.as_bytes());
            batch.clear();
            batch.shrink_to(KEPT);
            let mut state = self.state.lock();
            state.writing = false;
            if state.pending.is_empty() {
                state.flush = false;
                self.idle.notify_all();
            }
            state.resting = true;
            let rests = |it: &mut State| it.pending.len() <= PENDING_LIMIT / 2 && !it.flush;
            let _ = self.work.wait_while_for(&mut state, rests, REST);
            state.resting = false;
        }
    }

    /// Waits until there is something to write and takes it all.
    fn take(&self, batch: &mut String, formatter: &Formatter) {
        let mut state = self.state.lock();
        self.work.wait_while(&mut state, |it| it.pending.is_empty() && !it.flush);
        if self.hold > 0 {
            let full = |it: &mut State| it.pending.len() <= self.hold && !it.flush;
            let _ = self.work.wait_while_for(&mut state, full, self.every);
        }
        std::mem::swap(batch, &mut state.pending);
        if state.untold > 0 {
            tell_of(std::mem::take(&mut state.untold), batch, formatter);
        }
        state.writing = true;
    }
}

/// The lines that are missing behind what stands in `batch`.
fn tell_of(dropped: u64, batch: &mut String, formatter: &Formatter) {
    let place = Place { severity: Level::WARN, verbosity: 0, file: file!(), line: line!(), bare: false };
    let lines = [("lines", Value::Plain(dropped.to_string()))];
    formatter.write(batch, place, &[], "Log lines were dropped, as nobody took them in time", &lines);
}

/// What cannot be written is lost: there is nobody to tell.
fn write_all(to: &mut impl io::Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            // Somebody shares the stream with us and made it so.
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => thread::park_timeout(TRY_AGAIN),
            Err(_) => return,
        }
    }
    let _ = to.flush();
}

#[cfg(test)]
mod tests;
