use std::{cell::RefCell, io, sync::Once};

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One global subscriber for all tests of a process, set before the first of them logs. A thread-local subscriber would
/// miss lines, because a callsite caches whether any subscriber is interested in it.
static SUBSCRIBED: Once = Once::new();

/// The lines that are logged in this thread from now on, that is, by one test. Every test that may log before such a
/// test must call [`listen`] too.
pub struct Log(());

/// Captures everything that is logged at INFO or above.
pub fn listen() -> Log {
    SUBSCRIBED.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(|| Sink).without_time().with_ansi(false).finish();
        // If another subscriber is set already, nothing is captured, and the test that reads the lines fails.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
    LOG.take();
    Log(())
}

impl Log {
    /// The lines logged so far, without times.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = LOG.with_borrow(|it| String::from_utf8_lossy(it).into_owned());
        text.lines().map(str::to_owned).collect()
    }
}

struct Sink;

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|it| it.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_has_only_lines_of_its_own_thread() {
        let log = listen();
        let other = std::thread::spawn(|| {
            let log = listen();
            tracing::warn!("theirs");
            log.lines()
        });
        assert_eq!(other.join().unwrap().len(), 1);
        tracing::error!(number = 1, "ours");
        assert_eq!(log.lines(), ["ERROR harness::log::tests: ours number=1"]);
        assert!(listen().lines().is_empty(), "a new log starts empty");
    }
}
