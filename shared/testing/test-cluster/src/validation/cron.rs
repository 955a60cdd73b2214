//! Validates cron schedules.

/// # Errors
/// A real server's message for an invalid schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if let Some(interval) = schedule.strip_prefix("@every ") {
        return if is_duration(interval) {
            Ok(())
        } else {
            Err(format!("failed to parse duration {schedule}: time: invalid duration {interval:?}"))
        };
    }
    if schedule.starts_with('@') {
        let known = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
        return if known.contains(&schedule) { Ok(()) } else { Err(format!("unrecognized descriptor: {schedule}")) };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let bounds = [(0, 59, &[][..]), (0, 23, &[]), (1, 31, &[]), (1, 12, &MONTHS), (0, 6, &DAYS)];
    for (field, (least, most, names)) in fields.into_iter().zip(bounds) {
        for part in field.split(',') {
            range(part, least, most, names)?;
        }
    }
    Ok(())
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// One range: `*`, `5`, `1-5`, each optionally with a step.
fn range(text: &str, least: u32, most: u32, names: &[&str]) -> Result<(), String> {
    let (span, step) = text.split_once('/').map_or((text, None), |it| (it.0, Some(it.1)));
    if text.matches('/').count() > 1 {
        return Err(format!("too many slashes: {text}"));
    }
    if span.matches('-').count() > 1 {
        return Err(format!("too many hyphens: {text}"));
    }
    let value = |text: &str| {
        let named = names.iter().position(|it| text.eq_ignore_ascii_case(it)).and_then(|it| u32::try_from(it).ok());
        named.map_or_else(|| number(text), |it| Ok(it + if names.len() == MONTHS.len() { 1 } else { 0 }))
    };
    let (first, last) = if matches!(span, "*" | "?") {
        (least, most)
    } else {
        let (first, last) = span.split_once('-').map_or((span, None), |it| (it.0, Some(it.1)));
        let first = value(first)?;
        let last = match last {
            Some(last) => value(last)?,
            // A start with a step but without an end means until the end of the field.
            None if step.is_some() => most,
            None => first,
        };
        (first, last)
    };
    if let Some(step) = step
        && number(step)? == 0
    {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    if first < least {
        return Err(format!("beginning of range ({first}) below minimum ({least}): {text}"));
    }
    if last > most {
        return Err(format!("end of range ({last}) above maximum ({most}): {text}"));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {text}"));
    }
    Ok(())
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) => u32::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")),
    }
}

/// A duration in Go's syntax, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !(it.is_ascii_digit() || it == '.')).unwrap_or(rest.len());
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"].into_iter().find(|it| {
            let after = rest[digits..].strip_prefix(it);
            after.is_some_and(|it| it.is_empty() || it.starts_with(|it: char| it.is_ascii_digit() || it == '.'))
        });
        let (Some(unit), true) = (unit, digits > 0) else { return false };
        rest = &rest[digits + unit.len()..];
        any = true;
    }
    any
}

/// Regions of the time zone database. The city is not checked.
const REGIONS: [&str; 12] = [
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Brazil",
    "Etc",
    "Europe",
    "Indian",
    "Pacific",
];

pub(super) fn is_zone(name: &str) -> bool {
    let region = name.split('/').next().unwrap_or_default();
    match name.split_once('/') {
        Some((_, city)) => !city.is_empty() && (REGIONS.contains(&region) || region == "US" || region == "Canada"),
        None => ["UTC", "GMT", "UCT", "Zulu", "CET", "EET", "MET", "WET", "EST", "MST", "HST"].contains(&name),
    }
}
