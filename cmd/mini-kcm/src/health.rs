//! What probes are told.

use std::{fmt::Write as _, sync::Arc};

use informer::Informers;
use parking_lot::Mutex;

/// The checks of one manager, shared with its server.
#[derive(Clone, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    election: Option<leader_election::Health>,
    /// Running controllers; empty on a standby.
    controllers: Vec<&'static str>,
    informers: Option<Informers>,
}

/// One line of a probe's answer.
struct Check {
    name: String,
    /// Why it fails; `None` when it is well.
    failure: Option<String>,
    /// Said in the verbose answer.
    note: String,
}

/// What a probe gets: healthy or not, and the text.
pub struct Report {
    /// 200 or 500.
    pub healthy: bool,
    /// `ok`, or a line per check.
    pub text: String,
}

impl Health {
    /// Adds the check of the Lease.
    pub fn watch_election(&self, election: leader_election::Health) {
        self.0.lock().election = Some(election);
    }

    /// Adds a check for each running controller: after all were built, so that a probe fails for none in between.
    pub fn run_controllers(&self, names: Vec<&'static str>) {
        self.0.lock().controllers = names;
    }

    /// Makes readiness depend on the caches.
    pub fn watch_informers(&self, informers: Informers) {
        self.0.lock().informers = Some(informers);
    }

    /// The answer of `/healthz` and `/livez`.
    #[must_use]
    pub fn live(&self, query: &Query) -> Report {
        report("healthz", self.liveness(), query)
    }

    /// The answer of `/readyz`: caches synced too.
    #[must_use]
    pub fn ready(&self, query: &Query) -> Report {
        let mut checks = self.liveness();
        let informers = self.0.lock().informers.clone();
        for watched in informers.iter().flat_map(Informers::all) {
            let silent = watched.last_sign_of_life().map_or_else(
                || "no sign of life yet".to_owned(),
                |age| format!("last sign of life {} s ago", age.as_secs()),
            );
            checks.push(Check {
                name: format!("informer-sync/{}", watched.resource()),
                failure: (!watched.has_synced()).then(|| "not synced".to_owned()),
                note: silent,
            });
        }
        report("readyz", checks, query)
    }

    fn liveness(&self) -> Vec<Check> {
        let state = self.0.lock();
        let mut checks = Vec::new();
        if let Some(election) = &state.election {
            checks.push(Check {
                name: "leaderElection".to_owned(),
                failure: election.check().err().map(|it| it.to_string()),
                note: String::new(),
            });
        }
        for name in &state.controllers {
            checks.push(Check { name: (*name).to_owned(), failure: None, note: String::new() });
        }
        checks
    }
}

/// `?verbose` and `?exclude=name`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query {
    verbose: bool,
    exclude: Vec<String>,
}

impl Query {
    /// Reads the part of a URL behind the question mark.
    #[must_use]
    pub fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for pair in query.split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("verbose", _) => parsed.verbose = true,
                ("exclude", name) => parsed.exclude.push(name.to_owned()),
                _ => {}
            }
        }
        parsed
    }
}

fn report(name: &str, checks: Vec<Check>, query: &Query) -> Report {
    let mut text = String::new();
    let mut healthy = true;
    for check in checks {
        let Check { name, failure, note } = check;
        // Writing into a string cannot fail.
        let _ = if query.exclude.contains(&name) {
            writeln!(text, "[+]{name} excluded: ok")
        } else if let Some(failure) = failure {
            healthy = false;
            tracing::warn!(check = %name, %failure, "health check failed");
            writeln!(text, "[-]{name} failed: {failure}")
        } else if note.is_empty() {
            writeln!(text, "[+]{name} ok")
        } else {
            writeln!(text, "[+]{name} ok ({note})")
        };
    }
    if !healthy {
        text.push_str(name);
        text.push_str(" check failed\n");
    } else if query.verbose {
        text.push_str(name);
        text.push_str(" check passed\n");
    } else {
        text = "ok".to_owned();
    }
    Report { healthy, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, failure: Option<&str>) -> Check {
        Check { name: name.to_owned(), failure: failure.map(str::to_owned), note: String::new() }
    }

    #[test]
    fn acceptance_shell_023_verbose_answers_have_a_line_per_check() {
        let health = Health::default();
        health.run_controllers(vec!["namespace-controller"]);
        assert_eq!(health.live(&Query::parse("")).text, "ok");
        assert_eq!(health.live(&Query::parse("verbose")).text, "[+]namespace-controller ok\nhealthz check passed\n");
    }

    #[test]
    fn acceptance_shell_024_025_a_failing_check_fails_the_probe_unless_it_is_excluded() {
        let checks =
            || vec![check("leaderElection", Some("failed election to renew leadership on lease x")), check("a", None)];
        let failed = report("healthz", checks(), &Query::parse(""));
        assert!(!failed.healthy);
        assert!(failed.text.contains("[-]leaderElection failed") && failed.text.ends_with("healthz check failed\n"));
        assert!(report("healthz", checks(), &Query::parse("exclude=leaderElection")).healthy);
    }
}
