//! The annotations of Deployments and ReplicaSets.

use std::collections::BTreeMap;

use api::{Labels, RawMetadata};
use serde::Deserialize;

/// The number of the rollout.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The earlier numbers of a ReplicaSet that became the new one again.
pub(crate) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The replicas of the Deployment when the ReplicaSet was last scaled.
pub(crate) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with the surge.
pub(crate) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The revision to which a client of a removed API wants to return.
pub(crate) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// The size of a ReplicaSet before a manager of a later version began to scale it (KEP-5882).
const REPLICAS_BEFORE_SCALE: &str = "deployment.kubernetes.io/replicaset-replicas-before-scale";

/// Annotations that are not copied between a Deployment and its ReplicaSets (`annotationsToSkip`).
const NOT_COPIED: [&str; 7] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    REPLICAS_BEFORE_SCALE,
    ROLLBACK_TO,
];

/// The longest revision history, in bytes.
const MAX_HISTORY: usize = 2000;

/// Annotations by key.
pub(crate) type Annotations = BTreeMap<String, String>;

/// All annotations of an object.
pub(crate) fn all(metadata: &RawMetadata) -> Result<Annotations, serde_json::Error> {
    #[derive(Deserialize)]
    struct Wire {
        annotations: Option<Annotations>,
    }
    let Wire { annotations } = serde_json::from_str(metadata.get())?;
    Ok(annotations.unwrap_or_default())
}

/// Whether an annotation of the Deployment is also one of its new ReplicaSet.
pub(crate) fn is_copied(key: &str) -> bool {
    !NOT_COPIED.contains(&key)
}

/// The number of a revision: 0 if there is none, `None` if it is no number.
pub(crate) fn revision(annotations: &Labels) -> Option<i64> {
    annotations.get(REVISION).map_or(Some(0), |it| it.parse().ok())
}

/// A number of replicas; `None` if it is absent or not valid.
pub(crate) fn replicas(annotations: &Labels, key: &str) -> Option<i32> {
    let text = annotations.get(key)?;
    // A sign is not valid.
    let is_number = text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// What a new ReplicaSet that exists must get: the annotations of its Deployment, and a revision that is higher than
/// those of all old ones (`SetNewReplicaSetAnnotations`). A revision is never lowered. Upstream does not repair one that
/// is no number.
pub(crate) fn annotation_changes(deployment: &Annotations, set: &Annotations, next_revision: i64) -> Annotations {
    let is_changed = |(key, value): &(&String, &String)| is_copied(key) && set.get(*key) != Some(*value);
    let mut changes: Annotations =
        deployment.iter().filter(is_changed).map(|(key, value)| (key.clone(), value.clone())).collect();
    let before = set.get(REVISION);
    let number: Option<i64> = before.and_then(|it| it.parse().ok());
    if number.unwrap_or_default() < next_revision {
        changes.insert(REVISION.to_owned(), next_revision.to_string());
        if let (Some(before), Some(_)) = (before, number)
            && let Some(history) = extended_history(set.get(REVISION_HISTORY).map_or("", String::as_str), before)
        {
            changes.insert(REVISION_HISTORY.to_owned(), history);
        }
    }
    changes
}

/// The history with one more revision. Entries are dropped from its front so that it fits; `None` if that is impossible.
fn extended_history(history: &str, revision: &str) -> Option<String> {
    let mut rest = history;
    loop {
        if rest.is_empty() {
            return (revision.len() <= MAX_HISTORY).then(|| revision.to_owned());
        }
        if rest.len() + 1 + revision.len() <= MAX_HISTORY {
            return Some(format!("{rest},{revision}"));
        }
        rest = rest.split_once(',').map_or("", |(_, rest)| rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Annotations {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn acceptance_deploy_002_only_annotations_of_users_are_copied() {
        let deployment = of(&[
            ("a", "1"),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
            (REVISION, "1"),
            (ROLLBACK_TO, "0"),
            (REPLICAS_BEFORE_SCALE, "7"),
        ]);
        let changes = annotation_changes(&deployment, &of(&[(REVISION, "1")]), 1);
        assert_eq!(changes, of(&[("a", "1")]));
    }

    #[test]
    fn acceptance_deploy_003_a_changed_annotation_is_copied_and_a_removed_one_stays() {
        let set = of(&[("a", "1"), ("gone", "1"), (REVISION, "3")]);
        assert_eq!(annotation_changes(&of(&[("a", "2"), ("b", "1")]), &set, 2), of(&[("a", "2"), ("b", "1")]));
        assert_eq!(annotation_changes(&of(&[("a", "1")]), &set, 3), of(&[]));
    }

    #[test]
    fn acceptance_deploy_005_006_the_history_has_the_earlier_revisions() {
        let renumbered = |revision: &str, history: &str, next: i64| {
            let mut set = of(&[(REVISION, revision)]);
            if !history.is_empty() {
                set.insert(REVISION_HISTORY.to_owned(), history.to_owned());
            }
            annotation_changes(&of(&[]), &set, next)
        };
        assert_eq!(renumbered("1", "", 3), of(&[(REVISION, "3"), (REVISION_HISTORY, "1")]));
        assert_eq!(renumbered("5", "1,3", 7), of(&[(REVISION, "7"), (REVISION_HISTORY, "1,3,5")]));
        assert_eq!(renumbered("7", "1,3", 7), of(&[]), "it has the number already");
        assert_eq!(renumbered("9", "1,3", 7), of(&[]), "a number is never lowered");
        assert_eq!(renumbered("x", "1", 7), of(&[(REVISION, "7")]), "what is no number is replaced");
        assert_eq!(annotation_changes(&of(&[]), &of(&[]), 1), of(&[(REVISION, "1")]));
    }

    #[test]
    fn acceptance_deploy_007_the_oldest_revisions_are_dropped_from_a_long_history() {
        let history = (1_000..1_400).map(|it| it.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(history.len(), 1_999);
        let history = format!("0{history}");
        let next = extended_history(&history, "20").unwrap();
        assert_eq!(next.len(), 1_997);
        assert!(next.starts_with("1001,1002") && next.ends_with("1399,20"), "{next}");
        assert_eq!(extended_history(&"1".repeat(2_000), "2").unwrap(), "2");
        assert_eq!(extended_history("1", &"2".repeat(2_001)), None);
    }

    #[test]
    fn numbers_of_replicas_are_parsed_strictly() {
        let parsed = |text: &str| replicas(&[(MAX_REPLICAS.into(), text.into())].into_iter().collect(), MAX_REPLICAS);
        assert_eq!((parsed("0"), parsed("2147483647")), (Some(0), Some(i32::MAX)));
        for wrong in ["", "abc", "-1", "+1", "2147483648", "1.0"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        assert_eq!(replicas(&Labels::default(), MAX_REPLICAS), None);
    }
}
