use std::time::Duration;

use anyhow::bail;
use clock::Clock;

/// The polling interval.
const POLL: Duration = Duration::from_millis(25);

/// Polls until there is a result, at most for `within`. Errors count as "not yet", and the last one is reported in the
/// end.
///
/// # Errors
/// If the time is over; the message names what was waited for.
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
