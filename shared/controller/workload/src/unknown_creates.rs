//! Creations whose outcome is unknown: the pod may exist, or may still be created.

use std::time::Duration;

use api::Version;
use client::ApiError;
use clock::Instant;

/// The delay before a failed request to the server is repeated.
const RETRY_CHECK: Duration = Duration::from_secs(10);

/// The unknown creations of one owner. They stay expected until the cache has passed a version that was read
/// after their requests had ended. What the cache does not show then was not created.
#[derive(Debug, Default)]
pub struct UnknownCreates(Option<State>);

/// How the outcome is determined.
#[derive(Debug)]
enum State {
    /// The request may still be running until this time.
    CheckAt(Instant),
    /// The outcome is known when the cache has passed this resourceVersion.
    UntilPassed(Version),
}

impl UnknownCreates {
    /// The outcome of some creations is unknown, and their requests may be running until `at`.
    pub fn check_at(&mut self, at: Instant) {
        self.0 = Some(State::CheckAt(at));
    }

    /// All requests have ended. A cache that has passed `version` shows every pod that was created.
    pub fn await_version(&mut self, version: Version) {
        self.0 = Some(State::UntilPassed(version));
    }

    /// Whether to request the version for [`UnknownCreates::await_version`] from the server now. If the request fails,
    /// it is repeated later.
    pub fn begin_check(&mut self, now: Instant) -> bool {
        match &mut self.0 {
            Some(State::CheckAt(at)) if *at <= now => {
                *at = now + RETRY_CHECK;
                true
            }
            _ => false,
        }
    }

    /// When the server must be asked about them.
    #[must_use]
    pub fn next_check(&self) -> Option<Instant> {
        match self.0 {
            Some(State::CheckAt(at)) => Some(at),
            Some(State::UntilPassed(_)) | None => None,
        }
    }

    /// Returns true once when the cache has passed the awaited version. A creation that the cache does not show then
    /// did not happen.
    pub fn resolve(&mut self, passed: impl Fn(&Version) -> bool) -> bool {
        let is_resolved = matches!(&self.0, Some(State::UntilPassed(version)) if passed(version));
        if is_resolved {
            self.0 = None;
        }
        is_resolved
    }

    /// Whether the outcome of any creation is unknown.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0.is_some()
    }

    /// All are resolved. Later creations must not be affected.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

/// What the errors of creations leave unknown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UnknownOutcomes {
    /// The server responded with an error, so the request has ended.
    pub ended: bool,
    /// There was no response, or the server ended the request while storing, so the pod may still be created.
    pub pending: bool,
}

impl UnknownOutcomes {
    /// Records an error. Returns true when the pod was certainly not created.
    pub fn record_error(&mut self, err: &ApiError) -> bool {
        let ApiError::Unknown { status, .. } = err else { return true };
        let message = status.as_ref().map(|it| it.message.as_str());
        match (status.as_ref().map(|it| it.code), message) {
            // The call of the webhook failed, so the pod was not stored.
            (Some(500), Some(message)) if message.contains("failed calling webhook") => return true,
            (Some(504) | None, _) => self.pending = true,
            (_, Some(message)) if message.contains("etcdserver:") => self.pending = true,
            _ => self.ended = true,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    #[test]
    fn a_check_is_due_at_its_time_and_repeated_without_a_response() {
        let (mut unknown, now) = (UnknownCreates::default(), Clock::system().now());
        let sec = Duration::from_secs(1);
        assert!(!unknown.begin_check(now) && !unknown.is_any());
        unknown.check_at(now + 90 * sec);
        assert_eq!(unknown.next_check(), Some(now + 90 * sec));
        assert!(!unknown.begin_check(now + 89 * sec) && unknown.begin_check(now + 90 * sec));
        assert!(!unknown.begin_check(now + 91 * sec) && unknown.begin_check(now + 100 * sec));
        assert!(!unknown.resolve(|_| true), "the version is not known");
        unknown.await_version(Version::new("7"));
        assert!(!unknown.begin_check(now + 200 * sec) && unknown.next_check().is_none() && unknown.is_any());
    }

    #[test]
    fn a_cache_that_has_passed_the_version_resolves_them_once() {
        let mut unknown = UnknownCreates::default();
        unknown.await_version(Version::new("7"));
        assert!(!unknown.resolve(|_| false) && unknown.is_any());
        assert!(unknown.resolve(|it| *it == Version::new("7")) && !unknown.is_any());
        assert!(!unknown.resolve(|_| true));
    }
}
