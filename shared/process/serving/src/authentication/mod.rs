//! Authentication by front proxy, client certificate or bearer token. Without any of these the client is anonymous.

mod certificates;
mod proxies;
mod tokens;

use std::{collections::BTreeMap, sync::Arc};

use clock::Clock;
use http::HeaderMap;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub(crate) use self::tokens::{PATH as TOKENS, TokenReviews};
use crate::{auth_metrics::AuthMetrics, authorities::Authorities};

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct User {
    /// The name.
    #[serde(default, rename = "username")]
    pub name: String,
    /// Distinguishes users with the same name.
    #[serde(default)]
    pub uid: String,
    /// The groups of the user.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Additional attributes.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// An anonymous client.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// True for [`User::anonymous`].
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Adds the group of authenticated clients, unless the user is anonymous.
    fn with_authenticated_group(mut self) -> Self {
        let has_group = |it: &String| it == AUTHENTICATED || it == UNAUTHENTICATED;
        if !self.is_anonymous() && !self.groups.iter().any(has_group) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// Authenticates requests.
pub(crate) struct Authentication {
    pub(crate) authorities: watch::Receiver<Arc<Authorities>>,
    /// `None` if TokenReviews are not possible. Then a client with a token is anonymous.
    pub(crate) tokens: Option<TokenReviews>,
    pub(crate) clock: Clock,
    pub(crate) auth_metrics: Arc<AuthMetrics>,
}

impl Authentication {
    /// The first valid credential gives the user. An invalid credential is an error only if no other one is valid.
    /// Without a credential the user is anonymous.
    ///
    /// # Errors
    /// If a credential is invalid and no other one is valid. The message never contains a secret.
    pub(crate) async fn authenticate(&self, chain: &[CertificateDer<'_>], headers: &HeaderMap) -> Result<User, String> {
        let begun = self.clock.now();
        let user = self.identify(chain, headers).await;
        let took = self.clock.now() - begun;
        self.auth_metrics.record_authentication(user.as_ref().ok().map(|it| it.name.as_str()), took);
        user
    }

    async fn identify(&self, chain: &[CertificateDer<'_>], headers: &HeaderMap) -> Result<User, String> {
        let mut errors = Vec::new();
        for result in self.by_certificate(chain, headers) {
            match result {
                Ok(Some(user)) => return Ok(user.with_authenticated_group()),
                Ok(None) => {}
                Err(why) => errors.push(why),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.user(headers).await {
                Ok(Some(user)) => return Ok(user.with_authenticated_group()),
                Ok(None) => {}
                Err(why) => errors.push(why),
            }
        }
        if errors.is_empty() { Ok(User::anonymous()) } else { Err(errors.join("; ")) }
    }

    fn by_certificate(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
    ) -> impl Iterator<Item = Result<Option<User>, String>> {
        let authorities = self.authorities.borrow().clone();
        let candidates = (!chain.is_empty()).then(|| {
            let seconds = self.clock.wall().as_second();
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
            let proxy = authorities.proxies.as_ref().map(|it| proxies::user(it, chain, headers, now));
            let client = authorities.clients.as_ref().map(|it| {
                if let Some(end) = certificates::expiry(chain) {
                    self.auth_metrics.observe_certificate_expiration((end - seconds) as f64);
                }
                certificates::user(it, chain, now)
            });
            [proxy, client]
        });
        candidates.into_iter().flatten().flatten()
    }
}

#[cfg(test)]
mod tests;
