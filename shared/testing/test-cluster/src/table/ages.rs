use clock::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// How long ago a time was; `<unknown>` when it is missing.
pub(super) fn since(time: &Value, now: Timestamp) -> String {
    match parse(time) {
        Some(time) => duration(now.as_second() - time.as_second(), now.subsec_nanosecond() - time.subsec_nanosecond()),
        None => "<unknown>".into(),
    }
}

/// How long it took from one time to another.
pub(super) fn between(start: Timestamp, end: Timestamp) -> String {
    duration(end.as_second() - start.as_second(), end.subsec_nanosecond() - start.subsec_nanosecond())
}

pub(super) fn parse(time: &Value) -> Option<Timestamp> {
    time.as_str()?.parse().ok()
}

/// A duration in at most two units; everything is truncated.
fn duration(seconds: i64, nanoseconds: i32) -> String {
    // Rounded towards zero: half a second before now is zero seconds.
    let seconds = match (seconds, nanoseconds) {
        (1.., ..0) => seconds - 1,
        (..=-1, 1..) => seconds + 1,
        _ => seconds,
    };
    let two = |large: i64, unit: &str, small: i64, part: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{part}") }
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds / HOUR, "h", seconds / MINUTE % 60, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds / DAY, "d", seconds / HOUR % 24, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(seconds / YEAR, "y", seconds / DAY % 365, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}
