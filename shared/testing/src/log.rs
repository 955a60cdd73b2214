use std::{cell::RefCell, io, sync::Once};

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One subscriber for all tests of a process, there before the first of them logs: a subscriber of one thread alone may
/// miss what another thread logged first, as places that log remember whether anybody listens.
static LISTENING: Once = Once::new();

/// What is logged in this thread from now on, which is one test on one thread. Every test that may log before such a one
/// calls [`listen`] too.
pub struct Log(());

/// Listens to everything that is logged at INFO or above.
pub fn listen() -> Log {
    LISTENING.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(|| Sink).without_time().with_ansi(false).finish();
        // Somebody else listens already: then nothing is captured, and the test that looks says so.
        let _ = tracing::subscriber::set_global_default(subscriber);
    });
    LOG.take();
    Log(())
}

impl Log {
    /// What has been logged so far, a line each, without times.
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
    fn a_thread_sees_its_own_lines_only() {
        let log = listen();
        let other = std::thread::spawn(|| {
            let log = listen();
            tracing::warn!("theirs");
            log.lines()
        });
        assert_eq!(other.join().unwrap().len(), 1);
        tracing::error!(number = 1, "ours");
        assert_eq!(log.lines(), ["ERROR testing::log::tests: ours number=1"]);
        assert!(listen().lines().is_empty(), "a new listener begins anew");
    }
}
