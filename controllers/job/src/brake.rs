//! Stops a Job that creates pods and never sees them end. Pure.
//!
//! A pod that somebody takes away, by its labels or its owner, is missed and replaced: without end if whoever took it
//! does so without end. So the pods of a Job that were created and have not ended are counted, whoever owns them now.

use std::collections::{HashMap, HashSet};

use api::Uid;

/// How many pods a Job may have created that have not ended, for each that it wants at once.
const FACTOR: usize = 2;

/// The pods that this process created and did not see end, by the uid of their Job. The same constant work for each event.
#[derive(Debug, Default)]
pub(crate) struct Brake {
    jobs: HashMap<Uid, HashSet<Uid>>,
    /// The Job of each such pod, as its labels and owners may name another by now.
    pods: HashMap<Uid, Uid>,
}

impl Brake {
    /// A pod was created for `job`.
    pub(crate) fn created(&mut self, job: &Uid, pod: Uid) {
        self.pods.insert(pod.clone(), job.clone());
        self.jobs.entry(job.clone()).or_default().insert(pod);
    }

    /// `pod` ended, failed, or is being deleted or gone. Whose it was is told where it was one of these.
    pub(crate) fn ended(&mut self, pod: &Uid) -> Option<Uid> {
        let job = self.pods.remove(pod)?;
        if let Some(pods) = self.jobs.get_mut(&job) {
            pods.remove(pod);
            if pods.is_empty() {
                self.jobs.remove(&job);
            }
        }
        Some(job)
    }

    /// `job` is gone or has ended.
    pub(crate) fn forget(&mut self, job: &Uid) {
        for pod in self.jobs.remove(job).into_iter().flatten() {
            self.pods.remove(&pod);
        }
    }

    /// How many more pods may be created for `job`.
    pub(crate) fn room(&self, job: &Uid, parallelism: i32) -> usize {
        room(self.jobs.get(job).map_or(0, HashSet::len), parallelism)
    }
}

/// How many more pods may be created when `open` have not ended.
fn room(open: usize, parallelism: i32) -> usize {
    let most = FACTOR.saturating_mul(usize::try_from(parallelism).unwrap_or_default());
    most.saturating_sub(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(name: &str) -> Uid {
        Uid::new(name)
    }

    #[test]
    fn pods_that_never_end_stop_their_job_at_twice_its_parallelism() {
        let mut brake = Brake::default();
        let (job, other) = (uid("job"), uid("other"));
        for pod in ["a", "b", "c", "d"] {
            brake.created(&job, uid(pod));
        }
        assert_eq!((brake.room(&job, 2), brake.room(&job, 3), brake.room(&other, 2)), (0, 2, 4));
        // Counted once, however often it is told.
        brake.created(&job, uid("d"));
        assert_eq!(brake.room(&job, 3), 2);
        // Less is wanted than there is.
        assert_eq!(brake.room(&job, 1), 0);
    }

    #[test]
    fn a_pod_that_ended_gives_its_place_back_once() {
        let mut brake = Brake::default();
        let job = uid("job");
        brake.created(&job, uid("a"));
        brake.created(&job, uid("b"));
        assert_eq!(brake.ended(&uid("a")), Some(job.clone()));
        assert_eq!((brake.ended(&uid("a")), brake.ended(&uid("stranger"))), (None, None));
        assert_eq!(brake.room(&job, 1), 1);
    }

    #[test]
    fn what_is_gone_leaves_nothing_behind() {
        let mut brake = Brake::default();
        let job = uid("job");
        for pod in ["a", "b"] {
            brake.created(&job, uid(pod));
        }
        brake.forget(&job);
        assert!(brake.jobs.is_empty() && brake.pods.is_empty());
        brake.created(&job, uid("c"));
        brake.ended(&uid("c"));
        assert!(brake.jobs.is_empty() && brake.pods.is_empty());
    }
}
