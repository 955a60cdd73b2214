//! Faults on the server's side: discovery, groups, types whose list fails, servers of another version.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;
use test_cluster::{Call, DiscoveryFault, Interception};
use testing::sim::World;

use super::{
    SharedModel,
    checks::AGENT,
    kinds::{CUSTOM_GROUPS, TYPES},
};

const MS: Duration = Duration::from_millis(1);

/// The present faults.
#[derive(Default)]
struct PresentFaults {
    /// Discovery returns errors.
    discovery: bool,
    /// Lists of this resource fail, as with an unavailable conversion webhook.
    lists: Option<&'static str>,
    /// Requests for this resource reach a server that does not have it.
    unknown: Option<&'static str>,
}

/// Injects the faults, and checks that each DELETE of the collector has preconditions with uid and resourceVersion.
pub(super) struct ServerFaults(Arc<Mutex<PresentFaults>>);

impl ServerFaults {
    /// Intercepts every request from now on.
    pub(super) fn intercept(world: &World) -> Self {
        let faults: Arc<Mutex<PresentFaults>> = Arc::default();
        let (reporter, state) = (world.clone(), faults.clone());
        world.cluster().intercept(move |call| {
            if call.verb == "delete" && call.user_agent.ends_with(AGENT) {
                let options = call.json();
                let preconditions = &options["preconditions"];
                if !preconditions["uid"].is_string() || !preconditions["resourceVersion"].is_string() {
                    reporter.fail(format!("DELETE {} has no preconditions with uid and resourceVersion", call.path));
                }
            }
            state.lock().interception(call)
        });
        Self(faults)
    }

    /// Injects faults for limited times, until the world is calm.
    pub(super) async fn run(self, world: World, shared: SharedModel, mut rng: Rng) {
        while !world.is_calm() {
            world.sleep(MS * rng.u32(500..25_000)).await;
            if world.is_calm() {
                break;
            }
            self.inject(&world, &shared, &mut rng);
            world.sleep(MS * rng.u32(200..70_000)).await;
            self.end_all(&world, &shared);
        }
    }

    fn inject(&self, world: &World, shared: &SharedModel, rng: &mut Rng) {
        let (cluster, now) = (world.cluster(), world.clock().now());
        let group = CUSTOM_GROUPS[rng.usize(..CUSTOM_GROUPS.len())];
        let resource = TYPES[rng.usize(..TYPES.len())].resource;
        match rng.u8(0..8) {
            0 => {
                shared.lock().shown.hide(None, now);
                self.0.lock().discovery = true;
            }
            1 => {
                shared.lock().shown.hide(None, now);
                cluster.fail_discovery(group, DiscoveryFault::Stale);
            }
            // A small group seems to be removed, so a process may drop its objects.
            2 => {
                shared.lock().shown.hide(Some(group), now);
                cluster.fail_discovery(group, DiscoveryFault::Missing);
            }
            // Most groups seem to be removed, which is not true.
            3 => {
                shared.lock().shown.hide(None, now);
                cluster.fail_discovery("", DiscoveryFault::Missing);
            }
            4 => {
                shared.lock().shown.hide(None, now);
                cluster.break_group(group);
            }
            5 | 6 => self.0.lock().lists = Some(resource),
            _ => self.0.lock().unknown = Some(resource),
        }
    }

    /// Ends all faults.
    pub(super) fn end_all(&self, world: &World, shared: &SharedModel) {
        *self.0.lock() = PresentFaults::default();
        for group in CUSTOM_GROUPS.iter().chain([&""]) {
            world.cluster().restore_group(group);
        }
        let mut model = shared.lock();
        let model = &mut *model;
        let group = |uid: &str| model.objects.get(uid).map(|it| it.group().to_owned());
        model.shown.unhide(group, world.clock().now());
    }

    /// A second handle to the same faults.
    pub(super) fn handle(&self) -> Self {
        Self(self.0.clone())
    }
}

impl PresentFaults {
    fn interception(&self, call: &Call) -> Interception {
        let resource =
            if call.group.is_empty() { call.resource.clone() } else { format!("{}.{}", call.resource, call.group) };
        let discovers = call.verb.is_empty() && (call.path.starts_with("/api") || call.path.starts_with("/apis"));
        if self.discovery && discovers {
            return Interception::text(503, "service unavailable");
        }
        if self.lists == Some(&*resource) && matches!(call.verb, "list" | "watch") {
            return Interception::status(500, "InternalError", "conversion webhook failed: connection refused");
        }
        if self.unknown == Some(&*resource) && call.user_agent.ends_with(AGENT) {
            return match call.group.is_empty() {
                true => Interception::status(404, "NotFound", "the server could not find the requested resource"),
                false => Interception::text(404, "404 page not found"),
            };
        }
        Interception::Pass
    }
}
