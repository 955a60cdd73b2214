//! What is known of objects and their owners, and what is due because of it.
//!
//! Being written: the surface is
//! `Graph::new(seed: u64)`, `monitor(&Resource) -> MonitorId`, `stop_monitor(MonitorId)`, `observe(MonitorId, Meta)`,
//! `deleted(MonitorId, &Uid) -> Option<Coordinates>` (to be remembered as proved absent), `missing(MonitorId, &Uid)`,
//! `observed_by(MonitorId) -> impl Iterator<Item = &Uid>`, `held(MonitorId) -> usize`,
//! `proved_absent(&Coordinates) -> bool` (worth remembering: somebody names exactly this),
//! `node(&Item) -> Option<NodeView>`, `dependents(&Uid) -> Vec<Dependent>`, `blocking(&Uid) -> Vec<(Item, bool)>`,
//! `take_due() -> Due`.

mod words;

pub(crate) use words::{Coordinates, Dependent, Due, Item, Misplaced, MonitorId, NodeView, TypeName};
