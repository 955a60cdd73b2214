//! Creations whose outcome is unknown: the pod may exist, or may still be created.

use std::time::Duration;

use api::{Meta, Page, Pod, Typed, Version};
use client::{Api, ApiError, ListOptions};
use clock::Instant;

/// Longer than the request timeout of the API server, which is one minute.
pub const MAX_REQUEST_TIME: Duration = Duration::from_secs(90);

/// Added to the timeout of a create, because it begins when the request reaches the server and storing takes time.
const DELAY: Duration = Duration::from_secs(5);

/// For how long after its first failure a write without an answer is repeated. Usually a connection or etcd works again by
/// then.
pub const REPEAT_FOR: Duration = Duration::from_secs(10);

/// The delay before the outcome of a write is checked again.
pub const RETRY_CHECK: Duration = Duration::from_secs(10);

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

/// For how long the server may still process a creation without a response.
#[must_use]
pub fn longest_create(api: &Api) -> Duration {
    api.longest_create().map_or(MAX_REQUEST_TIME, |it| it + DELAY)
}

/// The pods of a namespace with more than this many are not compared.
const MAX_COMPARED: u32 = 100;

/// Versions of a list of pods from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestPods {
    /// A cache that has passed this version shows every pod of the namespace that existed at the time of the list. It may
    /// still show pods that did not exist any more.
    ///
    /// It is the version of the newest of these pods.
    pub pod: Version,
    /// A cache that has passed this version shows exactly the pods that existed at the time of the list. If no pod
    /// changes, it does that at the next bookmark only, up to a minute later.
    pub list: Version,
}

impl NewestPods {
    fn of(page: Page<Meta>) -> Self {
        let Page { items, version: list, next, remaining: _ } = page;
        let versions = items.iter().map(|it| match it {
            Ok(meta) | Err((meta, _)) => meta.version.number(),
        });
        // Without pods there is nothing that the cache must show.
        let newest = versions.collect::<Option<Vec<u64>>>().map(|it| it.into_iter().max().unwrap_or_default());
        let pod = newest.filter(|_| next.is_empty()).map_or_else(|| list.clone(), Version::from);
        Self { pod, list }
    }
}

/// Reads the [`NewestPods`] of a namespace; `None` if the request failed.
pub async fn newest_pods(api: &Api, namespace: &str) -> Option<NewestPods> {
    let options = ListOptions { limit: MAX_COMPARED, ..ListOptions::default() };
    let page = api.list_metadata(&Pod::resource(), Some(namespace), &options).await;
    page.ok().map(NewestPods::of)
}

/// When the request of a failed write has certainly ended. `None` if the write certainly did not happen.
#[must_use]
pub fn end_of_request(err: &ApiError, now: Instant) -> Option<Instant> {
    // The client may have repeated the write within one call, or the cache was late.
    if matches!(err, ApiError::Conflict(_)) {
        return Some(now);
    }
    let mut outcomes = UnknownOutcomes::default();
    if outcomes.record_error(err) {
        return None;
    }
    Some(if outcomes.pending { now + MAX_REQUEST_TIME } else { now })
}

/// What the errors of writes leave unknown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UnknownOutcomes {
    /// The server responded with an error, so the request has ended.
    pub ended: bool,
    /// There was no response, or it does not show that the request has ended, so it may still be stored.
    pub pending: bool,
}

impl UnknownOutcomes {
    /// Records an error. Returns true when the write certainly did not happen.
    pub fn record_error(&mut self, err: &ApiError) -> bool {
        let ApiError::Unknown { status, .. } = err else { return true };
        match status {
            // API servers call webhooks before they store an object.
            Some(it) if it.is_of_webhook() => return true,
            // Errors of the API server itself have a reason; those of proxies and of the client of etcd have none.
            Some(it) if it.code != 504 && !it.reason.is_empty() && !it.message.contains("etcdserver:") => {
                self.ended = true;
            }
            _ => self.pending = true,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use api::Cached;
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
    fn an_idle_cache_has_passed_the_newest_pod_of_a_small_namespace() {
        let newest = |versions: &[&str], next: &str| {
            let pod =
                |it: &&str| format!(r#"{{"metadata":{{"name":"p{it}","uid":"u{it}","resourceVersion":"{it}"}}}}"#);
            let items: Vec<String> = versions.iter().map(pod).collect();
            let text = format!(
                r#"{{"metadata":{{"resourceVersion":"90","continue":"{next}"}},"items":[{}]}}"#,
                items.join(",")
            );
            let NewestPods { pod, list } = NewestPods::of(Meta::decode_page(text.as_bytes()).unwrap());
            assert_eq!(list, Version::from(90));
            pod
        };
        assert_eq!(newest(&["7", "31", "8"], ""), Version::from(31));
        assert_eq!(newest(&["7", "31", "8"], "more"), Version::from(90), "not all pods are known");
        assert_eq!(newest(&["7", "x"], ""), Version::from(90), "not comparable");
        assert_eq!(newest(&[], "").number(), None, "any cache has passed it");
    }

    #[test]
    fn only_some_errors_show_that_a_request_has_ended() {
        let (now, later) = (Clock::system().now(), MAX_REQUEST_TIME);
        let end = |err: &ApiError| end_of_request(err, now).map(|it| it - now);
        let of = |code, reason: &str, message: &str| {
            let status =
                api::Status { code, reason: reason.to_owned(), message: message.to_owned(), ..api::Status::default() };
            end(&ApiError::from_status(status, None))
        };
        let (certain, ended, pending) = (None, Some(Duration::ZERO), Some(later));
        for (code, reason, message, want) in [
            (403, "Forbidden", "exceeded quota: q", certain),
            (409, "Conflict", "", ended),
            (429, "TooManyRequests", "", certain),
            (500, "InternalError", "failed calling webhook \"w\": no route", certain),
            (500, "", "admission webhook \"w\" denied the request: no", certain),
            (500, "InternalError", "the admission webhook \"w\" denied the request", ended),
            (500, "InternalError", "not now", ended),
            (503, "ServiceUnavailable", "not now", ended),
            (500, "", "rpc error: code = Unavailable desc = closing", pending),
            (500, "InternalError", "etcdserver: request timed out", pending),
            (502, "", "Bad Gateway", pending),
            (504, "Timeout", "request did not complete", pending),
        ] {
            assert_eq!(of(code, reason, message), want, "{code} {reason} {message}");
        }
        assert_eq!(end(&ApiError::unknown("no answer")), pending);
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
