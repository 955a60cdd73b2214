//! Detects that a leader no longer gets answers to its watches.

use std::time::Duration;

use client::Term;
use informer::Informers;

/// The check interval.
const EVERY: Duration = Duration::from_secs(5);
/// A leader steps down when no watch was answered for this long.
const DEAF: Duration = Duration::from_secs(60);

/// Returns the reason to step down. It returns when every typed informer that has synced, at least two, gets no answer
/// although the Lease can be renewed. A single broken type never ends the term.
pub(crate) async fn deaf(informers: &Informers, term: &Term) -> String {
    loop {
        tokio::time::sleep(EVERY).await;
        let synced = informers.all().into_iter().filter(|it| it.has_synced());
        let unanswered: Vec<Option<Duration>> = synced.map(|it| it.unanswered_for()).collect();
        if is_deaf(&unanswered) && term.is_valid() {
            return format!("no watch has been answered for {} s though the Lease can be renewed", DEAF.as_secs());
        }
    }
}

fn is_deaf(unanswered: &[Option<Duration>]) -> bool {
    unanswered.len() >= 2 && unanswered.iter().all(|it| it.is_some_and(|since| since >= DEAF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_on_all_of_several_watches_is_deafness() {
        let long = Some(DEAF);
        let short = Some(Duration::from_secs(59));
        for (name, unanswered, want) in [
            ("nothing is watched", vec![], false),
            ("one broken type never costs the term", vec![long], false),
            ("all of two", vec![long, long], true),
            ("one of them is due for less", vec![long, short], false),
            ("one of them owes nothing", vec![long, None, long], false),
        ] {
            assert_eq!(is_deaf(&unanswered), want, "{name}");
        }
    }
}
