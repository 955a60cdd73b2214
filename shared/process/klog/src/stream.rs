use std::{io, sync::Arc, thread, time::Duration};

use parking_lot::{Condvar, Mutex};
use tracing::Level;

use crate::{
    format::{Formatter, LineOrigin},
    values::Value,
};

/// How many bytes may wait for each of the two streams: some 5,000 lines.
pub(crate) const PENDING_LIMIT: usize = 1 << 20;
/// After a large batch the buffer is shrunk to this size.
const BUFFER_SIZE: usize = 1 << 16;
/// A stream that would block is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// The pause after a write. The lines of this pause are written together, so that the writer is not woken for each
/// line.
const PAUSE: Duration = Duration::from_millis(5);

/// Whole lines that wait for a reader that may have stopped reading.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The writer has something to do.
    work: Condvar,
    /// Everything has been written.
    idle: Condvar,
    /// This many bytes may wait for at most `buffer_time`.
    buffer_limit: usize,
    buffer_time: Duration,
}

#[derive(Debug, Default)]
struct State {
    pending: String,
    /// Lines that were dropped since the writer last reported dropped lines.
    unreported: u64,
    /// All lines that were dropped so far.
    dropped: u64,
    writing: bool,
    /// The writer pauses. After the pause it checks for new lines without a wake-up.
    pausing: bool,
    /// The writer must write the waiting lines now.
    flush: bool,
    /// The process ends: lines are accepted even if the buffer is full.
    ending: bool,
}

impl Stream {
    /// Starts the thread that writes to `to`. Up to `buffer_limit` bytes may wait, for at most `buffer_time`.
    pub(crate) fn start(
        name: &'static str,
        to: impl io::Write + Send + 'static,
        buffer_limit: usize,
        buffer_time: Duration,
        formatter: Formatter,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            buffer_limit: buffer_limit.min(PENDING_LIMIT / 2),
            buffer_time,
        });
        let stream = Self(shared.clone());
        // A small stack is enough: its buffers are on the heap.
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(BUFFER_SIZE * 2);
        thread.spawn(move || shared.write_loop(to, &formatter))?;
        Ok(stream)
    }

    /// Adds a line. Never waits for the reader.
    pub(crate) fn push(&self, line: &str) {
        let mut state = self.0.state.lock();
        let fits = state.pending.len() + line.len() <= PENDING_LIMIT;
        // After a dropped line, later lines are dropped too until the loss is reported, so that the report is at the
        // place of the loss.
        if (fits && state.unreported == 0) || state.ending {
            let first = state.pending.is_empty();
            state.pending.push_str(line);
            // The first line starts the timer. Until enough bytes wait, no further line wakes the writer.
            let enough = if state.pausing { PENDING_LIMIT / 2 } else { self.0.buffer_limit };
            if (first && !state.pausing) || state.pending.len() > enough {
                self.0.work.notify_one();
            }
        } else {
            state.unreported += 1;
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
    fn write_loop(&self, mut to: impl io::Write, formatter: &Formatter) {
        let mut batch = String::new();
        loop {
            self.take(&mut batch, formatter);
            write_all(&mut to, batch.as_bytes());
            batch.clear();
            batch.shrink_to(BUFFER_SIZE);
            let mut state = self.state.lock();
            state.writing = false;
            if state.pending.is_empty() {
                state.flush = false;
                self.idle.notify_all();
            }
            state.pausing = true;
            let should_pause = |it: &mut State| it.pending.len() <= PENDING_LIMIT / 2 && !it.flush;
            let _ = self.work.wait_while_for(&mut state, should_pause, PAUSE);
            state.pausing = false;
        }
    }

    /// Waits until there is something to write, and takes all of it.
    fn take(&self, batch: &mut String, formatter: &Formatter) {
        let mut state = self.state.lock();
        self.work.wait_while(&mut state, |it| it.pending.is_empty() && !it.flush);
        if self.buffer_limit > 0 {
            let full = |it: &mut State| it.pending.len() <= self.buffer_limit && !it.flush;
            let _ = self.work.wait_while_for(&mut state, full, self.buffer_time);
        }
        std::mem::swap(batch, &mut state.pending);
        if state.unreported > 0 {
            append_dropped(std::mem::take(&mut state.unreported), batch, formatter);
        }
        state.writing = true;
    }
}

/// Appends to `batch` a line with the number of lines that were dropped after it.
fn append_dropped(dropped: u64, batch: &mut String, formatter: &Formatter) {
    let origin = LineOrigin { severity: Level::WARN, verbosity: 0, file: file!(), line: line!(), bare: false };
    let lines = [("lines", Value::Plain(dropped.to_string()))];
    formatter.write(batch, origin, &[], "Log lines were dropped, because the reader was too slow", &lines);
}

/// An error of the stream cannot be reported anywhere, so the bytes are lost.
fn write_all(to: &mut impl io::Write, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            // Another process shares the stream and has made it non-blocking.
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => thread::park_timeout(RETRY_INTERVAL),
            Err(_) => return,
        }
    }
    let _ = to.flush();
}

#[cfg(test)]
mod tests;
