//! A garbage collector for one kind of owner: its dependents go with it, or are orphaned.

use std::{collections::BTreeSet, time::Duration};

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use crate::deletion;

const MS: Duration = Duration::from_millis(1);

/// What a garbage collector works on.
pub(crate) struct GarbageCollector {
    pub(crate) namespace: &'static str,
    /// The resource of the owners that users delete with a propagation policy.
    pub(crate) owners: &'static str,
    /// Every kind that may be an owner, with its resource.
    pub(crate) owner_kinds: &'static [(&'static str, &'static str)],
    pub(crate) dependents: &'static [&'static str],
}

impl GarbageCollector {
    /// Works until the run ends. `after_deletions` is called after each deletion of objects without an owner.
    pub(crate) async fn run(self, world: World, mut rng: Rng, after_deletions: fn(&World)) {
        loop {
            world.sleep(MS * rng.u32(500..5_000)).await;
            for resource in self.dependents {
                let live = self.live_owners(&world);
                for object in world.cluster().list_metadata(resource, self.namespace) {
                    let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                    if !owners.is_empty() && !owners.iter().any(|it| self.may_exist(it, &live)) {
                        let name = object["metadata"]["name"].as_str().unwrap_or_default();
                        deletion::delete(&world, resource, self.namespace, name);
                    }
                }
            }
            after_deletions(&world);
            for owner in world.cluster().list_metadata(self.owners, self.namespace) {
                if owner["metadata"]["deletionTimestamp"].is_string() {
                    self.end_owner(&world, &owner, &mut rng).await;
                }
            }
        }
    }

    /// The uids of all objects that may be owners.
    fn live_owners(&self, world: &World) -> BTreeSet<String> {
        let objects = self.owner_kinds.iter().flat_map(|it| world.cluster().list_metadata(it.1, self.namespace));
        objects.map(|it| it["metadata"]["uid"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn may_exist(&self, owner: &Value, live: &BTreeSet<String>) -> bool {
        let is_of_kind = self.owner_kinds.iter().any(|it| owner["kind"] == it.0);
        !is_of_kind || owner["uid"].as_str().is_some_and(|it| live.contains(it))
    }

    /// Orphans or deletes the dependents of an owner, then removes it. Orphaning takes time, and has no order.
    async fn end_owner(&self, world: &World, owner: &Value, rng: &mut Rng) {
        let (name, uid) = (owner["metadata"]["name"].as_str().unwrap_or_default(), &owner["metadata"]["uid"]);
        let finalizers = owner["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let is_orphaning = finalizers.iter().any(|it| it == "orphan");
        let mut waits = false;
        let mut resources = self.dependents.to_vec();
        rng.shuffle(&mut resources);
        for resource in resources {
            for object in world.cluster().list_metadata(resource, self.namespace) {
                let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                if !owners.iter().any(|it| it["uid"] == *uid) {
                    continue;
                }
                let object = object["metadata"]["name"].as_str().unwrap_or_default();
                if is_orphaning {
                    if rng.u8(0..4) == 0 {
                        world.sleep(MS * rng.u32(0..3_000)).await;
                    }
                    self.remove_owner(world, resource, object, uid);
                } else {
                    deletion::delete(world, resource, self.namespace, object);
                    waits = true;
                }
            }
        }
        if !waits {
            world.cluster().update(self.owners, self.namespace, name, |it| it["metadata"]["finalizers"] = json!([]));
        }
    }

    fn remove_owner(&self, world: &World, resource: &str, name: &str, owner: &Value) {
        if world.cluster().get(resource, self.namespace, name).is_some() {
            world.cluster().update(resource, self.namespace, name, |it| {
                if let Some(owners) = it["metadata"]["ownerReferences"].as_array_mut() {
                    owners.retain(|it| it["uid"] != *owner);
                }
            });
        }
    }
}
