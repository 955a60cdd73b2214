//! The order and the number of revisions, and which of them are surplus. Pure.

use std::sync::Arc;

use api::ControllerRevision;

use crate::is_same_data;

/// Sorts revisions by number, then by creation, older first, then by name. The order must be the same in each sync: a
/// different one made workloads change between two revisions without end (k/k#69967).
pub fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| (a.revision, a.creation, &a.meta.name).cmp(&(b.revision, b.creation, &b.meta.name)));
}

/// The number for a new revision: one more than the highest, and 1 for the first.
#[must_use]
pub fn next_number(sorted: &[Arc<ControllerRevision>]) -> i64 {
    sorted.iter().map(|it| it.revision).max().map_or(1, |it| it.saturating_add(1))
}

/// The positions of the revisions with this data, in their order.
#[must_use]
pub fn find_equal(sorted: &[Arc<ControllerRevision>], data: &str) -> Vec<usize> {
    let equal = sorted.iter().enumerate().filter(|(_, it)| is_same_data(&it.data, data));
    equal.map(|(at, _)| at).collect()
}

/// The oldest revisions that are over the limit. Revisions that are in use do not count and stay. A negative limit
/// keeps all.
#[must_use]
pub fn surplus(
    sorted: &[Arc<ControllerRevision>],
    limit: i32,
    is_in_use: impl Fn(&ControllerRevision) -> bool,
) -> Vec<Arc<ControllerRevision>> {
    let Ok(limit) = usize::try_from(limit) else { return Vec::new() };
    let mut unused: Vec<Arc<ControllerRevision>> = sorted.iter().filter(|it| !is_in_use(it)).cloned().collect();
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}

#[cfg(test)]
mod tests {
    use api::Meta;

    use super::*;

    fn revision(number: i64, creation: i64, name: &str) -> Arc<ControllerRevision> {
        let meta = Meta { name: name.into(), namespace: "n".into(), ..Meta::default() };
        let data = format!("{{\"of\":\"{name}\"}}").into();
        Arc::new(ControllerRevision {
            meta,
            labels: Default::default(),
            creation: Some(creation),
            data,
            revision: number,
        })
    }

    fn name_list(revisions: &[Arc<ControllerRevision>]) -> Vec<&str> {
        revisions.iter().map(|it| &*it.meta.name).collect()
    }

    #[test]
    fn acceptance_common_031_revisions_are_sorted_by_number_creation_and_name() {
        let mut all = [revision(2, 1, "b"), revision(2, 1, "a"), revision(1, 9, "z")];
        sort(&mut all);
        assert_eq!(name_list(&all), ["z", "a", "b"]);
        let mut all = [revision(2, 5, "a"), revision(2, 1, "b")];
        sort(&mut all);
        assert_eq!(name_list(&all), ["b", "a"]);
    }

    #[test]
    fn a_new_revision_has_the_next_number() {
        assert_eq!(next_number(&[]), 1);
        assert_eq!(next_number(&[revision(3, 1, "a"), revision(7, 1, "b")]), 8);
    }

    #[test]
    fn equal_revisions_are_found_in_their_order() {
        let all = [revision(1, 1, "a"), revision(2, 1, "b"), revision(3, 1, "a")];
        assert_eq!(find_equal(&all, "{ \"of\": \"a\" }"), [0, 2]);
        assert_eq!(find_equal(&all, "{}"), [0usize; 0]);
    }

    #[test]
    fn the_oldest_unused_revisions_are_surplus() {
        let all = [revision(1, 1, "a"), revision(2, 1, "b"), revision(3, 1, "c"), revision(4, 1, "d")];
        let is_in_use = |it: &ControllerRevision| &*it.meta.name == "b" || &*it.meta.name == "d";
        for (limit, want) in [(2, &[][..]), (1, &["a"]), (0, &["a", "c"]), (-1, &[])] {
            assert_eq!(name_list(&surplus(&all, limit, is_in_use)), want, "{limit}");
        }
    }
}
