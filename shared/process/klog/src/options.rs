use std::{fmt, time::Duration};

use tracing::Metadata;

use crate::{Verbosity, glob};

/// The values of the logging flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--logging-format`
    pub format: Format,
    /// `-v`
    pub verbosity: Verbosity,
    /// `--vmodule`
    pub vmodule: Vmodule,
    /// `--log-text-split-stream`, `--log-json-split-stream`: errors to stderr, all else to stdout.
    pub split_stream: bool,
    /// `--log-text-info-buffer-size`, `--log-json-info-buffer-size`: how many bytes are buffered before stdout is
    /// written; 0: none.
    pub info_buffer: usize,
    /// `--log-flush-frequency`: the longest time for which they are buffered.
    pub flush_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            format: Format::Text,
            verbosity: 0,
            vmodule: Vmodule::default(),
            split_stream: false,
            info_buffer: 0,
            flush_every: Duration::from_secs(5),
        }
    }
}

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// klog's format: severity, date, process, file, message, `key="value"`.
    Text,
    /// component-base's format: one JSON object per line.
    Json,
}

/// Verbosity of single files: `pattern=N,...`. The first pattern that matches counts.
///
/// A pattern is matched like Go's `filepath.Match` against the file name without its extension, as upstream, and also
/// against the crate name and the full module path (`namespace_controller::sync`), because many Rust files have the
/// same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vmodule(Vec<(String, Verbosity)>);

/// Why a text is not a valid `--vmodule`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VmoduleError {
    /// Not `pattern=N`.
    #[error("{0:?} does not have the pattern=N format")]
    Malformed(String),
    /// N is not a number, is negative, or is above 2147483647.
    #[error("parsing verbosity in {part:?}: strconv.ParseUint: parsing {number:?}: {why}")]
    Verbosity {
        /// The part `pattern=N`.
        part: String,
        /// N.
        number: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Vmodule {
    /// Parses `pattern=N,...`; empty parts are ignored.
    ///
    /// # Errors
    /// A [`VmoduleError`] that names the invalid part.
    pub fn parse(text: &str) -> Result<Self, VmoduleError> {
        let parts = text.split(',').filter(|it| !it.is_empty()).map(|part| {
            let malformed = || VmoduleError::Malformed(part.to_owned());
            let (pattern, verbosity) = part.split_once('=').ok_or_else(malformed)?;
            if pattern.is_empty() || verbosity.is_empty() || verbosity.contains('=') {
                return Err(malformed());
            }
            let number = parse_verbosity(verbosity).map_err(|why| {
                let (part, number) = (part.to_owned(), verbosity.to_owned());
                VmoduleError::Verbosity { part, number, why }
            })?;
            Ok((pattern.to_owned(), number))
        });
        parts.collect::<Result<_, _>>().map(Self)
    }

    /// True when no file has a verbosity of its own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The verbosity for a callsite; 0 when no pattern matches.
    pub(crate) fn verbosity(&self, metadata: &Metadata<'_>) -> Verbosity {
        if self.0.is_empty() {
            return 0;
        }
        let path = metadata.file().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        let stem = file.strip_suffix(".rs").unwrap_or(file);
        let module = metadata.module_path().unwrap_or_default();
        let name = module.split("::").next().unwrap_or_default();
        let found = self.0.iter().find(|(pattern, _)| [stem, name, module].iter().any(|it| glob::matches(pattern, it)));
        found.map_or(0, |(_, verbosity)| *verbosity)
    }
}

impl fmt::Display for Vmodule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (pattern, verbosity)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{pattern}={verbosity}")?;
        }
        Ok(())
    }
}

/// Like Go's `strconv.ParseUint`: decimal digits only, at most the maximum of a signed 32-bit number.
fn parse_verbosity(text: &str) -> Result<Verbosity, &'static str> {
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err("invalid syntax");
    }
    text.parse::<Verbosity>().ok().filter(|it| *it <= i32::MAX.unsigned_abs()).ok_or("value out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vmodule_is_parsed_like_upstream() {
        for (text, want) in [
            ("", ""),
            ("a=1", "a=1"),
            ("recordio=2,file=1,gfs*=3,", "recordio=2,file=1,gfs*=3"),
            (",,a=0", "a=0"),
            ("namespace_controller::*=2147483647", "namespace_controller::*=2147483647"),
        ] {
            assert_eq!(Vmodule::parse(text).map(|it| it.to_string()), Ok(want.to_owned()), "{text}");
        }
        for (text, want) in [
            ("a", "\"a\" does not have the pattern=N format"),
            ("b=1,=2", "\"=2\" does not have the pattern=N format"),
            ("a=", "\"a=\" does not have the pattern=N format"),
            ("a=1=2", "\"a=1=2\" does not have the pattern=N format"),
            ("a=-1", "parsing verbosity in \"a=-1\": strconv.ParseUint: parsing \"-1\": invalid syntax"),
            ("a=+1", "parsing verbosity in \"a=+1\": strconv.ParseUint: parsing \"+1\": invalid syntax"),
            (
                "a=2147483648",
                "parsing verbosity in \"a=2147483648\": strconv.ParseUint: parsing \"2147483648\": value out of range",
            ),
        ] {
            assert_eq!(Vmodule::parse(text).unwrap_err().to_string(), want, "{text}");
        }
    }
}
