use serde::{Deserialize, Deserializer};

/// A number, or a percentage of a total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntOrPercent {
    /// A number.
    Int(i32),
    /// A text, which should be a percentage such as `30%`.
    Text(Box<str>),
}

impl IntOrPercent {
    /// The number, or so many percent of `total`, rounded down. `None` for a text that is no percentage. A negative
    /// number is zero.
    #[must_use]
    pub fn scaled_down(&self, total: usize) -> Option<usize> {
        self.scaled(total, 0)
    }

    /// The same, rounded up.
    #[must_use]
    pub fn scaled_up(&self, total: usize) -> Option<usize> {
        self.scaled(total, 99)
    }

    /// `added` decides how hundredths are rounded.
    fn scaled(&self, total: usize, added: usize) -> Option<usize> {
        match self {
            Self::Int(number) => Some(usize::try_from(*number).unwrap_or_default()),
            Self::Text(text) => {
                let percent: usize = text.strip_suffix('%')?.parse().ok()?;
                Some(percent.saturating_mul(total).saturating_add(added) / 100)
            }
        }
    }
}

impl<'de> Deserialize<'de> for IntOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Wire {
            Int(i32),
            Text(Box<str>),
        }
        Ok(match Wire::deserialize(deserializer)? {
            Wire::Int(number) => Self::Int(number),
            Wire::Text(text) => Self::Text(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_and_other_texts_are_no_number() {
        let rows = [("3", 10, Some((3, 3))), ("-1", 10, Some((0, 0))), ("\"50%\"", 3, Some((1, 2)))];
        let more = [("\"30%\"", 10, Some((3, 3))), ("\"0%\"", 7, Some((0, 0))), ("\"half\"", 7, None)];
        for (text, total, want) in rows.into_iter().chain(more) {
            let value: IntOrPercent = serde_json::from_str(text).unwrap();
            assert_eq!(value.scaled_down(total).zip(value.scaled_up(total)), want, "{text}");
        }
    }
}
