use std::ops::Range;

/// Batches of growing size (upstream's `slowStartBatch`): each is twice as large as the one before, so that a
/// persistent failure, such as a used-up quota or a rejecting webhook, costs few calls. The caller must stop after a
/// batch with a failure.
#[derive(Debug, Clone)]
pub struct SlowStart {
    total: usize,
    next: usize,
    size: usize,
}

impl SlowStart {
    /// Batches for `total` calls. The first has `first_size` calls, the number that succeeded before, and at least one.
    #[must_use]
    pub fn new(total: usize, first_size: usize) -> Self {
        Self { total, next: 0, size: first_size.max(1) }
    }

    /// The range of the next calls; `None` when all were returned.
    pub fn next_batch(&mut self) -> Option<Range<usize>> {
        let end = self.total.min(self.next.saturating_add(self.size));
        let batch = self.next..end;
        self.next = end;
        self.size = self.size.saturating_mul(2);
        (!batch.is_empty()).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(total: usize, first_size: usize) -> Vec<usize> {
        let mut batches = SlowStart::new(total, first_size);
        std::iter::from_fn(|| batches.next_batch()).map(|it| it.len()).collect()
    }

    #[test]
    fn batches_double_until_all_calls_are_made() {
        assert_eq!(sizes(10, 0), [1, 2, 4, 3]);
        assert_eq!(sizes(1, 0), [1]);
        assert_eq!(sizes(0, 0), [0; 0]);
    }

    #[test]
    fn the_first_batch_has_the_given_size() {
        assert_eq!(sizes(500, 500), [500]);
        assert_eq!(sizes(20, 4), [4, 8, 8]);
        assert_eq!(sizes(3, 500), [3]);
    }

    #[test]
    fn batches_contain_every_call_once_and_in_order() {
        let mut batches = SlowStart::new(100, 3);
        let all: Vec<usize> = std::iter::from_fn(|| batches.next_batch()).flatten().collect();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
