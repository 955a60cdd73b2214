use std::{collections::BTreeSet, fmt::Write as _};

use serving::{SMALL_RESPONSE, shortened};

use super::Query;

/// The result of one check, one line of a probe's answer.
pub(super) struct Check {
    pub(super) name: String,
    /// Why it failed; `None` when it passed.
    pub(super) failure: Option<String>,
    /// Shown in the verbose answer.
    pub(super) note: String,
}

impl Check {
    pub(super) fn new(name: &str, result: Result<(), String>) -> Self {
        Self { name: name.to_owned(), failure: result.err(), note: String::new() }
    }
}

/// The answer to a probe: healthy or not, and the text.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// 200 or 500.
    pub healthy: bool,
    /// `ok`, or one line per check.
    pub text: String,
}

impl Report {
    /// The report of one check that was requested by name, with its reason.
    pub(super) fn of(check: Check) -> Self {
        match check.failure {
            None => Self { healthy: true, text: "ok".to_owned() },
            Some(failure) => Self { healthy: false, text: small(format!("internal server error: {failure}"), "\n") },
        }
    }
}

/// Truncates `text` so that it fits with `end` into a small answer, which occupies no request slot while it is
/// sent.
fn small(mut text: String, end: &str) -> String {
    text.truncate(text.floor_char_boundary(SMALL_RESPONSE.saturating_sub(end.len())));
    text + end
}

/// One line of the verbose answer.
struct Line {
    passes: bool,
    text: String,
}

/// Joins the lines in their order, followed by `end`. When they do not fit into a small answer, the last passing lines
/// are left out. Otherwise, with a hundred CRDs, the failing line could be cut off.
fn fitting(mut lines: Vec<Line>, end: &str) -> String {
    let size = |lines: &[Line], rest: &str| lines.iter().map(|it| it.text.len()).sum::<usize>() + rest.len();
    let (all, mut rest) = (lines.len(), end.to_owned());
    while size(&lines, &rest) > SMALL_RESPONSE
        && let Some(last) = lines.iter().rposition(|it| it.passes)
    {
        lines.remove(last);
        rest = format!("{} more checks pass\n{end}", all - lines.len());
    }
    small(lines.into_iter().map(|it| it.text).collect(), &rest)
}

/// True when a check passed at its last request and fails now, or the other way round.
pub(super) fn turns(failing: &mut BTreeSet<String>, check: &Check) -> bool {
    match check.failure {
        Some(_) => failing.insert(check.name.clone()),
        None => failing.remove(&check.name),
    }
}

