use std::time::Duration;

use clock::Timestamp;
use serde_json::Value;

/// The oldest supported minor version of the API server. It has all kinds and subresources that our controllers write,
/// in a final version.
pub(super) const OLDEST: u32 = 34;
/// The newest minor version whose flags, gates and kinds are known.
pub(super) const NEWEST: u32 = 37;
/// The Date header has a resolution of one second.
const DATE_RESOLUTION: Duration = Duration::from_secs(1);

/// The result of the version check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VersionSupport {
    /// A supported version.
    Known,
    /// It may lack kinds or subresources that our controllers write.
    TooOld(String),
    /// It may have features that we do not know.
    TooNew(String),
    /// The answer contains no version.
    Unknown,
}

/// Checks the answer of `/version`.
#[must_use]
pub(super) fn version(answer: &[u8]) -> VersionSupport {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    // Some providers append a plus sign: `33+`.
    let number = |field: &str| -> Option<u32> {
        let text = answer[field].as_str()?;
        text.trim_end_matches(|it: char| !it.is_ascii_digit()).parse().ok()
    };
    let (Some(major), Some(minor)) = (number("major"), number("minor")) else { return VersionSupport::Unknown };
    let full = answer["gitVersion"].as_str().map_or_else(|| format!("v{major}.{minor}"), str::to_owned);
    match (major, minor) {
        (0, _) | (1, ..OLDEST) => VersionSupport::TooOld(full),
        (1, OLDEST..=NEWEST) => VersionSupport::Known,
        _ => VersionSupport::TooNew(full),
    }
}

/// By how many seconds our clock is ahead of the server's, negative when it is behind. This is the smallest possible
/// difference: the server read its time between `sent` and `received`.
#[must_use]
pub(super) fn ahead(server: Timestamp, sent: Timestamp, received: Timestamp) -> f64 {
    // The server's time may be up to one second later than its header.
    let (earliest, latest) = (server.as_second() as f64, server.as_second() as f64 + DATE_RESOLUTION.as_secs_f64());
    let seconds = |it: Timestamp| it.as_millisecond() as f64 / 1_000.0;
    let (sent, received) = (seconds(sent), seconds(received));
    if sent > latest {
        sent - latest
    } else if received < earliest {
        received - earliest
    } else {
        0.0
    }
}

/// Converts a time of a clock that is `ahead` seconds fast into the server's time.
#[must_use]
pub(super) fn server_time(time: Timestamp, ahead: f64) -> Timestamp {
    let by = Duration::try_from_secs_f64(ahead.abs()).unwrap_or_default();
    let shifted = if ahead < 0.0 { time.checked_add(by) } else { time.checked_sub(by) };
    shifted.unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_1_34_to_1_37_are_known() {
        let of = |major: &str, minor: &str, full: &str| {
            version(format!(r#"{{"major":"{major}","minor":"{minor}","gitVersion":"{full}"}}"#).as_bytes())
        };
        assert_eq!(of("1", "33", "v1.33.9"), VersionSupport::TooOld("v1.33.9".to_owned()));
        assert_eq!(of("1", "34", "v1.34.0"), VersionSupport::Known);
        assert_eq!(of("1", "36+", "v1.36.2-gke.1"), VersionSupport::Known);
        assert_eq!(of("1", "37", "v1.37.0"), VersionSupport::Known);
        assert_eq!(of("1", "38", "v1.38.0-alpha.1"), VersionSupport::TooNew("v1.38.0-alpha.1".to_owned()));
        assert_eq!(of("2", "0", "v2.0.0"), VersionSupport::TooNew("v2.0.0".to_owned()));
        for unknown in ["", "{}", r#"{"major":1,"minor":36}"#, r#"{"major":"one","minor":"x"}"#] {
            assert_eq!(version(unknown.as_bytes()), VersionSupport::Unknown, "{unknown}");
        }
    }

    #[test]
    fn clock_difference_is_what_the_delay_does_not_explain() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (name, server, sent, received, want) in [
            ("equal", "00:00:10Z", "00:00:10.2Z", "00:00:10.4Z", 0.0),
            ("within the server's second", "00:00:10Z", "00:00:10.9Z", "00:00:11.1Z", 0.0),
            ("explained by a slow response", "00:00:10Z", "00:00:05Z", "00:00:20Z", 0.0),
            ("ours is ahead", "00:00:10Z", "00:00:31Z", "00:00:31.5Z", 20.0),
            ("ours is behind", "00:00:40Z", "00:00:09Z", "00:00:10Z", -30.0),
        ] {
            let [server, sent, received] = [server, sent, received].map(|it| at(&format!("2026-01-01T{it}")));
            assert!((ahead(server, sent, received) - want).abs() < 1e-6, "{name}");
            // A time from our clock differs from the server's by one second at most after the conversion.
            let sent = server_time(sent, want);
            assert!(want.abs() < 1e-6 || server.duration_since(sent).as_secs().abs() <= 1, "{name}: {sent}");
        }
    }
}
