//! Deletes what nobody owns any more, orphans what was asked for, and lets owners go after their dependents.
//!
//! Promises: nothing is deleted while one of its owners lives. That an owner is gone is proved live, of matching uid, or by
//! the server's own word on a watch; never by silence, by an error, or by a type that is not served. Every DELETE names uid
//! and resourceVersion of the very state that was judged. What the graph knows is only a hint: it says where to look.
//!
//! Reading order: `graph` (what is known of objects and their owners, and what is due because of it), `dump` and `why` (what
//! people are told of it).

mod dump;
mod graph;
mod why;

use controller::{Builder, Profile, Right};

/// The canonical name.
pub const NAME: &str = "garbage-collector-controller";

/// As upstream's role of this controller grants it.
pub const PROFILE: Profile = Profile {
    acts: &[
        Right { group: "*", resource: "*", verbs: &["get", "patch", "delete"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    // Which kinds there are. Upstream's role lacks it, as everybody may by default.
    paths: &["/api", "/apis"],
    watches: &[Right { group: "*", resource: "*", verbs: &["list", "watch"] }],
    // Whoever deletes an object leaves nothing on it that names him.
    marks: &[],
};

/// What the user can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-gc-syncs`: so many workers delete, and as many orphan.
    pub concurrent_syncs: usize,
    /// `--gc-max-deletes-per-minute`; zero: no bound.
    pub max_deletes_per_minute: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { concurrent_syncs: 20, max_deletes_per_minute: 0 }
    }
}

/// Declares the controller.
pub fn start(_builder: &mut Builder, options: Options) {
    let Options { concurrent_syncs: _, max_deletes_per_minute: _ } = options;
}
