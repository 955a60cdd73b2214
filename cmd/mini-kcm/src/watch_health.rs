//! Detects that the watches of a leader are stalled.

use std::time::Duration;

use client::Term;
use informer::Informers;

/// The check interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A leader steps down when no watch was answered for this long.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// Returns the reason to step down. It returns when every typed informer that has synced, at least two, gets no answer
/// although the Lease can be renewed. A single broken type never ends the term.
pub(crate) async fn all_watches_stalled(informers: &Informers, term: &Term) -> String {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let synced = informers.all().into_iter().filter(|it| it.has_synced());
        let unanswered: Vec<Option<Duration>> = synced.map(|it| it.unanswered_for()).collect();
        if is_every_watch_stalled(&unanswered) && term.is_valid() {
            return format!(
                "no watch has been answered for {} s though the Lease can be renewed",
                STALLED_AFTER.as_secs()
            );
        }
    }
}

fn is_every_watch_stalled(unanswered: &[Option<Duration>]) -> bool {
    unanswered.len() >= 2 && unanswered.iter().all(|it| it.is_some_and(|since| since >= STALLED_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_steps_down_only_when_all_of_several_watches_are_stalled() {
        let long = Some(STALLED_AFTER);
        let short = Some(Duration::from_secs(59));
        for (name, unanswered, want) in [
            ("nothing is watched", vec![], false),
            ("one broken type does not end the term", vec![long], false),
            ("all of two", vec![long, long], true),
            ("one of them is stalled for less", vec![long, short], false),
            ("one of them has an answer", vec![long, None, long], false),
        ] {
            assert_eq!(is_every_watch_stalled(&unanswered), want, "{name}");
        }
    }
}
