//! Access and token reviews: everything is allowed, and nothing is stored.

use serde_json::{Value, json};

use crate::{Failure, kinds::Kind, meta};

/// Answers the POST of a kind that stores nothing.
///
/// # Errors
/// 501 for a kind that is not a review.
pub(crate) fn review(kind: &Kind, namespace: &str, mut body: Value) -> Result<Value, Failure> {
    let status = match kind.kind.as_str() {
        "TokenReview" => json!({
            "authenticated": true, "user": { "username": "admin", "groups": ["system:masters", "system:authenticated"] },
        }),
        "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview" => json!({ "allowed": true }),
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
            "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "incomplete": false,
        }),
        _ => return Err(Failure::not_served(&kind.qualified())),
    };
    let fields = meta::as_map(&mut body);
    fields.insert("kind".into(), kind.kind.clone().into());
    fields.insert("apiVersion".into(), kind.api_version().into());
    fields.insert("status".into(), status);
    if fields.get("metadata").is_none_or(Value::is_null) {
        fields.insert("metadata".into(), json!({}));
    }
    if kind.namespaced {
        meta::set(&mut body, "namespace", namespace);
    }
    Ok(body)
}
