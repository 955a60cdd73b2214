//! The help, in the layout of kube-controller-manager.

use std::fmt::Write;

use super::{
    table::{Flag, GROUPS, History, Kind},
    value,
};

/// The text of `--help`.
#[must_use]
pub fn help() -> String {
    let mut text =
        "The controllers of Kubernetes in a fraction of the memory. Flags are those of kube-controller-manager.\n\n\
        Usage:\n  mini-kcm [flags]\n"
            .to_owned();
    for group in GROUPS {
        let shown = group.flags().filter(|it| it.history != History::Deprecated);
        let lines: Vec<(String, &Flag)> = shown.map(|it| (flag_column(it), it)).collect();
        let width = lines.iter().map(|(flag_column, _)| flag_column.len()).max().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}:\n\n", group.name);
        for (flag_column, flag) in lines {
            let _ = writeln!(text, "{flag_column:width$}   {}{}", flag.help, default_note(flag));
        }
    }
    text
}

fn flag_column(flag: &Flag) -> String {
    let short = match flag.name {
        "v" => "-v, ",
        "help" => "-h, ",
        _ => "    ",
    };
    let kind = flag.kind.name();
    format!("  {short}--{}{}{kind}", flag.name, if kind.is_empty() { "" } else { " " })
}

/// The default for the help. Empty for a zero value: false, 0, empty text.
fn default_note(flag: &Flag) -> String {
    let default = flag.default;
    match flag.kind {
        _ if default.is_empty() || matches!(default, "0" | "0s" | "false") => String::new(),
        Kind::Text => format!(" (default {default:?})"),
        Kind::List => format!(" (default [{}])", value::comma_list(default).unwrap_or_default().join(",")),
        _ => format!(" (default {default})"),
    }
}
