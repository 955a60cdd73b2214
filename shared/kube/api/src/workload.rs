//! What the kinds with a pod template and revisions have in common.

use serde::de::MapAccess;

use crate::{Labels, json::next_or_default, labels::Pairs, metadata::Extra, words::words};

/// Annotations with this prefix are ours.
const OUR_PREFIX: &str = "mini-kcm.dev/";

/// The annotation with the number of the template of a DaemonSet, which the server increments.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The server's default of `revisionHistoryLimit`.
pub(crate) const HISTORY_LIMIT: i32 = 10;

words! {
    /// How pods of an older template are replaced.
    UpdateStrategyType {
        /// Step by step, by the controller.
        RollingUpdate = "RollingUpdate" | "",
        /// Only when the user deletes them.
        OnDelete = "OnDelete",
        /// All are deleted before the first is created again (KEP-3541).
        Recreate = "Recreate",
    }
}

/// The metadata that controllers read.
#[derive(Default)]
pub(crate) struct WorkloadMetadata {
    pub(crate) annotations: Labels,
    pub(crate) generation: i64,
}

impl Extra for WorkloadMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "annotations" => self.annotations = Pairs { keep: is_read }.next(map)?,
            "generation" => self.generation = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn is_read(annotation: &str) -> bool {
    annotation.starts_with(OUR_PREFIX) || annotation == TEMPLATE_GENERATION
}
