//! The identity of the controllers at the API server.

use crate::flags::FlagValues;

/// The options of the identity, and of `--preflight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--use-service-account-credentials`: each controller uses its own ServiceAccount.
    pub own_accounts: bool,
    /// `--preflight`: checks permissions and the cluster, and exits.
    pub preflight: bool,
}

/// Reads the flags.
#[must_use]
pub fn read(flags: &mut FlagValues) -> Options {
    Options { own_accounts: flags.bool("use-service-account-credentials"), preflight: flags.bool("preflight") }
}
