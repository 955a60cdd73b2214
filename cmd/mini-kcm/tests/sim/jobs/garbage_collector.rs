//! A garbage collector for Jobs: pods are deleted with their Job, or orphaned.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{SharedModel, users};

const MS: Duration = Duration::from_millis(1);

pub(super) async fn run(world: World, shared: SharedModel, mut rng: Rng) {
    loop {
        world.sleep(MS * rng.u32(300..2_500)).await;
        // The model is read before the writes, because each write locks the model.
        let ending: Vec<(String, String, String, bool)> = {
            let model = shared.lock();
            let over = model.jobs.values().filter(|it| it.deleted_since.is_some());
            let left = over.filter(|it| !it.gone || model.pods_of(&it.uid).any(|it| !it.gone));
            left.map(|it| (it.uid.clone(), it.namespace.clone(), it.name.clone(), it.gone)).collect()
        };
        for (uid, namespace, name, gone) in ending {
            let finalizers = match world.cluster().get("jobs.batch", &namespace, &name) {
                Some(job) if !gone => job["metadata"]["finalizers"].clone(),
                _ => Value::Null,
            };
            let has = |finalizer: &str| finalizers.as_array().is_some_and(|it| it.iter().any(|it| it == finalizer));
            let pods: Vec<String> =
                shared.lock().pods_of(&uid).filter(|it| !it.gone).map(|it| it.name.clone()).collect();
            if has("orphan") {
                pods.iter().for_each(|it| users::remove_owner(&world, &namespace, it));
            } else if gone || has("foregroundDeletion") {
                pods.iter().for_each(|it| users::delete_pod(&world, &namespace, it));
                if !pods.is_empty() {
                    continue;
                }
            }
            if !gone {
                world.cluster().update("jobs.batch", &namespace, &name, |it| it["metadata"]["finalizers"] = json!([]));
            }
        }
    }
}
