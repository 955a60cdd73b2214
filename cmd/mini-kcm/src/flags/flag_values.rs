//! Returns the values of flags.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use super::{
    parse_duration,
    parsed_line::ParsedLine,
    table::{Effect, Flag, Kind, find, flags},
    value,
};

/// Each worker is a task and needs memory even without work. A mistyped number must not use up all memory.
const MAX_WORKERS: i64 = 10_000;

/// The parsed flags. Every value has the syntax of its kind. Contains the errors found so far.
pub struct FlagValues {
    line: ParsedLine,
}

impl FlagValues {
    pub(super) fn new(line: ParsedLine) -> Self {
        Self { line }
    }

    /// True when a flag is unknown, or its value has not the syntax of its kind.
    pub(super) fn has_errors(&self) -> bool {
        !self.line.errors.is_empty()
    }

    /// Adds the error for words that belong to no flag. Returns true if there are any.
    pub(super) fn reject_words(&mut self) -> bool {
        let stray = self.line.stray.take();
        let found = stray.is_some();
        self.line.errors.extend(stray);
        found
    }

    /// The value as given, or the default. For a repeated flag, the last value.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let default = || find(name).map_or("", |it| it.default);
        self.line.values.get(name).and_then(|it| it.last()).map_or_else(default, String::as_str)
    }

    /// All values of a repeated flag as given. Without one, its default, unless that is empty.
    #[must_use]
    pub fn texts(&self, name: &str) -> Vec<&str> {
        match self.line.values.get(name) {
            Some(values) => values.iter().map(String::as_str).collect(),
            None => Some(self.text(name)).filter(|it| !it.is_empty()).into_iter().collect(),
        }
    }

    /// True when the flag was given.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.line.values.contains_key(name)
    }

    /// The text; `None` when empty.
    #[must_use]
    pub fn optional(&self, name: &str) -> Option<String> {
        let text = self.text(name);
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A file path; `None` when empty.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.optional(name).map(PathBuf::from)
    }

    /// All elements of a comma-separated list. Repeated flags append. An empty value gives no element.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        self.texts(name).into_iter().flat_map(|it| value::comma_list(it).unwrap_or_default()).collect()
    }

    /// The pairs of a map. A later pair replaces an earlier one with the same key.
    #[must_use]
    pub fn pairs(&self, name: &str) -> std::collections::BTreeMap<String, String> {
        self.texts(name).into_iter().flat_map(|it| value::pairs(it).unwrap_or_default()).collect()
    }

    /// A boolean.
    #[must_use]
    pub fn bool(&self, name: &str) -> bool {
        value::boolean(self.text(name)).unwrap_or_default()
    }

    /// A duration, never negative.
    #[must_use]
    pub fn duration(&self, name: &str) -> Duration {
        parse_duration(self.text(name)).unwrap_or_default()
    }

    /// An integer in any base.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        value::int(self.text(name), 64).unwrap_or_default()
    }

    /// A float, never NaN.
    #[must_use]
    pub fn float(&self, name: &str) -> f64 {
        value::float(self.text(name), 64).unwrap_or_default()
    }

    /// A number of bytes.
    #[must_use]
    pub fn bytes(&self, name: &str) -> i64 {
        value::quantity(self.text(name)).unwrap_or_default()
    }

    /// The log verbosity.
    #[must_use]
    pub fn level(&self, name: &str) -> u32 {
        value::level(self.text(name)).unwrap_or_default()
    }

    /// A port. An invalid one adds an error and returns 0.
    pub fn port(&mut self, name: &str) -> u16 {
        let port = self.int(name);
        u16::try_from(port).unwrap_or_else(|_| {
            self.add_error(format!(
                "--{name} {port} must be between 0 and 65535, inclusive. 0 for turning off secure port"
            ));
            0
        })
    }

    /// A number of workers. Less than one is an error with upstream's message, and more than `MAX_WORKERS` is an
    /// error too.
    pub fn workers(&mut self, name: &str) -> u32 {
        let count = self.int(name);
        if count < 1 {
            self.add_error(format!("{name} must be greater than 0, but got {count}"));
        } else if count > MAX_WORKERS {
            self.add_error(format!("{name} must not be more than {MAX_WORKERS}, but got {count}"));
        }
        u32::try_from(count.clamp(1, MAX_WORKERS)).unwrap_or(1)
    }

    /// A number, not negative.
    pub fn count(&mut self, name: &str) -> u32 {
        let count = self.int(name);
        u32::try_from(count).unwrap_or_else(|_| {
            self.add_error(format!("{name} must not be less than 0, but got {count}"));
            0
        })
    }

    /// An address to listen on. An empty value keeps the previous one or the default, as in upstream.
    #[must_use]
    pub fn address(&self, name: &str) -> IpAddr {
        let default = find(name).map_or("", |it| it.default);
        let mut given = self.texts(name).into_iter().rev().chain([default]);
        given.find_map(|it| value::address(it).ok().flatten()).unwrap_or(IpAddr::from([0, 0, 0, 0]))
    }

    /// Adds an error.
    pub fn add_error(&mut self, error: impl Into<String>) {
        self.line.errors.push(error.into());
    }

    /// Returns the errors, if there are any.
    ///
    /// # Errors
    /// All errors, in the order in which they were found.
    pub fn finish(self) -> Result<(), Vec<String>> {
        if self.line.errors.is_empty() { Ok(()) } else { Err(self.line.errors) }
    }

    /// Flags with a value other than their default that have no effect here, each with the reason.
    #[must_use]
    pub fn changed_without_effect(&self) -> Vec<(&'static Flag, &'static str)> {
        let ignored = flags().filter_map(|flag| match flag.effect {
            Effect::Ignored(why) => Some((flag, why)),
            Effect::Implemented | Effect::Refused(_) => None,
        });
        ignored.filter(|(flag, _)| self.is_changed(flag)).collect()
    }

    /// Adds an error for each flag that must not be ignored and has not its default.
    pub fn reject_refused_flags(&mut self) {
        let refused = flags().filter_map(|flag| match flag.effect {
            Effect::Refused(why) => Some((flag, why)),
            Effect::Implemented | Effect::Ignored(_) => None,
        });
        let refused: Vec<_> = refused.filter(|(flag, _)| self.is_changed(flag)).collect();
        for (flag, why) in refused {
            let value = self.text(flag.name).to_owned();
            self.add_error(format!("invalid argument {value:?} for \"--{}\" flag: not supported: {why}", flag.name));
        }
    }

    /// True when the flag was given with another meaning than its default.
    #[must_use]
    pub fn is_changed(&self, flag: &Flag) -> bool {
        let name = flag.name;
        if !self.is_given(name) {
            return false;
        }
        match flag.kind {
            Kind::Bool => Some(self.bool(name)) != value::boolean(flag.default).ok(),
            Kind::Duration => Some(self.duration(name)) != parse_duration(flag.default).ok(),
            Kind::Int | Kind::Int32 => Some(self.int(name)) != value::int(flag.default, 64).ok(),
            Kind::Float | Kind::Float32 => Some(self.float(name)) != value::float(flag.default, 64).ok(),
            Kind::Quantity => Some(self.bytes(name)) != value::quantity(flag.default).ok(),
            Kind::Level => Some(self.level(name)) != value::level(flag.default).ok(),
            Kind::Address => self.address(name).to_string() != flag.default,
            Kind::List => Some(self.list(name)) != value::comma_list(flag.default).ok(),
            Kind::Text | Kind::Numbers | Kind::Map | Kind::Gates | Kind::CertKeys | Kind::Patterns | Kind::Version => {
                self.texts(name).iter().any(|it| *it != flag.default)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::parsed_line, *};

    fn flag_values(args: &[&str]) -> FlagValues {
        let flag_values = FlagValues::new(parsed_line::read(args.iter().map(|it| (*it).to_owned())));
        assert_eq!(flag_values.line.errors, Vec::<String>::new(), "{args:?}");
        flag_values
    }

    #[test]
    fn booleans_and_underscores_are_parsed_like_go() {
        for (args, want) in [
            (vec![], true),
            (vec!["--leader-elect"], true),
            (vec!["--leader-elect=false"], false),
            (vec!["--leader_elect=F"], false),
            (vec!["--leader-elect=0"], false),
            (vec!["--leader-elect=false", "--leader-elect=T"], true),
        ] {
            assert_eq!(flag_values(&args).bool("leader-elect"), want, "{args:?}");
        }
    }

    #[test]
    fn repeated_lists_append_and_may_begin_with_a_dash() {
        for (args, want) in [
            (vec![], vec!["*"]),
            (vec!["--controllers=*,-job"], vec!["*", "-job"]),
            (vec!["--controllers", "-job"], vec!["-job"]),
            (vec!["--controllers=*", "--controllers=-job"], vec!["*", "-job"]),
            (vec!["--controllers=a,,b"], vec!["a", "", "b"]),
            (vec!["--controllers=\"a,b\",c"], vec!["a,b", "c"]),
            (vec!["--controllers="], vec![]),
        ] {
            assert_eq!(flag_values(&args).list("controllers"), want, "{args:?}");
        }
    }

    #[test]
    fn empty_address_keeps_the_previous_value() {
        for (args, want) in [
            (vec![], "0.0.0.0"),
            (vec!["--bind-address="], "0.0.0.0"),
            (vec!["--bind-address=1.2.3.4", "--bind-address="], "1.2.3.4"),
            (vec!["--bind-address=1.2.3.4", "--bind-address=::1"], "::1"),
        ] {
            assert_eq!(flag_values(&args).address("bind-address").to_string(), want, "{args:?}");
        }
    }

    #[test]
    fn number_of_workers_has_a_minimum_and_a_maximum() {
        for (count, want) in [
            ("1", Ok(1)),
            ("10000", Ok(10_000)),
            ("0", Err("0")),
            ("10001", Err("10001")),
            ("2147483647", Err("2147483647")),
        ] {
            let mut flag_values = flag_values(&[&format!("--concurrent-namespace-syncs={count}")]);
            let workers = flag_values.workers("concurrent-namespace-syncs");
            match want {
                Ok(want) => assert_eq!((workers, flag_values.finish()), (want, Ok(()))),
                Err(got) => {
                    let errors = flag_values.finish().unwrap_err();
                    assert!(
                        errors[0].starts_with("concurrent-namespace-syncs must")
                            && errors[0].ends_with(&format!("but got {got}")),
                        "{errors:?}"
                    );
                    assert!((1..=10_000).contains(&workers));
                }
            }
        }
    }

    #[test]
    fn flag_is_changed_only_by_another_meaning_than_its_default() {
        for (args, name, want) in [
            (vec![], "profiling", false),
            (vec!["--profiling=T"], "profiling", false),
            (vec!["--profiling=f"], "profiling", true),
            (
                vec!["--cluster-signing-duration=365h60m", "--cluster-signing-duration=8760h"],
                "cluster-signing-duration",
                false,
            ),
            (vec!["--cluster-signing-duration=1h"], "cluster-signing-duration", true),
            (vec!["--concurrent-gc-syncs=0x14"], "concurrent-gc-syncs", false),
            (vec!["--node-eviction-rate=1e-1"], "node-eviction-rate", false),
            (vec!["--requestheader-group-headers=x-remote-group"], "requestheader-group-headers", false),
            (vec!["--requestheader-group-headers=a"], "requestheader-group-headers", true),
            (vec!["--root-ca-file="], "root-ca-file", false),
            (vec!["--root-ca-file=a"], "root-ca-file", true),
        ] {
            assert_eq!(flag_values(&args).is_changed(find(name).unwrap()), want, "{args:?}");
        }
    }

    #[test]
    fn every_default_has_the_syntax_of_its_kind() {
        // An empty value cannot be given for these kinds.
        let untyped =
            |it: &Flag| matches!(it.kind, Kind::Numbers | Kind::Map | Kind::CertKeys) && it.default.is_empty();
        for flag in flags().filter(|it| !untyped(it)) {
            assert_eq!(value::check(flag.kind, flag.default).err(), None, "--{}={}", flag.name, flag.default);
        }
    }
}
