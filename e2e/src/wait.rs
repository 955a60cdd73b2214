use std::time::Duration;

use anyhow::bail;
use clock::Clock;

/// How often another process is asked.
const POLL: Duration = Duration::from_millis(25);

/// Asks until there is an answer, at most for `within`; errors count as "not yet" and the last one is told in the end.
///
/// # Errors
/// If the time is over; the message says what was waited for.
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let clock = Clock::system();
    let deadline = clock.now() + within;
    let mut last = String::from("not yet");
    loop {
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(Some(found))) => return Ok(found),
            Ok(Ok(None)) => "not yet".clone_into(&mut last),
            Ok(Err(err)) => last = format!("{err:#}"),
            Err(_) => {}
        }
        if clock.now() >= deadline {
            bail!("waited {within:?} for {what}: {last}");
        }
        tokio::time::sleep(POLL).await;
    }
}
