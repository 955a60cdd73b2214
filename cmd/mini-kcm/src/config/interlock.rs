//! How this manager behaves beside another one.

use crate::flags::FlagValues;

/// The options of the interlock with the built-in manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// `--assume-exclusive`: a manager that cannot be seen does not run our controllers.
    pub assume_exclusive: bool,
    /// `--partial-takeover`: leads although it lacks controllers that the last holder of the Lease ran.
    pub partial_takeover: bool,
    /// `--job-managed-by` is set: the built-in manager leaves our Jobs alone.
    pub manages_own_jobs: bool,
}

/// Reads the flags.
#[must_use]
pub fn read(flags: &FlagValues) -> Options {
    Options {
        assume_exclusive: flags.bool("assume-exclusive"),
        partial_takeover: flags.bool("partial-takeover"),
        manages_own_jobs: !flags.text(job_controller::MANAGED_BY_FLAG).is_empty(),
    }
}
