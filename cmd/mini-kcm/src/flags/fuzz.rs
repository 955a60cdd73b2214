//! Generated command lines and durations: parsing never panics, and every error names its flag.
//!
//! `CASES=1000000 cargo test -p mini-kcm --lib fuzz` runs as many cases. A failure prints the number of its case.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use super::{Invocation, Kind, flags, parse, parse_duration};
use crate::config::Config;

fn cases() -> u64 {
    std::env::var("CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(2_000)
}

/// Runs each case with its own generator, so that one case can be repeated alone.
fn run_cases(mut case: impl FnMut(&mut Rng) -> Result<(), String>) {
    for number in 0..cases() {
        let result = catch_unwind(AssertUnwindSafe(|| case(&mut Rng::with_seed(number))));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(why)) => panic!("case {number}: {why}"),
            Err(_) => panic!("case {number} panicked"),
        }
    }
}

const PIECES: &[&str] = &[
    "0",
    "1",
    "9",
    "12",
    "10257",
    "65536",
    "2147483648",
    "9223372036854775808",
    "1e400",
    "0x",
    "0x1f",
    "p99999",
    "0b1",
    "1_0",
    "-",
    "+",
    ".",
    ",",
    "=",
    ":",
    "\"",
    " ",
    "_",
    "true",
    "false",
    "T",
    "raw",
    "inf",
    "NaN",
    "1.5",
    "ns",
    "us",
    "µs",
    "μs",
    "ms",
    "s",
    "m",
    "h",
    "d",
    "5m0s",
    "1h",
    "é",
    "\u{0}",
    "\n",
    "🦀",
    "*",
    "-job",
    "namespace",
    "foo",
    "kube",
    "1.36",
    "1.37",
    "v1.37.0",
    "AtomicFIFO",
    "AllAlpha",
    "127.0.0.1",
    "::",
    "::1%eth0",
    "/no/such/file",
    "external",
    "leases",
    "Ki",
    "E",
    "text",
    "json",
    "VersionTLS13",
    "metric,label",
    "'",
    "%",
    "{}",
    "\\",
];

fn random_text(rng: &mut Rng, max: usize) -> String {
    (0..rng.usize(0..=max)).map(|_| PIECES[rng.usize(..PIECES.len())]).collect()
}

#[test]
fn fuzzed_durations_are_parsed_or_refused_with_the_text() {
    run_cases(|rng| {
        let text = random_text(rng, 6);
        match parse_duration(&text) {
            Ok(duration) if duration.as_nanos() > u128::from(i64::MAX.unsigned_abs()) => {
                Err(format!("{text:?} is longer than Go can hold: {duration:?}"))
            }
            Ok(_) => Ok(()),
            Err(err) if err.to_string().contains(&format!("{text:?}")) => Ok(()),
            Err(err) => Err(format!("{text:?} is not in {err}")),
        }
    });
}

/// One argument, usually a valid flag.
fn argument(rng: &mut Rng, all: &[(&str, Kind)]) -> Vec<String> {
    let (name, kind) = all[rng.usize(..all.len())];
    // Flags that only print are not useful here.
    if matches!(name, "help" | "version") {
        return Vec::new();
    }
    let name = if rng.u8(..) < 16 { name.replace('-', "_") } else { name.to_owned() };
    match rng.u8(..) {
        0..8 => vec![random_text(rng, 4)],
        8..16 => vec![format!("--{}={}", random_text(rng, 3), random_text(rng, 2))],
        16..24 => vec![format!("-{}", random_text(rng, 3))],
        24..48 => vec![format!("--{name}")],
        48..80 if kind != Kind::Bool => vec![format!("--{name}"), random_text(rng, 3)],
        _ => vec![format!("--{name}={}", random_text(rng, 3))],
    }
}

/// Upstream's messages that contain the argument and not the name of a flag.
const WITHOUT_FLAG: &[&str] = &[
    "unknown flag: ",
    "unknown shorthand flag: ",
    "bad flag syntax: ",
    "does not take any arguments",
    "is not in the list of known controllers",
];

#[test]
fn fuzzed_command_lines_are_run_or_refused_with_the_flag() {
    let all: Vec<(&str, Kind)> = flags().map(|it| (it.name, it.kind)).collect();
    let named = |error: &str| {
        WITHOUT_FLAG.iter().any(|it| error.contains(it))
            || all.iter().any(|(name, _)| name.len() > 1 && error.contains(name))
            || error.contains("--v")
            || error.contains("'v' in ")
    };
    let (mut ran, mut refused) = (0_u64, 0_u64);
    run_cases(|rng| {
        let args: Vec<String> = (0..rng.usize(1..6)).flat_map(|_| argument(rng, &all)).collect();
        let Invocation::Run(flag_values) = parse(args.iter().cloned()) else { return Ok(()) };
        match Config::new(flag_values) {
            Ok(_) => ran += 1,
            Err(errors) => {
                refused += 1;
                if let Some(error) = errors.iter().find(|it| !named(it)) {
                    return Err(format!("{args:?}: no flag in {error:?}"));
                }
            }
        }
        Ok(())
    });
    assert!(ran > cases() / 100 && refused > cases() / 100, "{ran} ran, {refused} were refused");
}
