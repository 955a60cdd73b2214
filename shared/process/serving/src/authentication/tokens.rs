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
    auth_metrics::AuthMetrics,
    decision_cache::{Cacheable, DecisionCache, Key},
    review::ReviewClient,
};

pub(crate) const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The maximum number of cached tokens, more than monitoring systems use.
const MAX_CACHED: usize = 1024;

/// Sends TokenReviews to the API server and caches the results.
pub(crate) struct TokenReviews {
    review_client: Arc<ReviewClient>,
    decision_cache: Arc<DecisionCache<UserResult>>,
    ttl: Duration,
    clock: Clock,
    auth_metrics: Arc<AuthMetrics>,
    /// A key that exists only in this process, so that the cache does not reveal a token.
    key: hmac::Key,
}

/// The user, `None` if the token is invalid, or the reason why the review failed.
type UserResult = Result<Option<User>, Arc<str>>;

#[derive(Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: TokenReviewStatus,
}

#[derive(Deserialize, Default)]
struct TokenReviewStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
    #[serde(default)]
    error: String,
}

impl TokenReviews {
    /// # Errors
    /// If the system returns no random bytes: the key would be predictable.
    pub(crate) fn new(
        review_client: ReviewClient,
        ttl: Duration,
        clock: Clock,
        auth_metrics: Arc<AuthMetrics>,
    ) -> Result<Self, ServeError> {
        // A key must not come from the seed. Its value does not affect a simulation.
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).map_err(|_| ServeError::Randomness)?;
        Ok(Self {
            review_client: Arc::new(review_client),
            decision_cache: DecisionCache::new(MAX_CACHED, clock.clone()),
            ttl,
            clock,
            auth_metrics,
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

    async fn review(&self, token: &str) -> UserResult {
        let begun = self.clock.now();
        let mut key: Key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.key, token.as_bytes()).as_ref());
        let cached = self.decision_cache.look_up(&key);
        let hit = cached.is_some();
        let result = match cached {
            Some(result) => result,
            None => {
                let _blocked = GaugeGuard::new(self.auth_metrics.cache.active.with_label_values(&["blocked"]));
                let (review_client, auth_metrics, ttl) =
                    (self.review_client.clone(), self.auth_metrics.clone(), self.ttl);
                let token = token.to_owned();
                self.decision_cache.get_or_fetch(key, || fetch(review_client, auth_metrics, token, ttl).boxed()).await
            }
        };
        self.auth_metrics.cache.record_lookup(hit, self.clock.now() - begun);
        result
    }
}

async fn fetch(
    review_client: Arc<ReviewClient>,
    auth_metrics: Arc<AuthMetrics>,
    token: String,
    ttl: Duration,
) -> Cacheable<UserResult> {
    let _fetching = GaugeGuard::new(auth_metrics.cache.active.with_label_values(&["in_flight"]));
    let question =
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let result = match review_client.send::<TokenReview>(&question).await {
        Ok(TokenReview { status }) if status.authenticated => Ok(Some(status.user)),
        Ok(TokenReview { status }) if status.error.is_empty() => Ok(None),
        // The server's message should not contain the token, but this is not certain, so it is not passed on.
        Ok(_) => Err(Arc::from("the API server does not know the token")),
        Err(why) => Err(Arc::from(why)),
    };
    auth_metrics.cache.record_fetch(result.is_ok());
    // An error is not cached, as upstream.
    let ttl_of_result = if result.is_ok() { ttl } else { Duration::ZERO };
    (result, ttl_of_result)
}

/// The token of `Authorization: Bearer <token>`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Increments a gauge until it is dropped.
struct GaugeGuard(metrics::IntGauge);

impl GaugeGuard {
    fn new(gauge: metrics::IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_tokens_are_parsed_like_upstream() {
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
