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

/// What the command line asks for.
pub enum Asked {
    /// Run with these flags; what is wrong with them comes out of [`Typed::finish`].
    Run(Typed),
    /// Print this and end well: help or version.
    Print(String),
}

/// Reads the arguments, the program's name not among them.
pub fn parse(args: impl IntoIterator<Item = String>) -> Asked {
    let typed = Typed::new(line::read(args));
    if typed.bool("help") {
        return Asked::Print(help());
    }
    if typed.bool("version") || typed.text("version") == "raw" {
        return Asked::Print(format!("mini-kcm v{}\n", env!("CARGO_PKG_VERSION")));
    }
    Asked::Run(typed)
}
