//! What the user typed: the flags as data, and a reader that reports every bad value at once.
//!
//! Names, defaults, syntax and error texts are kube-controller-manager's. `table` lists the flags, `line` reads the
//! arguments as Go's pflag does, `value` reads single values, [`Typed`] hands them out, `help` prints them.

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

/// What the command line asks for.
pub enum Asked {
    /// Run with these flags; what is wrong with them comes out of [`Typed::finish`].
    Run(Typed),
    /// Print this and end well: help or version.
    Print(String),
}

/// Reads the arguments, the program's name not among them.
pub fn parse(args: impl IntoIterator<Item = String>) -> Asked {
    let mut typed = Typed::new(line::read(args));
    // As upstream: a mistyped flag comes before everything, and help minds no other words, which the version does.
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
    /// The version to print: `--version=v1.37.0-…`, or our own.
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
            // What a value means is looked at by who runs with it.
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
