use std::time::Duration;

use api::duration;

pub use api::duration::show as show_duration;

/// The error for an invalid duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text has not the syntax of Go.
    #[error(transparent)]
    Syntax(#[from] duration::Error),
    /// The duration is negative, which no flag allows.
    #[error("duration {0:?} must not be negative")]
    Negative(String),
}

/// Parses a duration in Go's syntax: `1h30m`, `1.5s`, `100ms`, `0`.
///
/// # Errors
/// As [`DurationError`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let nanos = duration::parse(text)?;
    let nanos = u64::try_from(nanos).map_err(|_| DurationError::Negative(text.to_owned()))?;
    Ok(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_like_go() {
        for (text, nanos) in [("0", 0), ("-0", 0), ("3h30m", 12_600_000_000_000), ("9223372036854775807ns", i64::MAX)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos.unsigned_abs())), "{text}");
        }
        assert_eq!(parse_duration("-5s"), Err(DurationError::Negative("-5s".to_owned())));
        assert_eq!(parse_duration("-0s"), Ok(Duration::ZERO));
        let error = |text: &str| parse_duration(text).map_err(|it| it.to_string());
        assert_eq!(error("5"), Err("time: missing unit in duration \"5\"".to_owned()));
        assert_eq!(error("9223372036854775808ns"), Err("time: invalid duration \"9223372036854775808ns\"".to_owned()));
    }
}
