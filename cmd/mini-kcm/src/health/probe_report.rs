use std::{collections::BTreeSet, fmt::Write as _};

use serving::{SMALL_RESPONSE, shortened};

use super::ProbeQuery;

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
pub struct ProbeReport {
    /// 200 or 500.
    pub healthy: bool,
    /// `ok`, or one line per check.
    pub text: String,
}

impl ProbeReport {
    /// The report of one check that was requested by name, with its reason.
    pub(super) fn of(check: Check) -> Self {
        match check.failure {
            None => Self { healthy: true, text: "ok".to_owned() },
            Some(failure) => {
                Self { healthy: false, text: truncated(format!("internal server error: {failure}"), "\n") }
            }
        }
    }
}

/// Truncates `text` so that it fits with `end` into a small answer, which occupies no request slot while it is
/// sent.
fn truncated(mut text: String, end: &str) -> String {
    text.truncate(text.floor_char_boundary(SMALL_RESPONSE.saturating_sub(end.len())));
    text + end
}

/// One line of the verbose answer.
struct CheckLine {
    passes: bool,
    text: String,
}

/// Joins the lines in their order, followed by `end`. When they do not fit into a small answer, the last passing lines
/// are left out. Otherwise, with a hundred CRDs, the failing line could be cut off.
fn joined(mut lines: Vec<CheckLine>, end: &str) -> String {
    let size = |lines: &[CheckLine], rest: &str| lines.iter().map(|it| it.text.len()).sum::<usize>() + rest.len();
    let (all, mut rest) = (lines.len(), end.to_owned());
    while size(&lines, &rest) > SMALL_RESPONSE
        && let Some(last) = lines.iter().rposition(|it| it.passes)
    {
        lines.remove(last);
        rest = format!("{} more checks pass\n{end}", all - lines.len());
    }
    truncated(lines.into_iter().map(|it| it.text).collect(), &rest)
}

/// True when a check passed at its last request and fails now, or the other way round.
pub(super) fn record_result(failing: &mut BTreeSet<String>, check: &Check) -> bool {
    match check.failure {
        Some(_) => failing.insert(check.name.clone()),
        None => failing.remove(&check.name),
    }
}

/// Builds the answer with upstream's words and calls `observe` for each check that counts.
///
/// The reason of a failure is logged but not in the answer, because any client may read the answer. Any client may also
/// ask often, so the reason is one log line at a high verbosity.
pub(super) fn report(probe: &str, checks: Vec<Check>, query: &ProbeQuery, observe: impl Fn(&Check)) -> ProbeReport {
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
        lines.push(CheckLine { passes, text });
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
        return ProbeReport { healthy, text: "ok".to_owned() };
    }
    ProbeReport { healthy, text: joined(lines, &end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK: &str = "failed election to renew leadership on lease x";

    fn checks() -> Vec<Check> {
        vec![Check::new("leaderElection", Err(STUCK.to_owned())), Check::new("a", Ok(()))]
    }

    fn probe_report(query: &str) -> ProbeReport {
        report("healthz", checks(), &ProbeQuery::parse(query), |_| {})
    }

    #[test]
    fn acceptance_shell_025_a_failing_check_fails_the_probe_without_showing_its_reason() {
        let failed = probe_report("");
        assert!(!failed.healthy);
        assert_eq!(failed.text, "[-]leaderElection failed: reason withheld\n[+]a ok\nhealthz check failed\n");
    }

    #[test]
    fn acceptance_shell_024_an_excluded_check_does_not_fail_the_probe() {
        assert_eq!(probe_report("exclude=leaderElection"), ProbeReport { healthy: true, text: "ok".to_owned() });
        let verbose = probe_report("verbose&exclude=leaderElection&exclude=nope&exclude=no%22pe");
        assert_eq!(
            verbose.text,
            "[+]leaderElection excluded: ok\n[+]a ok\nwarn: some health checks cannot be excluded: no matches for \
             \"no\\\"pe\", \"nope\"\nhealthz check passed\n"
        );
    }

    #[test]
    fn probe_response_stays_small_and_ends_with_the_result() {
        let many =
            || (0..200).map(|it| Check::new(&format!("informer-sync/kind-{it}"), Err("x".repeat(9_000)))).collect();
        let text = report("readyz", many(), &ProbeQuery::parse(&format!("exclude={}", "x".repeat(9_000))), |_| {}).text;
        assert!(text.len() <= serving::SMALL_RESPONSE, "{}", text.len());
        assert!(text.starts_with("[-]informer-sync/kind-0 failed"), "{text}");
        assert!(text.contains("no matches for \"xxx") && text.ends_with("x…\nreadyz check failed\n"), "{text}");
        let one = ProbeReport::of(Check::new("a", Err("é".repeat(9_000)))).text;
        assert!(one.len() <= serving::SMALL_RESPONSE && one.starts_with("internal server error: é"), "{one}");
    }

    #[test]
    fn failing_check_is_shown_when_passing_checks_are_left_out() {
        let mut checks: Vec<Check> =
            (0..200).map(|it| Check::new(&format!("informer-sync/kind-{it}"), Ok(()))).collect();
        checks.insert(150, Check::new("informer-sync/widgets", Err("not synced".to_owned())));
        let text = report("readyz", checks, &ProbeQuery::default(), |_| {}).text;
        assert!(text.len() <= serving::SMALL_RESPONSE, "{}", text.len());
        assert!(text.starts_with("[+]informer-sync/kind-0 ok\n"), "{text}");
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        let passed = text.lines().filter(|it| it.starts_with("[+]")).count();
        let left_out = format!("{} more checks pass", 200 - passed);
        assert_eq!(lines, ["readyz check failed", &left_out, "[-]informer-sync/widgets failed: reason withheld"]);
    }

    #[test]
    fn change_of_a_check_is_logged_once() {
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
            assert_eq!(record_result(&mut failing, &Check::new(name, result.clone())), want, "{name} {result:?}");
        }
    }

    #[test]
    fn check_requested_by_name_shows_its_reason() {
        let [failing, well] = <[Check; 2]>::try_from(checks()).unwrap_or_else(|_| panic!("two"));
        assert_eq!(ProbeReport::of(well), ProbeReport { healthy: true, text: "ok".to_owned() });
        assert_eq!(ProbeReport::of(failing).text, format!("internal server error: {STUCK}\n"));
    }
}
