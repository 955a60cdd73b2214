//! Faults for `--chaos`: what networks and overloaded servers do to a manager.

use std::{sync::Arc, time::Duration};

use test_cluster::{Call, Interception, TestCluster};

use crate::shared_state::SharedState;

/// How many of a thousand requests get each fault.
const CONFLICT: u32 = 50;
const BUSY: u32 = 50;
const BROKEN: u32 = 50;
const LOST: u32 = 50;
const SLOW: u32 = 100;
/// The longest delay of a slow request, in milliseconds.
const SLOWEST: u64 = 800;

/// From now on requests of mini-kcm get faults; other clients get none. Equal seeds choose requests of equal numbers.
pub(crate) fn begin(cluster: &TestCluster, state: Arc<SharedState>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    cluster.intercept(move |call| {
        if !call.user_agent.starts_with("mini-kcm/") {
            return Interception::Pass;
        }
        let Some((name, interception)) = choose_fault(call, &mut rng) else { return Interception::Pass };
        state.change(|it| {
            *it.faults.entry(name).or_default() += 1;
            it.lines.push(format!("fault: {name} for {} {}", call.method, call.path));
        });
        interception
    });
}

fn choose_fault(call: &Call, rng: &mut fastrand::Rng) -> Option<(&'static str, Interception)> {
    let (mut number, wait) = (rng.u32(..1000), Duration::from_millis(rng.u64(1..=SLOWEST)));
    let mut is_drawn = |share: u32| {
        let hit = number < share;
        number = number.wrapping_sub(share);
        hit
    };
    let writes = matches!(call.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
    if is_drawn(CONFLICT) {
        let changed = "the object has been modified; please apply your changes to the latest version";
        return (call.verb == "update").then(|| ("conflict", Interception::status(409, "Conflict", changed)));
    }
    if is_drawn(BUSY) {
        let interception = Interception::status(429, "TooManyRequests", "too many requests").retry_after(1);
        return Some(("too many requests", interception));
    }
    if is_drawn(BROKEN) {
        return Some(("internal error", Interception::status(500, "InternalError", "chaos")));
    }
    if is_drawn(LOST) {
        return writes.then_some(("lost answer", Interception::LoseAnswer));
    }
    is_drawn(SLOW).then_some(("slow request", Interception::Delay(wait)))
}
