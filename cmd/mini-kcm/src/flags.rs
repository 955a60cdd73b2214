//! Parses the command line. The flags are data, and every bad value is reported at once.
//!
//! Names, defaults, syntax and error messages are those of kube-controller-manager. `table` lists the flags, `line`
//! parses arguments like Go's pflag, `value` parses single values, [`Typed`] returns them, and `help` prints the help.

#[cfg(test)]
mod document;
mod duration;
#[cfg(test)]
mod fuzz;
mod help;
mod line;
mod table;
mod typed;
mod value;

pub use duration::{DurationError, parse_duration, show_duration};
pub use help::help;
pub use table::{Effect, Flag, GROUPS, Group, History, Kind, find, flags};
pub use typed::Typed;
pub(crate) use value::boolean;

use crate::version;

/// The result of parsing the command line.
pub enum Asked {
    /// Run with these flags. [`Typed::finish`] returns their errors.
    Run(Typed),
    /// Print this text and exit with success: help or version.
    Print(String),
}

/// Parses the arguments, without the program's name.
pub fn parse(args: impl IntoIterator<Item = String>) -> Asked {
    let mut typed = Typed::new(line::read(args));
    // As in upstream: a flag error has priority over everything. `--help` accepts extra arguments, `--version` does
    // not.
    if typed.is_mistyped() {
        return Asked::Run(typed);
    }
    if typed.bool("help") {
        return Asked::Print(help());
    }
    if typed.refuse_words() {
        return Asked::Run(typed);
    }
    let asked = typed.texts("version").into_iter().rev().find(|it| !it.starts_with('v')).unwrap_or("false");
    let reported = typed.reported_version();
    match asked {
        "raw" => Asked::Print(format!(
            "version.Info{{Major:\"1\", Minor:\"{}\", GitVersion:\"{reported}\", Compiler:\"{}\", Platform:\"{}\"}}\n",
            version::MINOR,
            version::COMPILER,
            version::platform(),
        )),
        _ if boolean(asked).unwrap_or_default() => Asked::Print(format!("Kubernetes {reported}\n")),
        _ => Asked::Run(typed),
    }
}

impl Typed {
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
            Asked::Print(text) => Some(text),
            Asked::Run(_) => None,
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
    fn mistakes_come_before_help_and_version_as_upstream() {
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
                Asked::Print(_) => assert!(!refused, "{args:?}"),
                Asked::Run(typed) => {
                    let told = typed.finish().unwrap_err();
                    assert!(refused && told.len() == 1, "{args:?}: {told:?}");
                }
            }
        }
    }

    #[test]
    fn the_help_has_every_flag_but_the_deprecated_ones() {
        for args in ["--help", "-h"] {
            let help = printed(&[args]).unwrap();
            for flag in flags() {
                let shown = help.contains(&format!("--{}", flag.name));
                assert!(shown || flag.history == History::Deprecated, "{}", flag.name);
            }
        }
    }
}
