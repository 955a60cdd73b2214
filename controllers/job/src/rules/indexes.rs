//! Sets of completion indexes, stored as ranges like in the API.

use std::fmt::{self, Write};

/// A set of indexes: ascending ranges that neither touch nor overlap.
///
/// The cost grows with the number of ranges and not of indexes. A Job starts the lowest indexes first, so a hundred
/// thousand completed indexes are only a few ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Indexes(Vec<Run>);

/// From `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u32,
    last: u32,
}

impl Indexes {
    /// Parses the text of a status or a policy. Indexes of `completions` and above are ignored, and parsing stops at
    /// the first range that starts there. Parts that do not parse are skipped.
    pub(crate) fn parse(text: &str, completions: u32) -> Self {
        let mut runs = Vec::new();
        for piece in text.split(',') {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let Ok(first) = first.parse::<u32>() else { continue };
            if first >= completions {
                break;
            }
            // A part with more than one dash is read by its first two numbers.
            let last = last.split('-').next().unwrap_or_default();
            let Ok(last) = last.parse::<u32>() else { continue };
            if last >= first {
                runs.push(Run { first, last: last.min(completions - 1) });
            }
        }
        if !runs.is_sorted_by_key(|it| it.first) {
            runs.sort_by_key(|it| it.first);
        }
        Self::joined(runs.into_iter())
    }

    /// The set of these indexes, which must ascend.
    pub(crate) fn of(ascending: impl IntoIterator<Item = u32>) -> Self {
        Self::joined(ascending.into_iter().map(|it| Run { first: it, last: it }))
    }

    /// The indexes that are in either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        if other.0.is_empty() {
            return self.clone();
        }
        let (mut ours, mut theirs) = (self.0.iter().copied().peekable(), other.0.iter().copied().peekable());
        Self::joined(std::iter::from_fn(|| match (ours.peek(), theirs.peek()) {
            (Some(our), Some(their)) if our.first <= their.first => ours.next(),
            (_, Some(_)) => theirs.next(),
            (_, None) => ours.next(),
        }))
    }

    /// Whether `index` is in the set.
    pub(crate) fn contains(&self, index: u32) -> bool {
        let at = self.0.partition_point(|it| it.last < index);
        self.0.get(at).is_some_and(|it| it.first <= index)
    }

    /// The number of indexes in the set.
    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(Run::len).sum()
    }

    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of indexes that are in both sets.
    pub(crate) fn common_count(&self, other: &Self) -> u32 {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = 0;
        while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
            let (first, last) = (our.first.max(their.first), our.last.min(their.last));
            common += (last + 1).saturating_sub(first);
            if our.last <= their.last {
                ours.next()
            } else {
                theirs.next()
            };
        }
        common
    }

    /// The lowest indexes below `completions` that are not in the set, at most `wanted`, in ascending order.
    pub(crate) fn lowest_free(&self, completions: u32, wanted: usize) -> Vec<u32> {
        let mut free = Vec::with_capacity(wanted.min(completions as usize));
        let mut next = 0;
        for Run { first, last } in &self.0 {
            free.extend((next..(*first).min(completions)).take(wanted - free.len()));
            next = last + 1;
        }
        free.extend((next..completions).take(wanted - free.len()));
        free
    }

    /// Joins ranges that ascend by their first index.
    fn joined(runs: impl Iterator<Item = Run>) -> Self {
        let mut joined: Vec<Run> = Vec::new();
        for run in runs {
            match joined.last_mut() {
                Some(before) if run.first <= before.last.saturating_add(1) => before.last = before.last.max(run.last),
                _ => joined.push(run),
            }
        }
        Self(joined)
    }
}

impl Run {
    fn len(&self) -> u32 {
        self.last - self.first + 1
    }
}

/// The format of the API: a range of three or more as `a-b`, of two as `a,b`.
impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, run) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_char(',')?;
            }
            match run.len() {
                1 => write!(f, "{}", run.first)?,
                2 => write!(f, "{},{}", run.first, run.last)?,
                _ => write!(f, "{}-{}", run.first, run.last)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
