//! Parses arguments like Go's pflag: `--flag=value`, `--flag value`, `-v4`, flags and other words in any order.

use std::{collections::BTreeMap, vec};

use super::{
    table::{Flag, Kind, find},
    value,
};

/// The parsed command line.
#[derive(Debug, Default)]
pub(super) struct ParsedLine {
    /// The values of each given flag, in order.
    pub(super) values: BTreeMap<&'static str, Vec<String>>,
    /// The errors of flags, in the order of the command line.
    pub(super) errors: Vec<String>,
    /// The error for words that are not flags. It is only reported when no flag is wrong, because the value of an
    /// unknown flag looks like such a word.
    pub(super) stray: Option<String>,
}

pub(super) fn read(args: impl IntoIterator<Item = String>) -> ParsedLine {
    let mut reader = Reader { args: args.into_iter().collect::<Vec<_>>().into_iter(), line: ParsedLine::default() };
    let mut words = Vec::new();
    while let Some(arg) = reader.args.next() {
        if arg == "--" {
            words.extend(reader.args.by_ref());
        } else if let Some(flag) = arg.strip_prefix("--") {
            reader.long(flag, &arg);
        } else if arg.len() > 1 && arg.starts_with('-') {
            reader.short(&arg);
        } else {
            words.push(arg);
        }
    }
    let mut line = reader.line;
    // Upstream accepts words when all of them are empty.
    if words.iter().any(|it| !it.is_empty()) {
        let words: Vec<String> = words.iter().map(|it| format!("{it:?}")).collect();
        line.stray = Some(format!("\"mini-kcm\" does not take any arguments, got [{}]", words.join(" ")));
    }
    line
}

struct Reader {
    args: vec::IntoIter<String>,
    line: ParsedLine,
}

impl Reader {
    fn long(&mut self, flag: &str, arg: &str) {
        if flag.starts_with(['-', '=']) {
            self.line.errors.push(format!("bad flag syntax: {arg}"));
            return;
        }
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        let Some(flag) = find(&name.replace('_', "-")) else {
            self.line.errors.push(format!("unknown flag: --{name}"));
            return;
        };
        let value = value.map(str::to_owned).or_else(|| implied_value(flag)).or_else(|| self.args.next());
        match value {
            Some(value) => self.set(flag, value),
            None => self.line.errors.push(format!("flag needs an argument: --{}", flag.name)),
        }
    }

    /// Parses short flags behind one dash. The last one may have a value.
    fn short(&mut self, arg: &str) {
        let mut rest = &arg[1..];
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            let flag = match letter {
                'h' => find("help"),
                'v' => find("v"),
                _ => None,
            };
            let Some(flag) = flag else {
                self.line.errors.push(format!("unknown shorthand flag: '{letter}' in -{rest}"));
                return;
            };
            let value = match after.strip_prefix('=') {
                Some(value) => Some(value.to_owned()),
                None if implied_value(flag).is_some() => {
                    self.set(flag, "true".to_owned());
                    rest = after;
                    continue;
                }
                None if after.is_empty() => self.args.next(),
                None => Some(after.to_owned()),
            };
            match value {
                Some(value) => self.set(flag, value),
                None => self.line.errors.push(format!("flag needs an argument: '{letter}' in -{rest}")),
            }
            return;
        }
    }

    fn set(&mut self, flag: &'static Flag, value: String) {
        if let Err(why) = value::check(flag.kind, &value) {
            let shown = match flag.name {
                "v" => "-v, --v".to_owned(),
                "help" => "-h, --help".to_owned(),
                name => format!("--{name}"),
            };
            self.line.errors.push(format!("invalid argument {value:?} for \"{shown}\" flag: {why}"));
            return;
        }
        self.line.values.entry(flag.name).or_default().push(value);
    }
}

/// The value of a flag without a value, for the kinds that allow it.
fn implied_value(flag: &Flag) -> Option<String> {
    matches!(flag.kind, Kind::Bool | Kind::Version).then(|| "true".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &[&str]) -> ParsedLine {
        read(args.iter().map(|it| (*it).to_owned()))
    }

    #[test]
    fn values_are_parsed_like_pflag() {
        for (args, name, want) in [
            (vec!["--leader_elect"], "leader-elect", vec!["true"]),
            (vec!["--leader-elect=F", "--leader-elect=T"], "leader-elect", vec!["F", "T"]),
            (vec!["--kubeconfig", "-x"], "kubeconfig", vec!["-x"]),
            (vec!["--kubeconfig", "--"], "kubeconfig", vec!["--"]),
            (vec!["--kubeconfig=a=b"], "kubeconfig", vec!["a=b"]),
            (vec!["--kubeconfig="], "kubeconfig", vec![""]),
            (vec!["-v=4"], "v", vec!["4"]),
            (vec!["-v", "4"], "v", vec!["4"]),
            (vec!["-v4"], "v", vec!["4"]),
            (vec!["--v", "4"], "v", vec!["4"]),
            (vec!["-hv4"], "v", vec!["4"]),
        ] {
            let line = line(&args);
            assert_eq!(line.errors, Vec::<String>::new(), "{args:?}");
            assert_eq!(line.values[name], want, "{args:?}");
        }
    }

    #[test]
    fn empty_words_are_accepted_and_flag_errors_have_priority_over_words() {
        for (args, errors, stray) in [
            (vec![""], 0, None),
            (vec!["", "--", ""], 0, None),
            (vec!["", "x"], 0, Some("\"mini-kcm\" does not take any arguments, got [\"\" \"x\"]")),
            (vec!["--no-such", "x"], 1, Some("\"mini-kcm\" does not take any arguments, got [\"x\"]")),
        ] {
            let line = line(&args);
            assert_eq!((line.errors.len(), line.stray.as_deref()), (errors, stray), "{args:?}");
        }
    }

    #[test]
    fn every_error_has_pflags_message() {
        for (args, want) in [
            (vec!["--no-such", "value"], vec!["unknown flag: --no-such"]),
            (vec!["-x"], vec!["unknown shorthand flag: 'x' in -x"]),
            (vec!["--kubeconfig"], vec!["flag needs an argument: --kubeconfig"]),
            (vec!["-v"], vec!["flag needs an argument: 'v' in -v"]),
            (vec!["--=3", "---foo"], vec!["bad flag syntax: --=3", "bad flag syntax: ---foo"]),
            (vec!["-hx"], vec!["unknown shorthand flag: 'x' in -x"]),
            (vec!["-hv"], vec!["flag needs an argument: 'v' in -v"]),
            (
                vec!["--help=x"],
                vec![
                    "invalid argument \"x\" for \"-h, --help\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
                ],
            ),
            (vec!["a", "b"], vec!["\"mini-kcm\" does not take any arguments, got [\"a\" \"b\"]"]),
            (vec!["--", "--v=1"], vec!["\"mini-kcm\" does not take any arguments, got [\"--v=1\"]"]),
            (vec!["-"], vec!["\"mini-kcm\" does not take any arguments, got [\"-\"]"]),
            (vec!["--leader-elect", "false"], vec!["\"mini-kcm\" does not take any arguments, got [\"false\"]"]),
            (
                vec!["--secure_port=x", "-vx"],
                vec![
                    "invalid argument \"x\" for \"--secure-port\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
                    "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseUint: parsing \"x\": invalid syntax",
                ],
            ),
        ] {
            let line = line(&args);
            let messages = if line.errors.is_empty() { line.stray.into_iter().collect() } else { line.errors };
            assert_eq!(messages, want, "{args:?}");
        }
    }
}
