use std::collections::{HashMap, HashSet};

use api::Uid;

/// Pods whose finalizer this process removed or is removing. The cache may still show the finalizer, but these pods
/// must not be counted again. The Job is stored too, because the pod may have another owner or none when the cache
/// shows the removal.
#[derive(Default)]
pub(crate) struct FinalizerRemovals {
    /// By Job, so that the cost of a sync does not depend on other Jobs. No set is empty.
    pods: HashMap<Uid, HashSet<Uid>>,
    /// By pod.
    jobs: HashMap<Uid, Uid>,
}

impl FinalizerRemovals {
    /// The pods of this Job.
    pub(crate) fn of(&self, job: &Uid) -> HashSet<Uid> {
        self.pods.get(job).cloned().unwrap_or_default()
    }

    pub(crate) fn contains(&self, pod: &Uid) -> bool {
        self.jobs.contains_key(pod)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.jobs.is_empty()
    }

    /// Adds a pod. If it was added for another Job before, only the new Job counts.
    pub(crate) fn add(&mut self, job: &Uid, pod: &Uid) {
        self.remove(pod);
        self.jobs.insert(pod.clone(), job.clone());
        self.pods.entry(job.clone()).or_default().insert(pod.clone());
    }

    pub(crate) fn remove(&mut self, pod: &Uid) {
        let Some(job) = self.jobs.remove(pod) else { return };
        if let Some(pods) = self.pods.get_mut(&job) {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(&job);
            }
        }
    }

    /// Removes the pods of this Job.
    pub(crate) fn remove_all_of(&mut self, job: &Uid) {
        for pod in self.pods.remove(job).into_iter().flatten() {
            self.jobs.remove(&pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_its_own_pods_until_they_or_it_are_removed() {
        let [a, b] = ["job-a", "job-b"].map(Uid::new);
        let [one, two, three] = ["one", "two", "three"].map(Uid::new);
        let mut removals = FinalizerRemovals::default();
        for (job, pod) in [(&a, &one), (&a, &two), (&b, &three), (&b, &three)] {
            removals.add(job, pod);
        }
        assert_eq!((removals.of(&a), removals.of(&b)), ([one.clone(), two.clone()].into(), [three.clone()].into()));
        removals.add(&b, &two);
        assert_eq!((removals.of(&a), removals.of(&b)), ([one.clone()].into(), [two.clone(), three.clone()].into()));
        removals.remove(&three);
        removals.remove(&three);
        assert!(!removals.contains(&three) && removals.contains(&two));
        removals.remove_all_of(&b);
        assert!(!removals.contains(&two) && removals.contains(&one) && removals.of(&b).is_empty());
        removals.remove(&one);
        assert!(removals.is_empty());
    }
}
