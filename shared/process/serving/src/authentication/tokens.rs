use std::{sync::Arc, time::Duration};

use clock::Clock;
use futures::FutureExt;
use http::{HeaderMap, header};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use serde::Deserialize;
use serde_json::json;

use super::User;
use crate::{
    ServeError,
    asked::{Asked, Fresh, Key},
    measured::Measured,
    review::Reviewer,
};

pub(crate) const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The maximum number of cached tokens, more than monitoring systems use.
const MOST: usize = 1024;

/// Sends TokenReviews to the API server and caches the results.
pub(crate) struct Tokens {
    reviewer: Arc<Reviewer>,
    asked: Arc<Asked<Outcome>>,
    ttl: Duration,
    clock: Clock,
    measured: Arc<Measured>,
    /// A key that exists only in this process, so that the cache does not reveal a token.
    key: hmac::Key,
}

/// The user, `None` if the token is invalid, or the reason why the review failed.
type Outcome = Result<Option<User>, Arc<str>>;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
    #[serde(default)]
    error: String,
}

impl Tokens {
    /// # Errors
    /// If the system returns no random bytes: the key would be predictable.
    pub(crate) fn new(
        reviewer: Reviewer,
        ttl: Duration,
        clock: Clock,
        measured: Arc<Measured>,
    ) -> Result<Self, ServeError> {
        // A key must not come from the seed. Its value does not affect a simulation.
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| ServeError::Randomness)?;
        Ok(Self {
            reviewer: Arc::new(reviewer),
            asked: Asked::new(MOST, clock.clone()),
            ttl,
            clock,
            measured,
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
        })
    }

    /// The user of the request's bearer token; `None` if the request has no token.
    ///
    /// # Errors
    /// If the token is invalid or its review failed.
    pub(super) async fn user(&self, headers: &HeaderMap) -> Result<Option<User>, String> {
        let Some(token) = bearer(headers) else { return Ok(None) };
        match self.review(token).await {
            Ok(Some(user)) => Ok(Some(user)),
            Ok(None) => Err("invalid bearer token".to_owned()),
            Err(why) => Err(why.to_string()),
        }
    }

    async fn review(&self, token: &str) -> Outcome {
        let begun = self.clock.now();
        let mut key: Key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.key, token.as_bytes()).as_ref());
        let known = self.asked.known(&key);
        let hit = known.is_some();
        let outcome = match known {
            Some(outcome) => outcome,
            None => {
                let _blocked = Counted::new(self.measured.cache.active.with_label_values(&["blocked"]));
                let (reviewer, measured, ttl) = (self.reviewer.clone(), self.measured.clone(), self.ttl);
                let token = token.to_owned();
                self.asked.get(key, || fetch(reviewer, measured, token, ttl).boxed()).await
            }
        };
        self.measured.cache.looked_up(hit, self.clock.now() - begun);
        outcome
    }
}

async fn fetch(reviewer: Arc<Reviewer>, measured: Arc<Measured>, token: String, ttl: Duration) -> Fresh<Outcome> {
    let _fetching = Counted::new(measured.cache.active.with_label_values(&["in_flight"]));
    let question =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let outcome = match reviewer.ask::<Answer>(&question).await {
        Ok(Answer { status }) if status.authenticated => Ok(Some(status.user)),
        Ok(Answer { status }) if status.error.is_empty() => Ok(None),
        // The server's message should not contain the token, but this is not certain, so it is not passed on.
        Ok(_) => Err(Arc::from("the API server does not know the token")),
        Err(why) => Err(Arc::from(why)),
    };
    measured.cache.fetched(outcome.is_ok());
    // An error is not cached, as upstream.
    let keep = if outcome.is_ok() { ttl } else { Duration::ZERO };
    (outcome, keep)
}

/// The token of `Authorization: Bearer <token>`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Increments a gauge until it is dropped.
struct Counted(metrics::IntGauge);

impl Counted {
    fn new(gauge: metrics::IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_tokens_are_read_as_upstream_reads_them() {
        for (value, want) in [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  BEARER abc  ", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let headers: HeaderMap = [(header::AUTHORIZATION, value.parse().unwrap())].into_iter().collect();
            assert_eq!(bearer(&headers), want, "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
