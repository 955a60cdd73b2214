//! What goes wrong on the server's side: discovery, groups, types whose list fails, servers of another version.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;
use test_cluster::{Call, DiscoveryFault, Verdict};
use testing::sim::World;

use super::{
    Shared,
    kinds::{CUSTOM_GROUPS, TYPES},
    rules::AGENT,
};

const MS: Duration = Duration::from_millis(1);

/// What is wrong now.
#[derive(Default)]
struct Wrong {
    /// Discovery answers nothing at all.
    discovery: bool,
    /// Lists of this resource fail, as with a conversion webhook that does not answer.
    lists: Option<&'static str>,
    /// This resource is asked for at a server that does not know it.
    unknown: Option<&'static str>,
}

/// What the transport sees of the collector: each DELETE says whom it means, and as he was seen.
pub(super) struct Troubles(Arc<Mutex<Wrong>>);

impl Troubles {
    /// Looks at every request from now on.
    pub(super) fn begin(world: &World) -> Self {
        let wrong: Arc<Mutex<Wrong>> = Arc::default();
        let (told, state) = (world.clone(), wrong.clone());
        world.cluster().intercept(move |call| {
            if call.verb == "delete" && call.user_agent.ends_with(AGENT) {
                let asked = call.json();
                let meant = &asked["preconditions"];
                if !meant["uid"].is_string() || !meant["resourceVersion"].is_string() {
                    told.fail(format!("meant by its uid and version: DELETE {} does not say both", call.path));
                }
            }
            state.lock().judge(call)
        });
        Self(wrong)
    }

    /// Something goes wrong for a while, again and again, until nothing goes wrong any more.
    pub(super) async fn happen(self, world: World, shared: Shared, mut rng: Rng) {
        while !world.is_calm() {
            world.sleep(MS * rng.u32(500..25_000)).await;
            if world.is_calm() {
                break;
            }
            self.strike(&world, &shared, &mut rng);
            world.sleep(MS * rng.u32(200..70_000)).await;
            self.mend(&world, &shared);
        }
    }

    fn strike(&self, world: &World, shared: &Shared, rng: &mut Rng) {
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
            // A small group is believed to have gone, and what was known of it may be forgotten.
            2 => {
                shared.lock().shown.hide(Some(group), now);
                cluster.fail_discovery(group, DiscoveryFault::Missing);
            }
            // Most of what there is is not.
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

    /// All of it works again.
    pub(super) fn mend(&self, world: &World, shared: &Shared) {
        *self.0.lock() = Wrong::default();
        for group in CUSTOM_GROUPS.iter().chain([&""]) {
            world.cluster().mend_group(group);
        }
        let mut book = shared.lock();
        let book = &mut *book;
        let group = |uid: &str| book.objects.get(uid).map(|it| it.group().to_owned());
        book.shown.unhide(group, world.clock().now());
    }

    /// A second handle.
    pub(super) fn handle(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Wrong {
    fn judge(&self, call: &Call) -> Verdict {
        let resource =
            if call.group.is_empty() { call.resource.clone() } else { format!("{}.{}", call.resource, call.group) };
        let discovers = call.verb.is_empty() && (call.path.starts_with("/api") || call.path.starts_with("/apis"));
        if self.discovery && discovers {
            return Verdict::text(503, "service unavailable");
        }
        if self.lists == Some(&*resource) && matches!(call.verb, "list" | "watch") {
            return Verdict::status(500, "InternalError", "conversion webhook failed: connection refused");
        }
        if self.unknown == Some(&*resource) && call.user_agent.ends_with(AGENT) {
            return match call.group.is_empty() {
                true => Verdict::status(404, "NotFound", "the server could not find the requested resource"),
                false => Verdict::text(404, "404 page not found"),
            };
        }
        Verdict::Pass
    }
}
