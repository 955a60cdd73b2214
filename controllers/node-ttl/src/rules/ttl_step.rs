//! The value that follows from the number of nodes, with hysteresis. Pure.

/// The range of a step in nodes, and its value in seconds.
struct Bounds {
    lower: usize,
    upper: usize,
    seconds: u32,
}

/// The ranges overlap, so that a node more or less does not change the value back and forth.
const STEPS: [Bounds; 5] = [
    Bounds { lower: 0, upper: 100, seconds: 0 },
    Bounds { lower: 90, upper: 500, seconds: 15 },
    Bounds { lower: 450, upper: 1000, seconds: 30 },
    Bounds { lower: 900, upper: 2000, seconds: 60 },
    Bounds { lower: 1800, upper: usize::MAX, seconds: 300 },
];

/// One of the steps; at first the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TtlStep(usize);

impl TtlStep {
    /// The step for this number of nodes. A step whose range contains the number stays.
    pub(crate) fn after(mut self, nodes: usize) -> Self {
        while nodes > STEPS[self.0].upper {
            self.0 += 1;
        }
        while nodes < STEPS[self.0].lower {
            self.0 -= 1;
        }
        self
    }

    /// The value of the annotation.
    pub(crate) fn seconds(self) -> u32 {
        STEPS[self.0].seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number of nodes with the value that it leads to, one after the other.
    fn check(rows: &[(usize, u32)]) {
        let mut step = TtlStep::default();
        for (nodes, seconds) in rows {
            step = step.after(*nodes);
            assert_eq!(step.seconds(), *seconds, "{nodes} nodes, in {rows:?}");
        }
    }

    #[test]
    fn acceptance_small_003_eleven_of_101_nodes_may_go_before_the_value_changes_back() {
        check(&[(100, 0), (101, 15), (90, 15), (89, 0)]);
    }

    #[test]
    fn acceptance_small_004_with_less_than_1800_nodes_the_value_is_60_again() {
        check(&[(2001, 300), (1800, 300), (1799, 60)]);
    }

    #[test]
    fn each_step_begins_above_its_range_and_ends_below_it() {
        check(&[(500, 15), (501, 30), (450, 30), (449, 15), (1000, 15 + 15), (1001, 60), (900, 60), (899, 30)]);
    }

    #[test]
    fn several_steps_at_once_lead_to_the_same_value_as_one_node_after_the_other() {
        let one_by_one = |from: usize, to: usize, step: TtlStep| {
            if from < to {
                (from..=to).fold(step, TtlStep::after)
            } else {
                (to..=from).rev().fold(step, TtlStep::after)
            }
        };
        let numbers = [0, 89, 90, 95, 100, 101, 449, 475, 501, 899, 950, 1001, 1799, 1900, 2001];
        for from in numbers {
            for to in numbers {
                let at_first = one_by_one(0, from, TtlStep::default());
                assert_eq!(at_first.after(to), one_by_one(from, to, at_first), "from {from} to {to}");
            }
        }
    }
}
