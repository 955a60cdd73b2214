use std::sync::mpsc::{Receiver, Sender, channel};

use clock::Clock;

use super::*;
use crate::Format;

/// Long enough for any machine. A test waits for it only when it fails.
const LONG: Duration = Duration::from_secs(60);

/// A reader that accepts one write for each permit.
struct Reader {
    permits: Receiver<()>,
    taken: Sender<String>,
}

impl io::Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.permits.recv().is_err() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let _ = self.taken.send(String::from_utf8(bytes.to_vec()).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stream(buffer_limit: usize, buffer_time: Duration) -> (Stream, Sender<()>, Receiver<String>) {
    let ((permit, permits), (taken, reads)) = (channel(), channel());
    let formatter = Formatter::new(Format::Json, Clock::system());
    let stream = Stream::start("test", Reader { permits, taken }, buffer_limit, buffer_time, formatter).unwrap();
    (stream, permit, reads)
}

/// A reader that does not read blocks no caller, the memory stays bounded, the loss is reported at its place, and the
/// last line is written.
#[test]
fn a_blocked_reader_blocks_no_writer_and_gets_the_number_of_dropped_lines() {
    let (stream, permit, reads) = stream(0, LONG);
    let line = format!("{}\n", "x".repeat(1_023));
    let pushed = 5_000;
    for _ in 0..pushed {
        stream.push(&line);
    }
    assert!(stream.0.state.lock().pending.len() <= PENDING_LIMIT);
    let dropped = stream.dropped();
    assert!(dropped > 0, "five megabytes exceed the limit");
    stream.end();
    stream.push("the last line\n");
    for _ in 0..10 {
        permit.send(()).unwrap();
    }
    stream.flush(LONG);
    let all: String = reads.try_iter().collect();
    assert!(all.contains("the last line\n"), "{}", &all[all.len() - 300..]);
    assert_eq!(
        all.matches(&line).count() as u64 + dropped,
        pushed,
        "every line is either written or counted as dropped"
    );
    let reports = all.lines().filter(|it| it.contains("Log lines were dropped"));
    let reports: Vec<serde_json::Value> = reports.map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(reports.iter().map(|it| it["lines"].as_u64().unwrap()).sum::<u64>(), dropped);
    assert_eq!(stream.dropped(), dropped);
}

#[test]
fn a_closed_stream_blocks_no_writer() {
    let (stream, permit, _reads) = stream(0, LONG);
    drop(permit);
    stream.push("first\n");
    stream.flush(LONG);
    stream.push("second\n");
    stream.flush(LONG);
    assert_eq!(stream.dropped(), 0);
}

#[test]
fn buffered_lines_are_written_when_there_are_enough_or_at_a_flush() {
    let (stream, permit, reads) = stream(20, LONG);
    for _ in 0..2 {
        permit.send(()).unwrap();
    }
    stream.push("0123456789\n");
    assert!(reads.try_recv().is_err());
    stream.push("abcdefghijk\n");
    assert_eq!(reads.recv_timeout(LONG).unwrap(), "0123456789\nabcdefghijk\n");
    stream.push("short\n");
    stream.flush(LONG);
    assert_eq!(reads.try_recv().unwrap(), "short\n");
}

#[test]
fn buffered_lines_are_written_after_a_time() {
    let (stream, permit, reads) = stream(1_000, Duration::from_millis(1));
    permit.send(()).unwrap();
    stream.push("short\n");
    assert_eq!(reads.recv_timeout(LONG).unwrap(), "short\n");
}
