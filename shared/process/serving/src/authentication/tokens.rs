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
/// More different tokens than a monitoring system has.
const MOST: usize = 1024;

/// Asks the API server whose a token is, and remembers it for a while.
pub(crate) struct Tokens {
    reviewer: Arc<Reviewer>,
    asked: Arc<Asked<Outcome>>,
    ttl: Duration,
    clock: Clock,
    measured: Arc<Measured>,
    /// Of this process alone: what is remembered tells nobody what a token was.
    key: hmac::Key,
}

/// The user; that there is none; or that it could not be found out, with the reason.
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
    /// When the system has no randomness: everybody would know the key.
    pub(crate) fn new(
        reviewer: Reviewer,
        ttl: Duration,
        clock: Clock,
        measured: Arc<Measured>,
    ) -> Result<Self, ServeError> {
        // A key, so not from the seed: a simulation does not see it.
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

    /// The user of the request's bearer token; `None` where it has none.
    ///
    /// # Errors
    /// Why the token proves nothing.
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
        // The server's words name no token, but neither are they ours to trust with one.
        Ok(_) => Err(Arc::from("the API server does not know the token")),
        Err(why) => Err(Arc::from(why)),
    };
    measured.cache.fetched(outcome.is_ok());
    // As upstream: what ended with an error is asked again.
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

/// One more while it lives.
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
