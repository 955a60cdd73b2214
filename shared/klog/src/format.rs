//! A line's text. The header and the quoting are klog's textlogger; the object is that of component-base's JSON logger.

use std::{fmt::Write as _, sync::Arc};

use clock::{Clock, Timestamp};
use jiff::tz::TimeZone;
use tracing::{Level, Metadata};

use crate::{
    Format, Verbosity,
    filter::{FLAG, needed},
    values::{Pair, Value, once},
};

/// Turns what was said into a line, with the time of now.
#[derive(Debug, Clone)]
pub(crate) struct Formatter {
    format: Format,
    clock: Clock,
    /// Where people read the clock; text only.
    zone: Arc<TimeZone>,
    process: u32,
}

/// Where and how loud something was said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) severity: Level,
    pub(crate) verbosity: Verbosity,
    /// A path with `/`.
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    /// The message stands as it is, without quotes.
    pub(crate) bare: bool,
}

impl<'a> Place<'a> {
    pub(crate) fn of(place: &Metadata<'a>) -> Self {
        Self {
            severity: *place.level(),
            verbosity: needed(place).unwrap_or(0),
            file: place.file().unwrap_or("???"),
            line: place.line().unwrap_or(1),
            bare: place.target() == FLAG,
        }
    }
}

impl Formatter {
    pub(crate) fn new(format: Format, clock: Clock) -> Self {
        Self { format, clock, zone: Arc::new(TimeZone::system()), process: std::process::id() }
    }

    #[cfg(test)]
    pub(crate) fn fixed(format: Format, clock: Clock, zone: TimeZone) -> Self {
        Self { format, clock, zone: Arc::new(zone), process: 1234 }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Appends one line with its end: what the place says, within `context`, root first.
    pub(crate) fn write(&self, line: &mut String, place: Place<'_>, context: &[Pair], message: &str, pairs: &[Pair]) {
        let at = self.clock.wall();
        match self.format {
            Format::Text => self.text(line, at, place, context, message, pairs),
            Format::Json => json(line, at, place, context, message, pairs),
        }
        line.push('\n');
    }

    fn text(&self, to: &mut String, at: Timestamp, place: Place<'_>, context: &[Pair], message: &str, pairs: &[Pair]) {
        let local = self.zone.to_datetime(at);
        let severity = match place.severity {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let file = named(place.file);
        // Writing into a string cannot fail.
        let _ = write!(
            to,
            "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:>7} {file}:{}] ",
            local.month(),
            local.day(),
            local.hour(),
            local.minute(),
            local.second(),
            local.subsec_nanosecond() / 1_000,
            self.process,
            place.line,
        );
        match place.bare {
            true => to.push_str(message),
            false => quote(to, message),
        }
        let (errors, rest): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|it| it.0 == "err");
        for (name, value) in once(errors.into_iter().chain(context).chain(rest)) {
            let _ = write!(to, " {name}=");
            match value {
                Value::Plain(text) => to.push_str(text),
                Value::Text(text) if text.contains('\n') => indent(to, text),
                Value::Text(text) => quote(to, text),
            }
        }
    }
}

/// Several lines: each behind a tab, the end on a line of its own.
fn indent(to: &mut String, text: &str) {
    to.push_str("<\n");
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        to.push('\t');
        to.push_str(line);
        to.push('\n');
    }
    to.push_str(" >");
}

/// As Go's `strconv.Quote`.
fn quote(to: &mut String, text: &str) {
    to.push('"');
    for letter in text.chars() {
        let code = u32::from(letter);
        // Writing into a string cannot fail.
        let _ = match letter {
            '"' => to.write_str("\\\""),
            '\\' => to.write_str("\\\\"),
            // Most of what is ever said.
            ' '..='~' => to.write_char(letter),
            '\u{7}' => to.write_str("\\a"),
            '\u{8}' => to.write_str("\\b"),
            '\u{c}' => to.write_str("\\f"),
            '\n' => to.write_str("\\n"),
            '\r' => to.write_str("\\r"),
            '\t' => to.write_str("\\t"),
            '\u{b}' => to.write_str("\\v"),
            '\0'..='\u{7f}' => write!(to, "\\x{code:02x}"),
            _ if is_printable(letter) => to.write_char(letter),
            '\u{80}'..='\u{ffff}' => write!(to, "\\u{code:04x}"),
            _ => write!(to, "\\U{code:08x}"),
        };
    }
    to.push('"');
}

/// Beyond ASCII. Behind another letter, so that what combines with one is not taken for a letter without.
fn is_printable(letter: char) -> bool {
    let mut bytes = [b'a', 0, 0, 0, 0];
    letter.encode_utf8(&mut bytes[1..]);
    let text = std::str::from_utf8(&bytes[..=letter.len_utf8()]).unwrap_or_default();
    text.escape_debug().count() == 2
}

fn json(to: &mut String, at: Timestamp, place: Place<'_>, context: &[Pair], message: &str, pairs: &[Pair]) {
    // Milliseconds with a fraction, as upstream: what 53 bits hold of it.
    #[expect(clippy::cast_precision_loss, reason = "as upstream")]
    let millis = at.as_nanosecond() as f64 / 1e6;
    let _ = write!(to, "{{\"ts\":{millis},\"caller\":");
    string(to, &format!("{}:{}", caller(place.file), place.line));
    to.push_str(",\"msg\":");
    string(to, message);
    let (errors, rest): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|it| it.0 == "err");
    let told = rest.iter().map(|it| it.0);
    let told: Vec<&str> = told.collect();
    for pair in once(context.iter().filter(|it| !told.contains(&it.0))) {
        member(to, pair);
    }
    if place.severity != Level::ERROR {
        let _ = write!(to, ",\"v\":{}", place.verbosity);
    }
    for pair in once(rest.into_iter().chain(errors)) {
        member(to, pair);
    }
    to.push('}');
}

fn member(to: &mut String, (name, value): &Pair) {
    to.push(',');
    string(to, name);
    to.push(':');
    match value {
        Value::Plain(text) => to.push_str(text),
        Value::Text(text) => string(to, text),
    }
}

fn string(to: &mut String, text: &str) {
    to.push('"');
    for letter in text.chars() {
        let _ = match letter {
            '"' => write!(to, "\\\""),
            '\\' => write!(to, "\\\\"),
            '\n' => write!(to, "\\n"),
            '\r' => write!(to, "\\r"),
            '\t' => write!(to, "\\t"),
            '\0'..='\u{1f}' => write!(to, "\\u{:04x}", u32::from(letter)),
            _ => write!(to, "{letter}"),
        };
    }
    to.push('"');
}

/// The file as klog has it; where many are called alike, with what it is in.
fn named(file: &str) -> String {
    match file.rsplit('/').next().unwrap_or_default() {
        "lib.rs" | "main.rs" | "mod.rs" => caller(file),
        name => name.to_owned(),
    }
}

/// The file and what it is in, as upstream; that every crate has its code in `src` tells nothing.
fn caller(file: &str) -> String {
    let parts: Vec<&str> = file.split('/').filter(|it| *it != "src").collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

#[cfg(test)]
mod tests;
