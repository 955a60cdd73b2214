//! What the process keeps about each Deployment, by uid, so that a new Deployment of the same name inherits nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{Deployment, ReplicaSet, Uid};
use clock::Instant;
use parking_lot::Mutex;
use serde_json::Value;
use workload::NoticeLog;

/// The least time between two checks whether the server still changes templates.
pub(crate) const TEMPLATE_CHECK: Duration = Duration::from_secs(60);

/// The memory of all Deployments. An entry is removed when its Deployment is deleted.
#[derive(Default)]
pub(crate) struct Memory {
    /// The problems that were reported.
    pub(crate) notices: NoticeLog<String>,
    deployments: Mutex<HashMap<Uid, DeploymentMemory>>,
}

#[derive(Default)]
struct DeploymentMemory {
    unknown: Option<UnknownWrite>,
    /// The generation of the Deployment for which the templates were compared.
    generation: i64,
    /// Whether a ReplicaSet of this generation has the template.
    has_template: HashMap<Uid, (i64, bool)>,
    /// When a status was last stored.
    status_at: Option<Instant>,
    /// When it was last checked whether the server changes templates.
    template_check_at: Option<Instant>,
    /// The number of collisions whose name is in use, by the last check.
    collision: Option<i32>,
}

/// A write whose outcome is unknown. A sync ends with it, so there is only one.
#[derive(Debug, Clone)]
pub(crate) struct UnknownWrite {
    /// The write.
    pub(crate) write: Write,
    /// When all its requests have certainly ended.
    pub(crate) ends_at: Instant,
    /// Until when it may be sent again.
    pub(crate) repeat_until: Instant,
    /// The generation of the Deployment for which it was decided.
    pub(crate) generation: i64,
}

/// A write of a ReplicaSet. It may be sent again as it was: the server makes it once, because a creation has a name and a
/// patch a resourceVersion.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    /// A creation.
    Create {
        /// The name.
        name: Box<str>,
        /// The size.
        replicas: i32,
        /// The whole ReplicaSet.
        body: Value,
    },
    /// A patch.
    Patch {
        /// The ReplicaSet in the cache.
        set: Arc<ReplicaSet>,
        /// The next size, if it changes.
        replicas: Option<i32>,
        /// The merge patch.
        body: Value,
    },
}

impl Memory {
    /// The write of a Deployment whose outcome is unknown.
    pub(crate) fn unknown_write(&self, deployment: &Uid) -> Option<UnknownWrite> {
        self.deployments.lock().get(deployment)?.unknown.clone()
    }

    /// Keeps a write whose outcome is unknown, or removes it.
    pub(crate) fn set_unknown_write(&self, deployment: &Uid, unknown: Option<UnknownWrite>) {
        self.deployments.lock().entry(deployment.clone()).or_default().unknown = unknown;
    }

    /// Whether a ReplicaSet has the template of the Deployment. `compare` is called only if one of both has changed.
    pub(crate) fn has_template<E>(
        &self,
        deployment: &Deployment,
        set: &ReplicaSet,
        compare: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let known = {
            let all = self.deployments.lock();
            let memory = all.get(&deployment.meta.uid).filter(|it| it.generation == deployment.generation);
            memory.and_then(|it| it.has_template.get(&set.meta.uid).copied())
        };
        if let Some((generation, is_equal)) = known
            && generation == set.generation
        {
            return Ok(is_equal);
        }
        let is_equal = compare()?;
        let mut all = self.deployments.lock();
        let memory = all.entry(deployment.meta.uid.clone()).or_default();
        if memory.generation != deployment.generation {
            // This also removes the ReplicaSets that are gone.
            memory.has_template.clear();
            memory.generation = deployment.generation;
        }
        memory.has_template.insert(set.meta.uid.clone(), (set.generation, is_equal));
        Ok(is_equal)
    }

    /// A status was stored.
    pub(crate) fn record_status_at(&self, deployment: &Uid, now: Instant) {
        self.deployments.lock().entry(deployment.clone()).or_default().status_at = Some(now);
    }

    /// The time since our last write of the status.
    pub(crate) fn since_status(&self, deployment: &Uid, now: Instant) -> Option<Duration> {
        let at = self.deployments.lock().get(deployment)?.status_at?;
        Some(now.saturating_duration_since(at))
    }

    /// A check has shown that the name with this number of collisions is in use.
    pub(crate) fn record_collision(&self, deployment: &Uid, count: Option<i32>) {
        self.deployments.lock().entry(deployment.clone()).or_default().collision = Some(count.unwrap_or_default());
    }

    /// Whether a check has shown that. The status with the next number may not have been stored.
    pub(crate) fn is_collision(&self, deployment: &Uid, count: Option<i32>) -> bool {
        let all = self.deployments.lock();
        all.get(deployment).is_some_and(|it| it.collision == Some(count.unwrap_or_default()))
    }

    /// Whether to check now if the server changes templates. If so, the next check is [`TEMPLATE_CHECK`] later.
    pub(crate) fn begin_template_check(&self, deployment: &Uid, now: Instant) -> bool {
        let mut all = self.deployments.lock();
        let last = &mut all.entry(deployment.clone()).or_default().template_check_at;
        let is_due = last.is_none_or(|it| now.saturating_duration_since(it) >= TEMPLATE_CHECK);
        if is_due {
            *last = Some(now);
        }
        is_due
    }

    /// Removes a deleted Deployment.
    pub(crate) fn remove(&self, deployment: &Uid) {
        self.notices.remove(deployment);
        self.deployments.lock().remove(deployment);
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;
    use serde_json::json;

    use super::*;
    use crate::testing::{World, deployment, deployment_with};

    #[test]
    fn templates_are_compared_again_only_after_a_change() {
        let memory = Memory::default();
        let (first, later) = (deployment(json!({})), deployment_with(json!({}), json!({ "generation": 2 }), json!({})));
        let world = World::new(deployment(json!({})), &["a new 3", "b new 3 generation:9"]);
        let snapshot = world.snapshot();
        let mut compared = 0;
        let mut check = |deployment: &Deployment, at: usize| {
            let answer = memory.has_template(deployment, &snapshot.sets[at], || {
                compared += 1;
                Ok::<bool, ()>(at == 0)
            });
            answer.unwrap()
        };
        assert!(check(&first, 0) && check(&first, 0) && !check(&first, 1) && !check(&first, 1));
        assert!(check(&later, 0) && !check(&later, 1) && check(&later, 0));
        assert_eq!(compared, 4);
    }

    #[test]
    fn the_server_is_checked_from_time_to_time() {
        let (memory, uid, start) = (Memory::default(), Uid::new("u"), Clock::system().now());
        let is_due = |seconds: u64| memory.begin_template_check(&uid, start + Duration::from_secs(seconds));
        assert_eq!([0, 59, 60, 119, 120].map(is_due), [true, false, true, false, true]);
        memory.remove(&uid);
        assert!(is_due(121));
        assert_eq!(memory.since_status(&uid, start), None);
        memory.record_status_at(&uid, start);
        assert_eq!(memory.since_status(&uid, start + Duration::from_secs(1)), Some(Duration::from_secs(1)));
    }
}
