use std::collections::BTreeMap;

use api::Version;
use parking_lot::Mutex;

use crate::Wake;

/// How far a store is, and who waits for it to be farther.
///
/// A store has *passed* a version when an event, a bookmark or a list at or above it was applied, and the handlers have
/// seen it. A version that is no number cannot be compared, and nobody waits for it.
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

    pub(crate) fn passed(&self, version: &Version) -> bool {
        self.0.lock().passed(version)
    }

    /// True: passed already, and `wake` is dropped. Else `wake` is called once it is. Nothing slips in between.
    pub(crate) fn when_passed(&self, version: &Version, wake: Wake) -> bool {
        let mut state = self.0.lock();
        let passed = state.passed(version);
        if !passed {
            // Zero, for a version that is no number: any progress will do.
            state.waiting.entry(version.number().unwrap_or(0)).or_default().push(wake);
        }
        passed
    }

    /// The store is at `version` now: wakes whom it passed.
    pub(crate) fn reached(&self, version: Version) {
        let awake = {
            let mut state = self.0.lock();
            let later = match version.number() {
                Some(number) => state.waiting.split_off(&(number.saturating_add(1))),
                None => BTreeMap::new(),
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
    fn passed(&self, version: &Version) -> bool {
        self.version.as_ref().is_some_and(|mine| !mine.is_older_than(version))
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
    fn whoever_waits_is_woken_once_and_not_too_early() {
        let progress = Progress::default();
        let woken = Arc::new(AtomicU32::new(0));
        let wake = || -> Wake {
            let woken = woken.clone();
            Box::new(move || {
                woken.fetch_add(1, Ordering::SeqCst);
            })
        };
        assert!(!progress.passed(&Version::from(1)), "nothing is passed before the first set");
        assert!(!progress.when_passed(&Version::from(10), wake()));
        progress.reached(Version::from(9));
        assert_eq!(woken.load(Ordering::SeqCst), 0);
        assert!(progress.passed(&Version::from(9)) && !progress.passed(&Version::from(10)));
        progress.reached(Version::from(10));
        progress.reached(Version::from(11));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert!(progress.when_passed(&Version::from(11), wake()), "already there: told, not kept");
        assert!(progress.when_passed(&Version::new("no-number"), wake()), "incomparable: nobody waits");
        progress.reached(Version::from(12));
        assert_eq!(woken.load(Ordering::SeqCst), 1);
    }
}