/// Builds the answer with upstream's words and calls `observe` for each check that counts.
///
/// The reason of a failure is logged but not in the answer, because any client may read the answer. Any client may also
/// ask often, so the reason is one log line at a high verbosity.
pub(super) fn report(probe: &str, checks: Vec<Check>, query: &Query, observe: impl Fn(&Check)) -> Report {
    let mut unknown: BTreeSet<&str> = query.exclude.iter().map(String::as_str).collect();
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    for check in checks {
        let excluded = query.exclude.contains(&check.name);
        unknown.remove(check.name.as_str());
        if !excluded {
            observe(&check);
        }
        let Check { name, failure, note } = check;
        let passes = excluded || failure.is_none();
        let text = if excluded {
            format!("[+]{name} excluded: ok\n")
        } else if let Some(failure) = failure {
            failures.push(format!("{name}: {failure}"));
            format!("[-]{name} failed: reason withheld\n")
        } else if note.is_empty() {
            format!("[+]{name} ok\n")
        } else {
            format!("[+]{name} ok ({note})\n")
        };
        lines.push(Line { passes, text });
    }
    let mut end = String::new();
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|it| format!("{it:?}")).collect();
        let names = shortened(&names.join(", "));
        // Writing into a string cannot fail.
        let _ = writeln!(end, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    let healthy = failures.is_empty();
    let _ = writeln!(end, "{probe} check {}", if healthy { "passed" } else { "failed" });
    if !healthy {
        tracing::debug!(target: "v2", probe, failed = failures.join("; "), "Probe failed");
    } else if !query.verbose {
        return Report { healthy, text: "ok".to_owned() };
    }
    Report { healthy, text: fitting(lines, &end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK: &str = "failed election to renew leadership on lease x";

    fn checks() -> Vec<Check> {
        vec![Check::new("leaderElection", Err(STUCK.to_owned())), Check::new("a", Ok(()))]
    }

    fn asked(query: &str) -> Report {
        report("healthz", checks(), &Query::parse(query), |_| {})
    }

    #[test]
    fn acceptance_shell_025_a_failing_check_fails_the_probe_and_keeps_its_reason_to_itself() {
        let failed = asked("");
        assert!(!failed.healthy);
        assert_eq!(failed.text, "[-]leaderElection failed: reason withheld\n[+]a ok\nhealthz check failed\n");
    }

    #[test]
    fn acceptance_shell_024_a_check_that_is_excluded_fails_no_probe() {
        assert_eq!(asked("exclude=leaderElection"), Report { healthy: true, text: "ok".to_owned() });
        let verbose = asked("verbose&exclude=leaderElection&exclude=nope&exclude=no%22pe");
        assert_eq!(
            verbose.text,
            "[+]leaderElection excluded: ok\n[+]a ok\nwarn: some health checks cannot be excluded: no matches for \
             \"no\\\"pe\", \"nope\"\nhealthz check passed\n"
        );
    }

    #[test]
    fn an_answer_stays_small_and_says_how_it_ends() {
        let many =
            || (0..200).map(|it| Check::new(&format!("informer-sync/kind-{it}"), Err("x".repeat(9_000)))).collect();
        let text = report("readyz", many(), &Query::parse(&format!("exclude={}", "x".repeat(9_000))), |_| {}).text;
        assert!(text.len() <= serving::SMALL_RESPONSE, "{}", text.len());
        assert!(text.starts_with("[-]informer-sync/kind-0 failed"), "{text}");
        assert!(text.contains("no matches for \"xxx") && text.ends_with("x…\nreadyz check failed\n"), "{text}");
        let one = Report::of(Check::new("a", Err("é".repeat(9_000)))).text;
        assert!(one.len() <= serving::SMALL_RESPONSE && one.starts_with("internal server error: é"), "{one}");
    }

    #[test]
    fn a_check_that_fails_is_told_though_not_all_that_pass_have_room() {
        let mut checks: Vec<Check> =
            (0..200).map(|it| Check::new(&format!("informer-sync/kind-{it}"), Ok(()))).collect();
        checks.insert(150, Check::new("informer-sync/widgets", Err("not synced".to_owned())));
        let text = report("readyz", checks, &Query::default(), |_| {}).text;
        assert!(text.len() <= serving::SMALL_RESPONSE, "{}", text.len());
        assert!(text.starts_with("[+]informer-sync/kind-0 ok\n"), "{text}");
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        let passed = text.lines().filter(|it| it.starts_with("[+]")).count();
        let left_out = format!("{} more checks pass", 200 - passed);
        assert_eq!(lines, ["readyz check failed", &left_out, "[-]informer-sync/widgets failed: reason withheld"]);
    }

    #[test]
    fn a_check_that_goes_on_failing_is_told_once_and_so_is_its_end() {
        let mut failing = BTreeSet::new();
        let (bad, good) = (Err(STUCK.to_owned()), Ok(()));
        for (name, result, want) in [
            ("a", good.clone(), false),
            ("a", bad.clone(), true),
            ("a", bad.clone(), false),
            ("b", bad.clone(), true),
            ("a", good.clone(), true),
            ("a", good, false),
            ("b", bad, false),
        ] {
            assert_eq!(turns(&mut failing, &Check::new(name, result.clone())), want, "{name} {result:?}");
        }
    }

    #[test]
    fn a_check_that_is_asked_for_by_name_gives_its_reason() {
        let [failing, well] = <[Check; 2]>::try_from(checks()).unwrap_or_else(|_| panic!("two"));
        assert_eq!(Report::of(well), Report { healthy: true, text: "ok".to_owned() });
        assert_eq!(Report::of(failing).text, format!("internal server error: {STUCK}\n"));
    }
}
