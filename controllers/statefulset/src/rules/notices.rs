//! What is reported to users once, and again only after a change.

use api::{Atom, ClaimSpec, Pod};
use clock::Timestamp;
use workload::{BLOCKED_AFTER, WaitCause};

use crate::rules::{identity::claim_name, snapshot::Snapshot};

/// The claims that one event names.
const EXAMPLES: usize = 3;

/// A state that users must know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    /// The set waits for a pod for a long time.
    Blocked {
        /// The name of the pod.
        pod: Box<str>,
        /// Its node; empty if it has none.
        node: Box<str>,
        /// Why the set waits.
        cause: WaitCause,
        /// Since when, in seconds since the epoch.
        since: i64,
    },
    /// The server would refuse the labels of a pod.
    NameTooLong {
        /// The name of the pod.
        pod: String,
        /// The label, its value and the limit.
        why: String,
    },
    /// Existing claims differ from their template, which is never applied to them.
    ClaimsDiffer {
        /// The number of these claims.
        count: usize,
        /// The differences of some of them.
        examples: String,
    },
    /// A quota prevents the creation of a pod or of one of its claims.
    QuotaExceeded {
        /// The name of the pod.
        pod: String,
    },
}

/// A pod for which the set waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AwaitedPod<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// Why it is waited for.
    pub(crate) cause: WaitCause,
}

/// When something is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Due<T> {
    /// Now.
    Now(T),
    /// After so many seconds.
    After(i64),
    /// Not without a change.
    Never,
}

impl Notice {
    /// The reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Blocked { .. } => "Blocked",
            Self::NameTooLong { .. } => "NameTooLong",
            Self::ClaimsDiffer { .. } => "ClaimsDiffer",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
        }
    }

    /// Since when the set is blocked, if this notice blocks it. `first_seen` is when the notice was first seen.
    pub(crate) fn blocked_since(&self, first_seen: i64) -> Option<i64> {
        match self {
            Self::Blocked { since, .. } => Some(*since),
            Self::QuotaExceeded { .. } => Some(first_seen),
            Self::NameTooLong { .. } | Self::ClaimsDiffer { .. } => None,
        }
    }

    /// The message of the event.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Blocked { pod, node, cause, since } => {
                let node = if node.is_empty() { "no node".to_owned() } else { format!("node {node}") };
                let since = Timestamp::from_second(*since).unwrap_or(Timestamp::UNIX_EPOCH);
                format!("waiting for Pod {pod} ({node}), {} since {since}", cause.state())
            }
            Self::NameTooLong { pod, why } => format!("Pod {pod} cannot be created: {why}"),
            Self::ClaimsDiffer { count, examples } => {
                format!("volumeClaimTemplates are not applied to {count} existing claims that differ: {examples}")
            }
            Self::QuotaExceeded { pod } => format!("Pod {pod} is not created, because a quota is exceeded"),
        }
    }
}

impl AwaitedPod<'_> {
    /// The notice, once the set has waited for long. A pod that is ready becomes available in time, so it blocks
    /// nothing.
    pub(crate) fn notice(self, now: i64) -> Due<Notice> {
        let Some(since) = self.cause.since(self.pod).filter(|_| self.cause != WaitCause::NotAvailable) else {
            return Due::Never;
        };
        let left = since.saturating_add(BLOCKED_AFTER).saturating_sub(now);
        if left > 0 {
            return Due::After(left);
        }
        let Pod { meta, node, .. } = self.pod;
        Due::Now(Notice::Blocked { pod: meta.name.clone(), node: (**node).into(), cause: self.cause, since })
    }
}

/// The notice about existing claims that differ from their templates.
pub(crate) fn differing_claims(snapshot: &Snapshot<'_>) -> Option<Notice> {
    let templates = &snapshot.set.spec.claim_templates;
    let (mut count, mut examples) = (0, Vec::new());
    for slot in &snapshot.slots {
        for (template, claim) in templates.iter().zip(&slot.claims) {
            let Some(difference) = claim.as_ref().and_then(|it| difference(&template.spec, &it.spec)) else { continue };
            count += 1;
            if examples.len() < EXAMPLES {
                let name = claim_name(&template.name, &snapshot.set.meta.name, slot.ordinal);
                examples.push(format!("{name} has {difference}"));
            }
        }
    }
    (count > 0).then(|| Notice::ClaimsDiffer { count, examples: examples.join("; ") })
}

/// The first field of a claim that differs from the template, if the template has the field.
fn difference(template: &ClaimSpec, claim: &ClaimSpec) -> Option<String> {
    let fields = [
        ("storage", &template.storage, &claim.storage),
        ("storageClassName", &template.storage_class, &claim.storage_class),
        ("accessModes", &template.access_modes, &claim.access_modes),
    ];
    let (field, wanted, is) = fields.into_iter().find(|(_, wanted, is)| wanted.is_some() && wanted != is)?;
    let text = |it: &Option<Atom>| it.clone().unwrap_or_else(|| "none".into());
    Some(format!("{field} {}, the template {}", text(is), text(wanted)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        rules::snapshot::Gates,
        testing::{NOW, claim, one_claim, pod, pods, set, snapshot_with},
    };

    #[test]
    fn a_set_is_blocked_after_ten_minutes_and_the_notice_names_pod_node_and_time() {
        let pod = pod("1 new running");
        let waiting = AwaitedPod { pod: &pod, cause: WaitCause::NotReady };
        // The pod is not ready since 1,000 s before NOW.
        assert_eq!(waiting.notice(NOW - 1_000 + 599), Due::After(1));
        let Due::Now(blocked) = waiting.notice(NOW - 1_000 + 600) else { panic!("not blocked") };
        assert_eq!(blocked.reason(), "Blocked");
        let message = blocked.message();
        assert!(message.starts_with("waiting for Pod web-1 (node node-1), not ready since 2026-"), "{message}");
        assert_eq!(waiting.notice(NOW), Due::Now(blocked), "it does not change with time");
        let available = AwaitedPod { pod: &pod, cause: WaitCause::NotAvailable };
        assert_eq!(available.notice(NOW), Due::Never);
    }

    #[test]
    fn differing_claims_are_reported_together() {
        let mut templates = one_claim();
        templates[0]["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        let notice = |templates: Value, claims: &[&str]| {
            let (set, pods) = (set(json!({ "volumeClaimTemplates": templates })), pods(&[]));
            let claims: Vec<_> = claims.iter().map(|it| claim(it, &[], json!({}))).collect();
            differing_claims(&snapshot_with(&set, &pods, &claims, Gates::default())).map(|it| it.message())
        };
        let both = notice(templates, &["data-web-0", "data-web-2", "data-web-9"]);
        let wanted = "volumeClaimTemplates are not applied to 2 existing claims that differ: data-web-0 has storage \
                      1Gi, the template 2Gi; data-web-2 has storage 1Gi, the template 2Gi";
        assert_eq!(both.as_deref(), Some(wanted));
        assert_eq!(notice(one_claim(), &["data-web-0"]), None);
        let mut class = one_claim();
        class[0]["spec"]["storageClassName"] = json!("fast");
        let classes = notice(class, &["data-web-0"]).unwrap();
        assert!(classes.contains("data-web-0 has storageClassName none, the template fast"), "{classes}");
    }
}
