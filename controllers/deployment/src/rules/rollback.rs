//! The rollback of a removed API: an annotation names the revision to which the template returns. `kubectl rollout undo`
//! does not need it.

use crate::rules::annotations::ROLLBACK_TO;

/// What the annotation demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rollback {
    /// The template and annotations of this ReplicaSet.
    To {
        /// Its position.
        at: usize,
        /// Its revision.
        revision: i64,
    },
    /// The revision has the present template already.
    Unchanged,
    /// There is no such revision. The message is upstream's.
    NotFound(&'static str),
}

/// A revision and the position of its ReplicaSet; `None` for the one with the present template.
pub(crate) type Revision = (i64, Option<usize>);

/// The revision in the annotation: 0 means the last one. A text that is no number is ignored.
pub(crate) fn requested(annotations: &api::Labels) -> Option<i64> {
    annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// Finds the ReplicaSet of a requested revision (`rollback`).
pub(crate) fn find(requested: i64, revisions: &[Revision]) -> Rollback {
    let revision = if requested == 0 { last(revisions) } else { requested };
    if revision == 0 {
        return Rollback::NotFound("Unable to find last revision.");
    }
    match revisions.iter().find(|(it, _)| *it == revision) {
        Some((_, Some(at))) => Rollback::To { at: *at, revision },
        Some((_, None)) => Rollback::Unchanged,
        None => Rollback::NotFound("Unable to find the revision to rollback to."),
    }
}

/// The second highest revision; 0 if there is none (`LastRevision`).
fn last(revisions: &[Revision]) -> i64 {
    let (mut highest, mut second) = (0, 0);
    for (revision, _) in revisions {
        if *revision >= highest {
            (highest, second) = (*revision, highest);
        } else if *revision > second {
            second = *revision;
        }
    }
    second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_deploy_059_060_the_requested_revision_is_found() {
        let revisions = [(1, Some(0)), (3, Some(2)), (4, None)];
        for (requested, want) in [
            (0, Rollback::To { at: 2, revision: 3 }),
            (1, Rollback::To { at: 0, revision: 1 }),
            (4, Rollback::Unchanged),
            (2, Rollback::NotFound("Unable to find the revision to rollback to.")),
        ] {
            assert_eq!(find(requested, &revisions), want, "{requested}");
        }
        assert_eq!(find(0, &[(1, None)]), Rollback::NotFound("Unable to find last revision."));
    }

    #[test]
    fn acceptance_deploy_060_an_annotation_that_is_no_number_is_ignored() {
        let annotation = |text: &str| requested(&[(ROLLBACK_TO.into(), text.into())].into_iter().collect());
        assert_eq!((annotation("0"), annotation("7"), annotation("x"), annotation("")), (Some(0), Some(7), None, None));
        assert_eq!(requested(&api::Labels::default()), None);
    }
}
