//! Where a watch begins.

use crate::{Failure, get, response::Fault, rest::Query};

pub(super) struct Start {
    pub(super) version: u64,
    /// The present objects first.
    pub(super) initial: bool,
    /// From now on, without the present objects.
    pub(super) now: bool,
    /// Requested by `sendInitialEvents` and not by an empty version.
    pub(super) streamed: bool,
}

impl Start {
    /// Parses the options of a watch.
    ///
    /// # Errors
    /// 422 for options that exclude each other, 500 for an invalid version.
    pub(super) fn parse(query: &Query) -> Result<Self, Failure> {
        let sent = query.get("resourceVersion");
        let asked = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
        let wanted = query.get("resourceVersionMatch");
        let from_now = matches!(sent, "" | "0") && asked.is_none() && wanted.is_empty();
        check(asked.is_some(), wanted, from_now, query.get("continue"))?;
        let version = get::version(query)?;
        let initial = asked.unwrap_or(version == 0);
        Ok(Self { version, initial, now: asked == Some(false) && version == 0, streamed: asked == Some(true) })
    }
}

/// resourceVersionMatch and sendInitialEvents must be set together. If neither is set and there is no version, a real
/// server sets both, and then refuses a continue token.
fn check(asked: bool, wanted: &str, from_now: bool, token: &str) -> Result<(), Failure> {
    let mut faults = Vec::new();
    let mut refuse = |why: &str| faults.push(Fault::forbidden("resourceVersionMatch", why));
    if asked && wanted != "NotOlderThan" {
        refuse("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    if !wanted.is_empty() && !asked {
        refuse("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    if (!wanted.is_empty() || from_now) && !token.is_empty() {
        refuse("resourceVersionMatch is forbidden when continue is provided");
    }
    if !matches!(wanted, "" | "NotOlderThan") {
        faults.push(Fault::unsupported("resourceVersionMatch", wanted, r#""NotOlderThan""#));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::invalid_query("ListOptions", &faults)) }
}
