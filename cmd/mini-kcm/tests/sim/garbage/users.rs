//! Users who create objects with owner references, and change and delete them.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::kinds::{self, DEFINITIONS, OLD_VERSION, TYPES, Type};

const MS: Duration = Duration::from_millis(1);
pub(super) const HOMES: [&str; 2] = ["n1", "n2"];
/// So few names that successors are created with the names of deleted objects.
const NAMES: u8 = 4;
const HOLD: &str = "x.io/hold";

/// The place of an object.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) of: Type,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Location {
    pub(super) fn new(of: Type, namespace: &str, name: &str) -> Self {
        let namespace = if of.namespaced { namespace } else { "" };
        Self { of, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(super) fn get(&self, world: &World) -> Option<Value> {
        let served = world.cluster().is_served(self.of.resource);
        served.then(|| world.cluster().get(self.of.resource, &self.namespace, &self.name)).flatten()
    }

    /// Changes the object as a PUT does, if it exists.
    pub(super) fn change(&self, world: &World, change: impl FnOnce(&mut Value)) {
        if self.get(world).is_some() {
            world.cluster().update(self.of.resource, &self.namespace, &self.name, change);
        }
    }

    /// Deletes it with a propagation policy; an empty one means the server's default.
    pub(super) fn delete(&self, world: &World, policy: &str) {
        match (world.cluster().is_served(self.of.resource), policy) {
            (false, _) => {}
            (true, "") => world.cluster().delete(self.of.resource, &self.namespace, &self.name),
            (true, policy) => world.cluster().delete_with_policy(self.of.resource, &self.namespace, &self.name, policy),
        }
    }

    /// Creates it with these owners, if it does not exist and its type can be used.
    pub(super) fn create(&self, world: &World, owners: Value) {
        if !kinds::is_open(world, &self.of) || self.get(world).is_some() {
            return;
        }
        let mut object = kinds::body(&self.of);
        object["apiVersion"] = self.of.api_version.into();
        object["kind"] = self.of.kind.into();
        object["metadata"] = json!({ "name": self.name, "ownerReferences": owners });
        if self.of.namespaced {
            object["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        world.cluster().create(object);
    }
}

/// An owner reference to `owner`.
pub(super) fn reference(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
    })
}

/// All existing objects.
pub(super) fn all(world: &World) -> Vec<(Location, Value)> {
    let served = TYPES.into_iter().filter(|it| world.cluster().is_served(it.resource));
    let listed = served.flat_map(|of| world.cluster().list(of.resource, "").into_iter().map(move |it| (of, it)));
    let named = listed.map(|(of, it)| {
        let text = |field: &str| it["metadata"][field].as_str().unwrap_or_default().to_owned();
        (Location { of, namespace: text("namespace"), name: text("name") }, it)
    });
    // Without objects that other controllers created.
    named.filter(|it| it.0.namespace.is_empty() || HOMES.contains(&&*it.0.namespace)).collect()
}

fn pick<T: Clone>(all: &[T], rng: &mut Rng) -> Option<T> {
    (!all.is_empty()).then(|| all[rng.usize(..all.len())].clone())
}

/// Creates one more object. Existing objects are its owners, mostly with correct references.
pub(super) fn create_random(world: &World, rng: &mut Rng) {
    let of = TYPES[rng.usize(..TYPES.len())];
    let at = Location::new(of, HOMES[usize::from(rng.u8(0..4) == 0)], &format!("o{}", rng.u8(..NAMES)));
    let there = all(world);
    let mut owners: Vec<Value> = Vec::new();
    for _ in 0..[0, 1, 1, 1, 2, 3][rng.usize(..6)] {
        let Some(owner) = owner(&at, &there, rng) else { continue };
        // An owner has one reference only.
        if !owners.iter().any(|it| it["uid"] == owner["uid"]) {
            owners.push(owner);
        }
    }
    at.create(world, owners.into());
}

/// Three objects that own each other in a cycle, with blocking references.
pub(super) fn create_cycle(world: &World, rng: &mut Rng) {
    let types = [kinds::MAP, kinds::WIDGET, kinds::CONTROLLER];
    let all = ["c0", "c1", "c2"].map(|name| Location::new(types[rng.usize(..types.len())], HOMES[0], name));
    all.iter().for_each(|it| it.create(world, json!([])));
    for (number, at) in all.iter().enumerate() {
        if let Some(owner) = all[(number + 1) % all.len()].get(world) {
            at.change(world, |it| it["metadata"]["ownerReferences"] = json!([reference(&owner, true)]));
        }
    }
}

/// A reference to an existing object, for an object at this place. It is mostly a valid owner with a correct reference.
fn owner(at: &Location, there: &[(Location, Value)], rng: &mut Rng) -> Option<Value> {
    let fits = |it: &&(Location, Value)| it.0.namespace.is_empty() || it.0.namespace == at.namespace;
    let odd = rng.u8(0..8) == 0;
    let found: Vec<&(Location, Value)> = there.iter().filter(|it| odd || fits(it)).collect();
    let mut it = reference(&pick(&found, rng)?.1, rng.bool());
    match rng.u8(0..24) {
        0 => it["name"] = "other".into(),
        1 => it["kind"] = if it["kind"] == "Secret" { "ConfigMap" } else { "Secret" }.into(),
        // No such type exists.
        2 => it["kind"] = "Unicorn".into(),
        // No object has or had this uid.
        3 | 4 => it["uid"] = format!("00000000-0000-4000-8000-{:012}", rng.u32(..)).into(),
        5 | 6 => {
            let group = kinds::group(it["apiVersion"].as_str().unwrap_or_default()).to_owned();
            if kinds::CUSTOM_GROUPS.contains(&&*group) {
                it["apiVersion"] = format!("{group}/{OLD_VERSION}").into();
            }
        }
        7 => it["apiVersion"] = "example.com/v9".into(),
        _ => {}
    }
    Some(it)
}

/// Changes objects from time to time, until the world is calm.
pub(super) async fn change_randomly(world: World, slow: u32, mut rng: Rng) {
    loop {
        world.sleep(MS * rng.u32(50..slow)).await;
        if world.is_calm() {
            return;
        }
        let there = all(&world);
        let Some((at, object)) = pick(&there, &mut rng) else {
            create_random(&world, &mut rng);
            continue;
        };
        match rng.u8(0..20) {
            0..=5 => delete(&world, &at, &mut rng).await,
            6..=8 => create_random(&world, &mut rng),
            9..=12 => edit(&world, &at, &object, &there, &mut rng),
            13 => at.change(&world, |it| set_finalizer(it, true)),
            14 => at.change(&world, |it| set_finalizer(it, false)),
            15 => at.change(&world, |it| it["metadata"]["annotations"]["sim/seen"] = rng.u32(..).to_string().into()),
            16 | 17 => change_definition(&world, &mut rng),
            18 => world.cluster().compact(),
            _ => world.cluster().send_bookmarks(),
        }
    }
}

/// Deletes an object with one of the policies. It may be deleted again with another policy, and created again.
async fn delete(world: &World, at: &Location, rng: &mut Rng) {
    const POLICIES: [&str; 6] = ["", "Background", "Background", "Foreground", "Foreground", "Orphan"];
    let policy = POLICIES[rng.usize(..6)];
    if policy == "Foreground" && rng.bool() {
        at.change(world, |it| set_finalizer(it, true));
    }
    at.delete(world, policy);
    if rng.u8(0..4) == 0 {
        world.sleep(MS * rng.u32(0..2_000)).await;
        if !world.is_calm() {
            at.delete(world, POLICIES[rng.usize(..6)]);
        }
    }
    if rng.u8(0..4) == 0 && !world.is_calm() {
        at.create(world, json!([]));
    }
}

/// Changes the owner references of an object.
fn edit(world: &World, at: &Location, object: &Value, there: &[(Location, Value)], rng: &mut Rng) {
    let owners = object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
    let new = owner(at, there, rng);
    if owners == 0 || rng.u8(0..3) == 0 {
        let known = |it: &Value| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|all| all.iter().any(|at| at["uid"] == it["uid"]))
        };
        if let Some(new) = new.filter(|it| !known(it)) {
            at.change(world, |it| match it["metadata"]["ownerReferences"].as_array_mut() {
                Some(owners) => owners.push(new),
                None => it["metadata"]["ownerReferences"] = json!([new]),
            });
        }
        return;
    }
    let which = rng.usize(..owners);
    let how = rng.u8(0..4);
    at.change(world, |it| {
        let Some(owners) = it["metadata"]["ownerReferences"].as_array_mut().filter(|it| which < it.len()) else {
            return;
        };
        let blocks = owners[which]["blockOwnerDeletion"] == true;
        match how {
            0 => drop(owners.remove(which)),
            1 => owners[which]["name"] = "other".into(),
            // Corrects a wrong reference.
            2 => {
                let right = there.iter().find(|it| it.1["metadata"]["uid"] == owners[which]["uid"]);
                if let Some((_, owner)) = right {
                    owners[which] = reference(owner, blocks);
                }
            }
            _ => owners[which]["blockOwnerDeletion"] = (!blocks).into(),
        }
    });
}

/// Adds a finalizer to an object that is not being deleted, or removes it.
fn set_finalizer(object: &mut Value, hold: bool) {
    let deletes = object["metadata"]["deletionTimestamp"].is_string();
    if hold && deletes {
        return;
    }
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|it| *it != HOLD);
    if hold {
        finalizers.push(HOLD.into());
    }
    object["metadata"]["finalizers"] = finalizers.into();
}

/// Adds or removes a custom type or one of its versions.
fn change_definition(world: &World, rng: &mut Rng) {
    let customs: Vec<&Type> = TYPES.iter().filter(|it| it.custom).collect();
    let of = customs[rng.usize(..customs.len())];
    match rng.u8(0..5) {
        0 => world.cluster().delete(DEFINITIONS, "", of.resource),
        1 => kinds::serve_old_version(world, of, false),
        2 => kinds::serve_old_version(world, of, true),
        _ => kinds::define(world, of),
    }
}

/// Removes all finalizers of the users.
pub(super) fn remove_finalizers(world: &World) {
    for (at, object) in all(world) {
        if object["metadata"]["finalizers"].as_array().is_some_and(|it| it.contains(&HOLD.into())) {
            at.change(world, |it| set_finalizer(it, false));
        }
    }
}
