//! Authorization: open paths are allowed for all clients, the group system:masters is allowed everything, and a
//! SubjectAccessReview decides the rest.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use futures::FutureExt;
use ring::digest;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    User,
    auth_metrics::AuthMetrics,
    decision_cache::{Cacheable, DecisionCache, Key},
    review::ReviewClient,
};

pub(crate) const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const MASTERS: &str = "system:masters";
/// The maximum number of cached decisions, more than users and monitoring systems need.
const MAX_CACHED: usize = 4096;
/// A larger request is not cached, as upstream (`maxControlledAttrCacheSize`).
const MAX_CACHED_SIZE: usize = 10_000;

/// Paths that are allowed without authorization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

impl OpenPaths {
    /// Reads `--authorization-always-allow-paths`.
    ///
    /// # Errors
    /// If a path is invalid; the message names the flag.
    pub fn parse(typed: &[String]) -> Result<Self, String> {
        let mut paths = Self::default();
        for path in typed {
            let path = path.strip_prefix('/').unwrap_or(path);
            match path.strip_suffix('*') {
                Some(prefix) if !prefix.contains('*') => paths.prefixes.push(prefix.to_owned()),
                None if !path.contains('*') => paths.exact.push(path.to_owned()),
                _ => {
                    return Err(format!("--authorization-always-allow-paths: only trailing * allowed in {path:?}"));
                }
            }
        }
        Ok(paths)
    }

    /// True if the path is allowed without authorization.
    #[must_use]
    pub(crate) fn contains(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.iter().any(|it| it == path) || self.prefixes.iter().any(|it| path.starts_with(it))
    }
}

/// The result of authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    /// No authorizer allows the request.
    NoOpinion(String),
    Denied(String),
}

/// Authorizes requests.
pub(crate) struct Authorization {
    pub(crate) open: OpenPaths,
    pub(crate) reviews: Option<AccessReviews>,
    pub(crate) clock: Clock,
    pub(crate) auth_metrics: Arc<AuthMetrics>,
}

/// Sends SubjectAccessReviews to the API server and caches the decisions.
pub(crate) struct AccessReviews {
    pub(crate) review_client: Arc<ReviewClient>,
    pub(crate) decision_cache: Arc<DecisionCache<DecisionResult>>,
    pub(crate) allowed_ttl: Duration,
    pub(crate) refused_ttl: Duration,
}

type DecisionResult = Result<Decision, Arc<str>>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    non_resource_attributes: Attributes<'a>,
    user: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    groups: &'a [String],
    extra: &'a std::collections::BTreeMap<String, Vec<String>>,
}

#[derive(Serialize)]
struct Attributes<'a> {
    path: &'a str,
    verb: &'a str,
}

#[derive(Deserialize)]
struct SubjectAccessReview {
    #[serde(default)]
    status: SubjectAccessReviewStatus,
}

#[derive(Deserialize, Default)]
struct SubjectAccessReviewStatus {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
    #[serde(default)]
    reason: String,
}

impl Authorization {
    /// # Errors
    /// If no decision is possible, with the reason.
    pub(crate) async fn authorize(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        let begun = self.clock.now();
        let decision = self.decision(user, verb, path).await;
        let result = match &decision {
            Ok(Decision::Allowed) => "allowed",
            Ok(Decision::Denied(_)) => "denied",
            Ok(Decision::NoOpinion(_)) => "no-opinion",
            Err(_) => "error",
        };
        self.auth_metrics.record_authorization(result, self.clock.now() - begun);
        decision
    }

    async fn decision(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        if user.groups.iter().any(|it| it == MASTERS) || self.open.contains(path) {
            return Ok(Decision::Allowed);
        }
        match &self.reviews {
            Some(reviews) => reviews.review(user, verb, path).await,
            None => Ok(Decision::NoOpinion(String::new())),
        }
    }
}

impl AccessReviews {
    pub(crate) fn new(review_client: ReviewClient, allowed_ttl: Duration, refused_ttl: Duration, clock: Clock) -> Self {
        Self {
            review_client: Arc::new(review_client),
            decision_cache: DecisionCache::new(MAX_CACHED, clock),
            allowed_ttl,
            refused_ttl,
        }
    }

    async fn review(&self, user: &User, verb: &str, path: &str) -> Result<Decision, String> {
        let User { name, uid, groups, extra } = user;
        let spec = Spec { non_resource_attributes: Attributes { path, verb }, user: name, uid, groups, extra };
        let spec =
            serde_json::to_string(&spec).map_err(|err| format!("cannot encode the review for {path:?}: {err}"))?;
        let mut key: Key = [0; 32];
        key.copy_from_slice(digest::digest(&digest::SHA256, spec.as_bytes()).as_ref());
        let ttls = if spec.len() < MAX_CACHED_SIZE { (self.allowed_ttl, self.refused_ttl) } else { Default::default() };
        let review_client = self.review_client.clone();
        self.decision_cache
            .get_or_fetch(key, || review(review_client, spec, ttls).boxed())
            .await
            .map_err(|why| why.to_string())
    }
}

async fn review(
    review_client: Arc<ReviewClient>,
    spec: String,
    ttls: (Duration, Duration),
) -> Cacheable<DecisionResult> {
    let (allowed_ttl, refused_ttl) = ttls;
    let spec = match serde_json::value::RawValue::from_string(spec) {
        Ok(spec) => spec,
        Err(err) => return (Err(Arc::from(err.to_string())), Duration::ZERO),
    };
    let question = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
    match review_client.send::<SubjectAccessReview>(&question).await {
        Ok(SubjectAccessReview { status: SubjectAccessReviewStatus { allowed: true, denied: true, .. } }) => {
            (Err(Arc::from("the API server both allows and denies the request")), Duration::ZERO)
        }
        Ok(SubjectAccessReview { status: SubjectAccessReviewStatus { allowed: true, .. } }) => {
            (Ok(Decision::Allowed), allowed_ttl)
        }
        Ok(SubjectAccessReview { status: SubjectAccessReviewStatus { denied: true, reason, .. } }) => {
            (Ok(Decision::Denied(reason)), refused_ttl)
        }
        Ok(SubjectAccessReview { status: SubjectAccessReviewStatus { reason, .. } }) => {
            (Ok(Decision::NoOpinion(reason)), refused_ttl)
        }
        Err(why) => (Err(Arc::from(why)), Duration::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(typed: &[&str]) -> Result<OpenPaths, String> {
        OpenPaths::parse(&typed.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn acceptance_shell_020_open_paths_are_whole_or_end_in_a_star() {
        let paths = open(&["/healthz", "readyz", "/debug/*"]).unwrap();
        for (path, want) in [
            ("/healthz", true),
            ("/readyz", true),
            ("/healthz/etcd", false),
            ("/debug/", true),
            ("/debug/pprof/heap", true),
            ("/debug", false),
            ("/metrics", false),
            ("/", false),
            ("/healthz/../metrics", false),
        ] {
            assert_eq!(paths.contains(path), want, "{path}");
        }
        assert!(open(&["/*"]).unwrap().contains("/anything"));
        for bad in ["/a*b", "/*/x", "/a**"] {
            assert!(open(&[bad]).unwrap_err().contains("only trailing * allowed"), "{bad}");
        }
    }
}
