use std::{io::Write, time::Duration};

/// Prints a line to the real stderr, which the test harness does not capture, so that it is always visible.
pub fn report(line: &str) {
    // A closed stderr must not make a test fail.
    let _ = writeln!(std::io::stderr(), "E2E: {line}");
}

/// Measured durations, summarised by median and maximum.
#[derive(Debug, Default)]
pub struct Figures(Vec<Duration>);

impl Figures {
    /// Adds one.
    pub fn add(&mut self, figure: Duration) {
        self.0.push(figure);
    }

    /// The median; the greater of the two middle ones.
    #[must_use]
    pub fn median(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The longest.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }

    /// Prints a summary.
    pub fn print(&self, what: &str) {
        report(&format!("{what}: {} rounds, median {:?}, worst {:?}", self.0.len(), self.median(), self.worst()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_median_and_worst() {
        let mut figures = Figures::default();
        for millis in [30, 10, 20] {
            figures.add(Duration::from_millis(millis));
        }
        assert_eq!((figures.median(), figures.worst()), (Duration::from_millis(20), Duration::from_millis(30)));
        assert_eq!(Figures::default().median(), Duration::ZERO);
    }
}
