use clock::Timestamp;
use jiff::SignedDuration;
use serde_json::Value;

/// The minute in which a run began. Times of schedules are shown relative to it.
#[derive(Debug, Clone, Copy)]
pub struct Zero(i64);

impl Zero {
    /// The present minute.
    #[must_use]
    pub fn of(now: Timestamp) -> Self {
        Self(now.as_second().div_euclid(60))
    }

    /// Replaces variables of a script: `$minute-10` is the minute of the hour ten minutes ago, `$hour-10` its hour,
    /// `$time-10` that time.
    #[must_use]
    pub fn fill(self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill_text(text)),
            Value::Array(items) => items.iter().map(|it| self.fill(it)).collect(),
            Value::Object(map) => map.iter().map(|(key, it)| (key.clone(), self.fill(it))).collect(),
            other => other.clone(),
        }
    }

    pub(super) fn fill_text(self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            filled += &rest[..at];
            rest = &rest[at..];
            let end = rest[1..].find(|it: char| !it.is_alphanumeric() && it != '-' && it != '+');
            let (variable, behind) = rest.split_at(end.map_or(rest.len(), |it| it + 1));
            filled += &self.variable(variable).unwrap_or_else(|| variable.to_owned());
            rest = behind;
        }
        filled + rest
    }

    fn variable(self, variable: &str) -> Option<String> {
        let (name, minutes) = variable[1..].split_at(variable[1..].find(['-', '+'])?);
        let at = Timestamp::from_second((self.0 + minutes.parse::<i64>().ok()?) * 60).ok()?;
        match name {
            "minute" => Some(at.strftime("%-M").to_string()),
            "hour" => Some(at.strftime("%-H").to_string()),
            "time" => Some(at.to_string()),
            "number" => Some((at.as_second() / 60).to_string()),
            _ => None,
        }
    }

    /// A time of a schedule as its distance; `None` if the text is not a time.
    #[must_use]
    pub(super) fn relative(self, text: &str) -> Option<String> {
        let at: Timestamp = text.parse().ok()?;
        let zone = text.find('T').and_then(|t| text[t..].find(['Z', '+', '-']).map(|it| &text[t + it..]))?;
        let seconds = at.duration_since(Timestamp::from_second(self.0 * 60).ok()?);
        (seconds.as_secs() % 60 == 0 && seconds.abs() < SignedDuration::from_hours(24 * 366))
            .then(|| format!("<{:+} min {zone}>", seconds.as_secs() / 60))
    }

    /// The minute at the end of a Job's name.
    #[must_use]
    pub(super) fn relative_number(self, number: &str) -> Option<String> {
        let at: i64 = number.parse().ok().filter(|_| number.len() == 8)?;
        Some(format!("<{:+} min>", at - self.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_filled_in_and_shown_relative_to_the_run() {
        let zero = Zero::of("2026-05-19T10:00:30Z".parse().unwrap());
        let value = json!({ "schedule": "$minute-10 $hour-10 * * *", "at": ["$time-10", 1], "name": "a-$number-10" });
        let want = json!({ "schedule": "50 9 * * *", "at": ["2026-05-19T09:50:00Z", 1], "name": "a-29653070" });
        assert_eq!(zero.fill(&value), want);
        assert_eq!(zero.relative("2026-05-19T11:50:00+02:00").as_deref(), Some("<-10 min +02:00>"));
        assert_eq!(zero.relative("2026-05-19T10:01:00Z").as_deref(), Some("<+1 min Z>"));
        assert_eq!(zero.relative_number("29653081").as_deref(), Some("<+1 min>"));
        assert_eq!(zero.relative("soon"), None);
    }
}
