//! Parses the command line. The flags are data, and every bad value is reported at once.
//!
//! Names, defaults, syntax and error messages are those of kube-controller-manager. `table` lists the flags,
//! `parsed_line` parses arguments like Go's pflag, `value` parses single values, [`FlagValues`] returns them, and
//! `help` prints the help.

#[cfg(test)]
mod document;
mod duration;
mod flag_values;
#[cfg(test)]
mod fuzz;
mod help;
mod parsed_line;
mod table;
mod value;

pub use duration::{DurationError, parse_duration, show_duration};
pub use flag_values::FlagValues;
pub use help::help;
pub use table::{Effect, Flag, GROUPS, Group, History, Kind, find, flags};
pub(crate) use value::boolean;

use crate::version;

/// The result of parsing the command line.
pub enum Invocation {
    /// Run with these flags. [`FlagValues::finish`] returns their errors.
    Run(FlagValues),
    /// Print this text and exit with success: help or version.
    Print(String),
}

/// Parses the arguments, without the program's name.
pub fn parse(args: impl IntoIterator<Item = String>) -> Invocation {
    let mut flag_values = FlagValues::new(parsed_line::read(args));
    // As in upstream: a flag error has priority over everything. `--help` accepts extra arguments, `--version` does
    // not.
    if flag_values.has_errors() {
        return Invocation::Run(flag_values);
    }
    if flag_values.bool("help") {
        return Invocation::Print(help());
    }
    if flag_values.reject_words() {
        return Invocation::Run(flag_values);
    }
    let version_value =
        flag_values.texts("version").into_iter().rev().find(|it| !it.starts_with('v')).unwrap_or("false");
    let reported = flag_values.reported_version();
    match version_value {
        "raw" => Invocation::Print(format!(
            "version.Info{{Major:\"1\", Minor:\"{}\", GitVersion:\"{reported}\", Compiler:\"{}\", Platform:\"{}\"}}\n",
            version::MINOR,
            version::COMPILER,
            version::platform(),
        )),
        _ if boolean(version_value).unwrap_or_default() => Invocation::Print(format!("Kubernetes {reported}\n")),
        _ => Invocation::Run(flag_values),
    }
}

impl FlagValues {
    /// The printed version: the value of `--version=v1.37.0-…`, or our own.
    fn reported_version(&self) -> String {
        let set = self.texts("version").into_iter().rev().find(|it| it.starts_with('v'));
        set.map_or_else(version::git_version, str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(args: &[&str]) -> Option<String> {
        match parse(args.iter().map(|it| (*it).to_owned())) {
            Invocation::Print(text) => Some(text),
            Invocation::Run(_) => None,
        }
    }

    #[test]
    fn versions_are_printed_or_set() {
        let ours = format!("Kubernetes v1.37.0+mini-kcm.{}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(printed(&["--version"]), Some(ours.clone()));
        assert_eq!(printed(&["--version=T"]), Some(ours));
        assert_eq!(printed(&["--version=v1.37.0-eks-1", "--version"]).as_deref(), Some("Kubernetes v1.37.0-eks-1\n"));
        let raw = printed(&["--version=raw"]).unwrap();
        assert!(raw.starts_with("version.Info{Major:\"1\", Minor:\"37\", GitVersion:\"v1.37.0+"), "{raw}");
        for run in [vec![], vec!["--version=false"], vec!["--version=v1.37.0+mine"], vec!["--version", "--version=f"]] {
            assert_eq!(printed(&run), None, "{run:?}");
        }
    }

    #[test]
    fn flag_errors_have_priority_over_help_and_version() {
        for (args, refused) in [
            (vec!["--bogus", "--version"], true),
            (vec!["--version", "--bogus"], true),
            (vec!["--bogus", "--help"], true),
            (vec!["--secure-port=x", "-h"], true),
            (vec!["x", "--version"], true),
            (vec!["", "--version"], false),
            (vec!["x", "--help"], false),
            (vec!["--help", "--version"], false),
            // The meaning of a value is only checked when the manager runs.
            (vec!["--controllers=foo", "--version"], false),
            (vec!["--concurrent-namespace-syncs=0", "--version"], false),
        ] {
            match parse(args.iter().map(|it| (*it).to_owned())) {
                Invocation::Print(_) => assert!(!refused, "{args:?}"),
                Invocation::Run(flag_values) => {
                    let errors = flag_values.finish().unwrap_err();
                    assert!(refused && errors.len() == 1, "{args:?}: {errors:?}");
                }
            }
        }
    }

    #[test]
    fn help_lists_every_flag_except_deprecated_ones() {
        for args in ["--help", "-h"] {
            let help = printed(&[args]).unwrap();
            for flag in flags() {
                let shown = help.contains(&format!("--{}", flag.name));
                assert!(shown || flag.history == History::Deprecated, "{}", flag.name);
            }
        }
    }
}
