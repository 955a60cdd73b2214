//! The text of a line. Header and quoting are those of klog's textlogger; the JSON object is that of component-base's
//! logger.

use std::{fmt::Write as _, sync::Arc};

use clock::{Clock, Timestamp};
use jiff::tz::TimeZone;
use tracing::{Level, Metadata};

use crate::{
    Format, Verbosity,
    filter::{FLAG, verbosity_of},
    values::{FieldPair, Value, deduplicated},
};

/// Formats a line, with the present time.
#[derive(Debug, Clone)]
pub(crate) struct Formatter {
    format: Format,
    clock: Clock,
    /// The local time zone; used by the text format only.
    zone: Arc<TimeZone>,
    process: u32,
}

/// The callsite and the severity of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineOrigin<'a> {
    pub(crate) severity: Level,
    pub(crate) verbosity: Verbosity,
    /// A path with `/`.
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    /// The message is written without quotes.
    pub(crate) bare: bool,
}

impl<'a> LineOrigin<'a> {
    pub(crate) fn of(metadata: &Metadata<'a>) -> Self {
        Self {
            severity: *metadata.level(),
            verbosity: verbosity_of(metadata).unwrap_or(0),
            file: metadata.file().unwrap_or("???"),
            line: metadata.line().unwrap_or(1),
            bare: metadata.target() == FLAG,
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

    /// Appends one line with its line end. `context` has the fields of the spans, outermost first.
    pub(crate) fn write(
        &self,
        line: &mut String,
        origin: LineOrigin<'_>,
        context: &[FieldPair],
        message: &str,
        pairs: &[FieldPair],
    ) {
        let at = self.clock.wall();
        match self.format {
            Format::Text => self.text(line, at, origin, context, message, pairs),
            Format::Json => write_json(line, at, origin, context, message, pairs),
        }
        line.push('\n');
    }

    fn text(
        &self,
        to: &mut String,
        at: Timestamp,
        origin: LineOrigin<'_>,
        context: &[FieldPair],
        message: &str,
        pairs: &[FieldPair],
    ) {
        let local = self.zone.to_datetime(at);
        let severity = match origin.severity {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let file = file_label(origin.file);
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
            origin.line,
        );
        match origin.bare {
            true => to.push_str(message),
            false => write_quoted(to, message),
        }
        let (errors, rest): (Vec<&FieldPair>, Vec<&FieldPair>) = pairs.iter().partition(|it| it.0 == "err");
        for (name, value) in deduplicated(errors.into_iter().chain(context).chain(rest)) {
            let _ = write!(to, " {name}=");
            match value {
                Value::Plain(text) => to.push_str(text),
                Value::Text(text) if text.contains('\n') => write_indented(to, text),
                Value::Text(text) => write_quoted(to, text),
            }
        }
    }
}

/// A value of several lines: each line after a tab, the end mark on a line of its own.
fn write_indented(to: &mut String, text: &str) {
    to.push_str("<\n");
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        to.push('\t');
        to.push_str(line);
        to.push('\n');
    }
    to.push_str(" >");
}

/// Quotes like Go's `strconv.Quote`.
fn write_quoted(to: &mut String, text: &str) {
    to.push('"');
    for letter in text.chars() {
        let code = u32::from(letter);
        // Writing into a string cannot fail.
        let _ = match letter {
            '"' => to.write_str("\\\""),
            '\\' => to.write_str("\\\\"),
            // The most frequent case.
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

/// For characters beyond ASCII. The character is tested behind another letter, so that a combining character is not
/// taken for a printable one.
fn is_printable(letter: char) -> bool {
    let mut bytes = [b'a', 0, 0, 0, 0];
    letter.encode_utf8(&mut bytes[1..]);
    let text = std::str::from_utf8(&bytes[..=letter.len_utf8()]).unwrap_or_default();
    text.escape_debug().count() == 2
}

fn write_json(
    to: &mut String,
    at: Timestamp,
    origin: LineOrigin<'_>,
    context: &[FieldPair],
    message: &str,
    pairs: &[FieldPair],
) {
    // Milliseconds with a fraction, as in component-base's JSON logger, with the precision of a 64-bit float.
    #[expect(clippy::cast_precision_loss, reason = "component-base's JSON logger writes a float too")]
    let millis = at.as_nanosecond() as f64 / 1e6;
    let _ = write!(to, "{{\"ts\":{millis},\"caller\":");
    write_json_string(to, &format!("{}:{}", caller(origin.file), origin.line));
    to.push_str(",\"msg\":");
    write_json_string(to, message);
    let (errors, rest): (Vec<&FieldPair>, Vec<&FieldPair>) = pairs.iter().partition(|it| it.0 == "err");
    let own_names = rest.iter().map(|it| it.0);
    let own_names: Vec<&str> = own_names.collect();
    for pair in deduplicated(context.iter().filter(|it| !own_names.contains(&it.0))) {
        write_json_field(to, pair);
    }
    if origin.severity != Level::ERROR {
        let _ = write!(to, ",\"v\":{}", origin.verbosity);
    }
    for pair in deduplicated(rest.into_iter().chain(errors)) {
        write_json_field(to, pair);
    }
    to.push('}');
}

fn write_json_field(to: &mut String, (name, value): &FieldPair) {
    to.push(',');
    write_json_string(to, name);
    to.push(':');
    match value {
        Value::Plain(text) => to.push_str(text),
        Value::Text(text) => write_json_string(to, text),
    }
}

fn write_json_string(to: &mut String, text: &str) {
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

/// The file name as klog writes it. For file names that many crates have, the folder or crate is added.
fn file_label(file: &str) -> String {
    match file.rsplit('/').next().unwrap_or_default() {
        "lib.rs" | "main.rs" | "mod.rs" => caller(file),
        name => name.to_owned(),
    }
}

/// The file with its folder, as the `caller` of upstream. `src` is omitted, because every crate has it.
fn caller(file: &str) -> String {
    let parts: Vec<&str> = file.split('/').filter(|it| *it != "src").collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

#[cfg(test)]
mod tests;
