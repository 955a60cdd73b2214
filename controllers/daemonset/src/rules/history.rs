//! Which revision belongs to the present template (`constructHistory`).

use std::{collections::HashSet, sync::Arc};

use api::ControllerRevision;
use revisions::{REVISION_LABEL, find_equal, next_number};

/// What to do so that exactly one revision has the present template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Current {
    /// A revision with this number is created.
    Create {
        /// Its number.
        number: i64,
    },
    /// There is one.
    Exists {
        /// Its position.
        at: usize,
        /// Its new number, if an older template has a higher one (a rollback).
        number: Option<i64>,
        /// The positions of others with the same template, which are deleted.
        duplicates: Vec<usize>,
    },
}

/// Finds the revision with the data of the present template.
pub(crate) fn current(sorted: &[Arc<ControllerRevision>], data: &str) -> Current {
    let mut equal = find_equal(sorted, data);
    let older: Vec<Arc<ControllerRevision>> = others(sorted, &equal);
    let number = next_number(&older);
    let Some(at) = equal.pop() else { return Current::Create { number } };
    Current::Exists { at, number: Some(number).filter(|it| sorted[at].revision < *it), duplicates: equal }
}

/// The revisions at other positions.
pub(crate) fn others(sorted: &[Arc<ControllerRevision>], positions: &[usize]) -> Vec<Arc<ControllerRevision>> {
    let all = sorted.iter().enumerate();
    all.filter(|(at, _)| !positions.contains(at)).map(|(_, it)| it.clone()).collect()
}

/// The value of the label of its pods. A revision of an old controller has no label, and gets its own name.
pub(crate) fn hash(revision: &ControllerRevision) -> &str {
    revision.labels.get(REVISION_LABEL).unwrap_or(&revision.meta.name)
}

/// The oldest revisions that are over the limit. Those that pods have stay, and count (`cleanupHistory`).
pub(crate) fn surplus<'a>(
    older: &'a [Arc<ControllerRevision>],
    limit: i32,
    hashes_of_pods: &'a HashSet<&str>,
) -> impl Iterator<Item = &'a Arc<ControllerRevision>> {
    let count = older.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    older.iter().filter(|it| !hashes_of_pods.contains(hash(it))).take(count)
}

#[cfg(test)]
mod tests {
    use api::Cached;
    use serde_json::json;

    use super::*;

    fn revision(number: i64, data: &str) -> Arc<ControllerRevision> {
        let object = json!({ "metadata": { "name": format!("ds-{number}"), "namespace": "n", "uid": format!("u{number}"),
            "resourceVersion": "1", "labels": { REVISION_LABEL: number.to_string() } },
            "revision": number, "data": { "of": data } });
        Arc::new(ControllerRevision::decode_object(object.to_string().as_bytes()).unwrap())
    }

    fn data(of: &str) -> String {
        json!({ "of": of }).to_string()
    }

    #[test]
    fn a_new_template_gets_the_next_number() {
        assert_eq!(current(&[], &data("a")), Current::Create { number: 1 });
        assert_eq!(current(&[revision(4, "a")], &data("b")), Current::Create { number: 5 });
    }

    #[test]
    fn acceptance_ds_046_a_rollback_gives_the_known_revision_the_highest_number() {
        let all = [revision(1, "a"), revision(2, "b")];
        let known = |at, number| Current::Exists { at, number, duplicates: Vec::new() };
        assert_eq!(current(&all, &data("b")), known(1, None));
        assert_eq!(current(&all, &data("a")), known(0, Some(3)));
        assert_eq!(current(&all[..1], &data("a")), known(0, None));
    }

    #[test]
    fn acceptance_ds_062_of_equal_revisions_the_highest_number_stays() {
        let all = [revision(1, "a"), revision(2, "b"), revision(3, "a"), revision(5, "a")];
        let want = Current::Exists { at: 3, number: None, duplicates: vec![0, 2] };
        assert_eq!(current(&all, &data("a")), want);
    }

    #[test]
    fn acceptance_ds_064_the_oldest_revisions_without_pods_are_over_the_limit() {
        let older = [revision(1, "a"), revision(2, "b"), revision(3, "c")];
        let deleted = |limit: i32, live: &[&str]| {
            let live = live.iter().copied().collect();
            surplus(&older, limit, &live).map(|it| it.revision).collect::<Vec<_>>()
        };
        assert_eq!(deleted(1, &["1"]), [2, 3]);
        assert_eq!(deleted(2, &["1"]), [2], "a revision with pods counts");
        assert_eq!(deleted(3, &[]), [0i64; 0]);
        assert_eq!(deleted(0, &[]), [1, 2, 3]);
    }
}
