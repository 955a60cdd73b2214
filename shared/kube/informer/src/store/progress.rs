use std::collections::BTreeMap;

use api::Version;
use parking_lot::Mutex;

use crate::Wake;

/// The version of a store, and the callbacks that wait for a later version.
///
/// A store has *passed* a version when an event, a bookmark or a list at or above it was applied and the handlers were
/// called. Before the first set it has passed nothing. A version that is not a number cannot be compared and always
/// counts as passed.
#[derive(Default)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None` before the first set.
    version: Option<Version>,
    waiting: BTreeMap<u64, Vec<Wake>>,
}

impl Progress {
    pub(crate) fn version(&self) -> Option<Version> {
        self.0.lock().version.clone()
    }

    pub(crate) fn has_passed(&self, version: &Version) -> bool {
        self.0.lock().has_passed(version)
    }

    /// Returns true when `version` has been passed already; then `wake` is dropped. Otherwise `wake` is called once it
    /// has been passed. Check and registration are one step, so no version is missed.
    pub(crate) fn call_when_passed(&self, version: &Version, wake: Wake) -> bool {
        let mut state = self.0.lock();
        let Some(awaited) = version.number().filter(|_| !state.has_passed(version)) else { return true };
        state.waiting.entry(awaited).or_default().push(wake);
        false
    }

    /// Sets the version of the store and calls the callbacks of all versions that are now passed. When the version is
    /// older than before, as after a restore of etcd, it calls all callbacks: their versions may never come.
    pub(crate) fn advance(&self, version: Version) {
        let awake = {
            let mut state = self.0.lock();
            let went_back = state.version.as_ref().is_some_and(|it| version.is_older_than(it));
            let later = match version.number() {
                Some(number) if !went_back => state.waiting.split_off(&(number.saturating_add(1))),
                Some(_) | None => BTreeMap::new(),
            };
            state.version = Some(version);
            std::mem::replace(&mut state.waiting, later)
        };
        for wake in awake.into_values().flatten() {
            wake();
        }
    }
}

impl State {
    fn has_passed(&self, version: &Version) -> bool {
        version.number().is_none() || self.version.as_ref().is_some_and(|mine| !mine.is_older_than(version))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;

    #[test]
    fn a_callback_runs_once_and_not_too_early() {
        let progress = Progress::default();
        let woken = Arc::new(AtomicU32::new(0));
        let wake = || -> Wake {
            let woken = woken.clone();
            Box::new(move || {
                woken.fetch_add(1, Ordering::SeqCst);
            })
        };
        assert!(!progress.has_passed(&Version::from(1)), "no version has passed before the first set");
        for incomparable in ["", "0", "no-number"] {
            let version = Version::new(incomparable);
            assert!(progress.has_passed(&version) && progress.call_when_passed(&version, wake()), "{incomparable:?}");
        }
        assert!(!progress.call_when_passed(&Version::from(10), wake()));
        progress.advance(Version::from(9));
        assert_eq!(woken.load(Ordering::SeqCst), 0);
        assert!(progress.has_passed(&Version::from(9)) && !progress.has_passed(&Version::from(10)));
        progress.advance(Version::from(10));
        progress.advance(Version::from(11));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(progress.call_when_passed(&Version::from(11), wake()), "already passed: the callback is dropped");
        assert!(
            progress.call_when_passed(&Version::new("no-number"), wake()),
            "versions that cannot be compared are not waited for"
        );
        progress.advance(Version::from(12));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_store_that_goes_back_calls_all_callbacks() {
        let progress = Progress::default();
        progress.advance(Version::from(10));
        let woken = Arc::new(AtomicU32::new(0));
        let count = woken.clone();
        let wake = Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert!(!progress.call_when_passed(&Version::from(12), wake));
        progress.advance(Version::from(10));
        assert_eq!(woken.load(Ordering::SeqCst), 0);
        progress.advance(Version::from(4));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(!progress.has_passed(&Version::from(12)), "the version is not passed");
    }

    #[test]
    fn a_version_reached_meanwhile_is_reported_or_calls_back() {
        const ROUNDS: u32 = 50_000;
        let (progress, current_round, done) = (Progress::default(), AtomicU32::new(0), AtomicU32::new(0));
        let woken = Arc::new(AtomicU32::new(0));
        let mut passed = 0;
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for round in 1..=ROUNDS {
                    wait_for(&current_round, round);
                    progress.advance(Version::from(u64::from(round)));
                    done.store(round, Ordering::SeqCst);
                }
            });
            for round in 1..=ROUNDS {
                let count = woken.clone();
                let wake = Box::new(move || {
                    count.fetch_add(1, Ordering::SeqCst);
                });
                // Both threads start the round at once. No later version follows that would hide a missed callback.
                current_round.store(round, Ordering::SeqCst);
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                passed += u32::from(progress.call_when_passed(&Version::from(u64::from(round)), wake));
                wait_for(&done, round);
                if passed + woken.load(Ordering::SeqCst) != round {
                    // The other thread runs its remaining rounds without waiting.
                    current_round.store(ROUNDS, Ordering::SeqCst);
                    panic!("round {round}: not passed, and no callback");
                }
            }
        });
    }

    fn wait_for(value: &AtomicU32, at_least: u32) {
        while value.load(Ordering::SeqCst) < at_least {
            std::thread::yield_now();
        }
    }
}
