//! What the user typed: the flags as data, and a parser that reports every bad value at once.
//!
//! Names, defaults and meaning are kube-controller-manager's. Values stay text here; [`Typed`] turns them into values and
//! collects what is wrong, so that one run names all errors.

mod duration;
mod table;

use std::{fmt::Display, net::IpAddr, str::FromStr, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Command};

pub use duration::{DurationError, parse_duration};
pub use table::{Effect, FLAGS, Flag, Kind};

/// What the command line asks for.
pub enum Asked {
    /// Run with these flags.
    Run(Typed),
    /// Print this and end well: help or version.
    Print(String),
}

/// Reads the arguments, the program's name not among them.
///
/// # Errors
/// A text for people: an unknown flag, a positional argument, a flag without its value.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let matches = match command().try_get_matches_from(args.into_iter().map(normalise)) {
        Ok(matches) => matches,
        Err(err) if matches!(err.kind(), clap::error::ErrorKind::DisplayHelp) => {
            return Ok(Asked::Print(err.to_string()));
        }
        Err(err) => return Err(explain(&err)),
    };
    let positional: Vec<&String> = matches.get_many("arguments").unwrap_or_default().collect();
    if !positional.is_empty() {
        return Err(format!("\"mini-kcm\" does not take any arguments, got {positional:?}"));
    }
    let typed = Typed { matches, errors: Vec::new() };
    match typed.text("version") {
        "false" => Ok(Asked::Run(typed)),
        "true" | "raw" => Ok(Asked::Print(format!("mini-kcm v{}\n", env!("CARGO_PKG_VERSION")))),
        other => Err(format!("invalid value {other:?} for --version: true, false or raw")),
    }
}

/// `_` and `-` are the same in a flag's name.
fn normalise(arg: String) -> String {
    let Some(flag) = arg.strip_prefix("--") else { return arg };
    match flag.split_once('=') {
        Some((name, value)) => format!("--{}={value}", name.replace('_', "-")),
        None => format!("--{}", flag.replace('_', "-")),
    }
}

fn command() -> Command {
    let mut command = Command::new("mini-kcm")
        .about("The controllers of Kubernetes in a tenth of the memory. Flags are those of kube-controller-manager.")
        .no_binary_name(true)
        .disable_version_flag(true)
        .arg(Arg::new("arguments").action(ArgAction::Append).hide(true));
    for flag in FLAGS {
        let mut arg =
            Arg::new(flag.name).long(flag.name).help(flag.help).help_heading(flag.group).value_name(flag.kind.name());
        arg = match flag.kind {
            Kind::Bool => {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true").default_value(flag.default)
            }
            Kind::List => arg.action(ArgAction::Append).allow_hyphen_values(true).default_value(flag.default),
            _ => arg.allow_hyphen_values(true).default_value(flag.default).overrides_with(flag.name),
        };
        if flag.kind == Kind::Bool {
            arg = arg.overrides_with(flag.name);
        }
        if flag.name == "v" {
            arg = arg.short('v');
        }
        command = command.arg(arg);
    }
    command
}

/// clap's words without its usage block, which would list two hundred flags.
fn explain(err: &clap::Error) -> String {
    let text = err.to_string();
    let first = text.lines().next().unwrap_or_default();
    format!("{}; see mini-kcm --help", first.trim_start_matches("error: "))
}

/// Reads typed values and collects what is wrong with them.
pub struct Typed {
    matches: ArgMatches,
    errors: Vec<String>,
}

