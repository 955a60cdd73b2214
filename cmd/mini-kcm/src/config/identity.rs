//! The identity of the controllers at the API server.

use crate::flags::Typed;

/// Options of identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--use-service-account-credentials`: each controller speaks as a ServiceAccount of its own.
    pub own_accounts: bool,
    /// `--preflight`: looks whether everything is there, and ends.
    pub preflight: bool,
}

/// Reads the flags.
#[must_use]
pub fn read(flags: &mut Typed) -> Options {
    Options { own_accounts: flags.bool("use-service-account-credentials"), preflight: flags.bool("preflight") }
}