impl Typed {
    /// The value as typed, or the default; for a repeated flag the last.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.matches.get_many::<String>(name).and_then(Iterator::last).map_or("", String::as_str)
    }

    /// True when the user gave the flag.
    #[must_use]
    pub fn given(&self, name: &str) -> bool {
        self.matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
    }

    /// The text, or `None` when empty.
    #[must_use]
    pub fn optional(&self, name: &str) -> Option<String> {
        let text = self.text(name);
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// All elements of a comma list; later occurrences append. A wholly empty value gives no element.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        let values = self.matches.get_many::<String>(name).unwrap_or_default();
        let elements = values.filter(|it| !it.is_empty()).flat_map(|it| it.split(','));
        elements.map(str::to_owned).collect()
    }

    /// A boolean as Go reads it.
    pub fn bool(&mut self, name: &str) -> bool {
        match self.text(name) {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => {
                self.invalid(name, "not a boolean");
                false
            }
        }
    }

    /// A duration in Go's syntax that is not negative.
    pub fn duration(&mut self, name: &str) -> Duration {
        match parse_duration(self.text(name)) {
            Ok(duration) => duration,
            Err(err) => {
                self.invalid(name, err);
                Duration::ZERO
            }
        }
    }

    /// A number or an address.
    pub fn parsed<T: FromStr + Default>(&mut self, name: &str) -> T
    where
        T::Err: Display,
    {
        match self.text(name).parse() {
            Ok(value) => value,
            Err(err) => {
                self.invalid(name, err);
                T::default()
            }
        }
    }

    /// A number of workers: at least one, with upstream's words.
    pub fn workers(&mut self, name: &'static str) -> usize {
        let count: i64 = self.parsed(name);
        let shown = !self.errors.iter().any(|it| it.contains(&format!("--{name}:")));
        if count < 1 && shown {
            self.error(format!("{name} must be greater than 0, but got {count}"));
        }
        usize::try_from(count).unwrap_or(1).max(1)
    }

    /// An address to listen on.
    pub fn address(&mut self, name: &str) -> IpAddr {
        match self.text(name).parse() {
            Ok(address) => address,
            Err(err) => {
                self.invalid(name, err);
                IpAddr::from([127, 0, 0, 1])
            }
        }
    }

    /// Notes an error of the caller's own.
    pub fn error(&mut self, error: impl Into<String>) {
        self.errors.push(error.into());
    }

    fn invalid(&mut self, name: &str, why: impl Display) {
        let value = self.text(name);
        self.errors.push(format!("invalid argument {value:?} for --{name}: {why}"));
    }

    /// All errors so far, if there are any.
    ///
    /// # Errors
    /// Then they are returned in the order in which they were found.
    pub fn finish(self) -> Result<(), Vec<String>> {
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(args: &[&str]) -> Typed {
        match parse(args.iter().map(|it| (*it).to_owned())) {
            Ok(Asked::Run(typed)) => typed,
            Ok(Asked::Print(text)) => panic!("printed {text}"),
            Err(err) => panic!("{args:?}: {err}"),
        }
    }

    #[test]
    fn booleans_and_underscores_are_gos() {
        for (args, want) in [
            (vec![], true),
            (vec!["--leader-elect"], true),
            (vec!["--leader-elect=false"], false),
            (vec!["--leader_elect=F"], false),
            (vec!["--leader-elect=0"], false),
            (vec!["--leader-elect=false", "--leader-elect=T"], true),
        ] {
            assert_eq!(typed(&args).bool("leader-elect"), want, "{args:?}");
        }
    }

    #[test]
    fn lists_append_and_may_begin_with_a_dash() {
        for (args, want) in [
            (vec![], vec!["*"]),
            (vec!["--controllers=*,-job"], vec!["*", "-job"]),
            (vec!["--controllers", "-job"], vec!["-job"]),
            (vec!["--controllers=*", "--controllers=-job"], vec!["*", "-job"]),
            (vec!["--controllers=a,,b"], vec!["a", "", "b"]),
            (vec!["--controllers="], vec![]),
        ] {
            assert_eq!(typed(&args).list("controllers"), want, "{args:?}");
        }
    }

    #[test]
    fn verbosity_has_its_short_form() {
        for args in [vec!["-v=4"], vec!["-v", "4"], vec!["--v=4"], vec!["--v", "4"], vec!["-v4"]] {
            assert_eq!(typed(&args).parsed::<u8>("v"), 4, "{args:?}");
        }
    }

    #[test]
    fn every_bad_value_is_reported_with_its_flag() {
        let mut typed = typed(&["--kube-api-qps=fast", "--leader-elect=maybe", "--min-resync-period=12"]);
        typed.parsed::<f64>("kube-api-qps");
        typed.bool("leader-elect");
        typed.duration("min-resync-period");
        let errors = typed.finish().unwrap_err();
        assert_eq!(errors.len(), 3, "{errors:?}");
        for (error, flag) in errors.iter().zip(["kube-api-qps", "leader-elect", "min-resync-period"]) {
            assert!(error.contains(&format!("--{flag}")), "{error}");
        }
    }

    #[test]
    fn unknown_flags_and_positional_arguments_are_errors() {
        for (args, want) in [(vec!["--no-such-flag"], "--no-such-flag"), (vec!["extra"], "does not take any arguments")]
        {
            let err = parse(args.iter().map(|it| (*it).to_owned())).err().unwrap();
            assert!(err.contains(want), "{err}");
        }
    }

    #[test]
    fn help_and_version_are_printed() {
        for args in ["--help", "-h", "--version", "--version=raw"] {
            assert!(matches!(parse([args.to_owned()]), Ok(Asked::Print(_))), "{args}");
        }
    }
}
