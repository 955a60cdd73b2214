//! Checks whether a manager with these flags can do its work in this cluster: permissions, the server's version,
//! clocks, other managers.
//!
//! `--preflight` runs the checks once and exits with the findings. A running manager also runs them, in parallel to its
//! election, so that they never delay or stop it. It logs the findings as warnings. A check changes nothing in the
//! cluster. Reading order: this file sends the requests; `rights` (the needed permissions), `grant` (rules that grant
//! the missing ones), `server` (version and clock) and `rivals` (other managers) evaluate the answers.

mod grant;
mod rights;
mod rivals;
mod server;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use client::{Api, ApiError, Clients, Connection, Environment};
use clock::{Clock, Timestamp};
use metrics::{IntCounterVec, IntGaugeVec};
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use self::rights::{Wanted, Who};
use self::{rights::Access, rivals::Foreign, server::Version};
use crate::{config::Config, serve::Reviewers};

/// The interval of the checks in a running manager.
const AGAIN: Duration = Duration::from_secs(300);
/// A running manager delays its first check, because it has more urgent requests at its start.
const FIRST: Duration = Duration::from_secs(2);
/// The timeout of one run of the checks. It sends about thirty requests of a few milliseconds each.
const LONGEST: Duration = Duration::from_secs(30);
/// A larger clock difference, in seconds, is a finding. Leases tolerate it, because no manager compares the times of a
/// Lease with its own clock. A controller that waits for a time from an object acts too early or too late by it.
const CLOCKS_DIFFER: f64 = 5.0;
/// The check of the flags.
const FLAGS: &str = "flags";

/// Runs the preflight checks of one manager.
pub struct Preflight {
    config: Config,
    clients: Clients,
    /// Clients for the reviews of the serving port; `None` without a connection.
    authenticator: Option<Clients>,
    authorizer: Option<Clients>,
    clock: Clock,
    findings: IntGaugeVec,
    foreign: IntCounterVec,
    /// The foreign writes that are already counted.
    seen: Mutex<BTreeSet<Foreign>>,
    /// The time on our clock when our term began.
    led: Mutex<Option<Timestamp>>,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The manager cannot do all of its work.
    Error,
    /// The manager can probably do its work.
    Warning,
    /// Nothing is wrong.
    Note,
}

/// A result that the operator should see.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The check: `flags`, `server`, `version`, `clock`, `rights`, `rivals`.
    pub check: &'static str,
    /// One sentence.
    pub text: String,
}

/// The result of one run of the checks.
#[derive(Debug, Default)]
pub struct Report {
    /// Sorted.
    pub findings: Vec<Finding>,
    /// The checks whose findings are new. The findings of all other checks stay as they were.
    pub looked: BTreeSet<&'static str>,
    /// Permissions that are certainly missing.
    pub missing: Vec<Wanted>,
    /// The user names of the kubeconfigs.
    pub users: BTreeMap<Who, String>,
}

impl Report {
    /// True when no needed permission is missing and no other error was found.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.findings.iter().all(|it| it.severity != Severity::Error)
    }

    /// The findings as text, followed by YAML for `kubectl apply`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Finding { severity, check, text: what } in &self.findings {
            let word = match severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            text.push_str(&format!("# {word}: {check}: {}\n", what.replace('\n', " ")));
        }
        if !self.missing.is_empty() {
            text.push_str("# These rules grant what is missing:\n");
            text.push_str(&grant::yaml(&self.missing, &self.users));
        }
        // A flag without effect counts as missing, although no rule can grant it.
        let asked_in_vain = self.findings.iter().any(|it| it.check == FLAGS);
        if self.is_fine() && self.missing.is_empty() && !asked_in_vain {
            text.push_str("# Nothing is missing.\n");
        }
        text
    }

    fn tell(&mut self, severity: Severity, check: &'static str, text: String) {
        self.findings.push(Finding { severity, check, text });
    }
}

impl Preflight {
    /// For a manager with this configuration, with its clients and the connections of its serving port.
    #[must_use]
    pub fn new(config: &Config, clients: &Clients, reviewers: &Reviewers, environment: &Environment) -> Self {
        let Environment { clock, metrics, .. } = environment;
        let with = |it: &Option<Connection>| it.clone().map(|it| Clients::new(it, environment.clone()));
        Self {
            config: config.clone(),
            clients: clients.clone(),
            authenticator: with(&reviewers.authentication),
            authorizer: with(&reviewers.authorization),
            clock: clock.clone(),
            findings: metrics.gauges(
                "mini_kcm_preflight_findings",
                "What a look around found missing or doubtful, by what was looked at.",
                &["check"],
            ),
            foreign: metrics.counters(
                "mini_kcm_foreign_writes_total",
                "Writes of another controller manager where only this controller of ours should write.",
                &["controller", "manager"],
            ),
            seen: Mutex::default(),
            led: Mutex::default(),
        }
    }

    /// Our term begins. From now on no other manager should do the same work.
    pub fn leads(&self) {
        *self.led.lock() = Some(self.clock.wall());
    }

    /// Runs the checks periodically while the manager runs, and logs new findings. When all permissions are granted,
    /// they are not checked again: they are rarely removed, and a controller logs a denied request.
    pub async fn watch(&self) {
        tokio::time::sleep(FIRST).await;
        let mut told: BTreeSet<Finding> = BTreeSet::new();
        let mut all_granted = false;
        loop {
            let report = self.look_at(!all_granted).await;
            all_granted |= report.looked.contains("rights") && report.findings.iter().all(|it| it.check != "rights");
            self.tell(report, &mut told);
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn tell(&self, report: Report, told: &mut BTreeSet<Finding>) {
        let Report { findings, looked, missing, users: _ } = report;
        let findings: BTreeSet<Finding> = findings.into_iter().filter(|it| it.severity != Severity::Note).collect();
        for check in &looked {
            let count = findings.iter().filter(|it| it.check == *check).count();
            self.findings.with_label_values(&[*check]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let new: Vec<&Finding> = findings.difference(told).collect();
        for Finding { check, text, .. } in &new {
            tracing::warn!(check, "preflight: {text}");
        }
        if new.iter().any(|it| it.check == "rights") && !missing.is_empty() {
            tracing::info!("--preflight prints the rules that grant what is missing");
        }
        let was_fine = told.is_empty();
        // Findings of a check that was not completed stay.
        told.retain(|it| !looked.contains(it.check));
        told.extend(findings);
        if told.is_empty() && !was_fine {
            tracing::info!("preflight: nothing is missing any more");
        }
    }

    /// Runs all checks once. It includes the warnings about flags, which a running manager logs at its start.
    pub async fn look(&self) -> Report {
        let mut report = self.look_at(true).await;
        report.looked.insert(FLAGS);
        for warning in &self.config.warnings {
            report.tell(Severity::Warning, FLAGS, warning.clone());
        }
        report
    }

    async fn look_at(&self, rights: bool) -> Report {
        let mut report = Report::default();
        report.looked.insert("server");
        let all = async {
            let api = self.clients.unfenced("preflight", self.config.limits);
            let Some(ahead) = self.look_at_server(&api, &mut report).await else { return };
            if rights {
                self.look_at_rights(&mut report).await;
            }
            self.look_for_rivals(&api, ahead, &mut report).await;
        };
        if tokio::time::timeout(LONGEST, all).await.is_err() {
            report.tell(Severity::Error, "server", format!("it did not answer everything within {LONGEST:?}"));
        }
        report
    }

    /// Returns by how many seconds our clock is ahead of the server's; `None` when the server does not answer.
    async fn look_at_server(&self, api: &Api, report: &mut Report) -> Option<f64> {
        let sent = self.clock.wall();
        let (answer, date) = match api.read_dated("/version", "*/*").await {
            Ok(answer) => answer,
            Err(err) => {
                report.looked.insert("version");
                report.tell(Severity::Error, "version", format!("the server does not tell its version: {err}"));
                return (err.code() != 0).then_some(0.0);
            }
        };
        let received = self.clock.wall();
        report.looked.insert("version");
        match server::version(&answer) {
            Version::Known => {}
            Version::TooOld(version) => {
                let oldest = server::OLDEST;
                let text =
                    format!("the server is {version}, older than 1.{oldest}, the oldest that this manager works with");
                report.tell(Severity::Error, "version", text);
            }
            Version::TooNew(version) => {
                let text =
                    format!("the server is {version}, newer than 1.{}: what is new in it is not known", server::NEWEST);
                report.tell(Severity::Warning, "version", text);
            }
            Version::Unknown => {
                report.tell(Severity::Warning, "version", "the server does not tell its version".to_owned());
            }
        }
        let Some(date) = date else {
            let text = "the server does not tell its time, so clocks were not compared; ours is taken for right";
            report.tell(Severity::Note, "clock", text.to_owned());
            return Some(0.0);
        };
        let ahead = server::ahead(date, sent, received);
        report.looked.insert("clock");
        self.look_at_clocks(ahead, report);
        Some(ahead)
    }

    fn look_at_clocks(&self, ahead: f64, report: &mut Report) {
        if ahead.abs() < CLOCKS_DIFFER {
            return;
        }
        // A Lease is judged by its observed changes. So a smaller difference than the lease duration is no danger for
        // it.
        let lease = self.config.election.as_ref().map_or(f64::INFINITY, |it| it.lease_duration.as_secs_f64());
        let severity = if ahead.abs() < lease { Severity::Warning } else { Severity::Error };
        let direction = if ahead > 0.0 { "ahead of" } else { "behind" };
        report.tell(severity, "clock", format!("our clock is {:.0} s {direction} the server's", ahead.abs()));
    }

    async fn look_at_rights(&self, report: &mut Report) {
        let sides = [
            (Who::Manager, Some(&self.clients)),
            (Who::Authenticator, self.authenticator.as_ref()),
            (Who::Authorizer, self.authorizer.as_ref()),
        ];
        let mut askers = BTreeMap::new();
        for (who, clients) in sides {
            let Some(clients) = clients else { continue };
            let api = clients.unfenced("preflight", self.config.limits);
            let user = user(&api).await.unwrap_or_else(|| format!("<the user of --{}>", who.name()));
            report.users.insert(who.clone(), user);
            askers.insert(who, api);
        }
        for wanted in rights::wanted(&self.config) {
            if let Some(api) = askers.get(&wanted.who.asker()) {
                review(api, wanted, report).await;
            }
        }
        // Marked only after the last review. An incomplete check must not remove earlier findings.
        report.looked.insert("rights");
    }

    async fn look_for_rivals(&self, api: &Api, ahead: f64, report: &mut Report) {
        let now = server::by_server(self.clock.wall(), ahead);
        let led = *self.led.lock();
        let led = led.map(|it| server::by_server(it, ahead));
        let ours = self.config.election.as_ref().map(|it| it.name.as_str());
        let leaders = match self.leases(api).await {
            Ok(leases) => rivals::leaders(&leases, now),
            Err(err) => {
                let text = format!("cannot see whether another manager leads under another Lease: {err}");
                report.tell(Severity::Warning, "rivals", text);
                Vec::new()
            }
        };
        if let Some(since) = rivals::since(led, ours, &leaders) {
            self.look_for_foreign(api, (since, now), report).await;
        }
        for rivals::Leader { lease, holder, .. } in &leaders {
            if Some(lease.as_str()) != ours {
                let text = format!("{holder} leads under the Lease {lease}: see that its --controllers leave out ours");
                report.tell(Severity::Warning, "rivals", text);
            } else if led.is_none() {
                let text = format!("{holder} leads now under our Lease {lease}: we would stand by");
                report.tell(Severity::Note, "rivals", text);
            }
        }
        report.looked.insert("rivals");
    }

    /// The Leases in the namespace of our Lease.
    async fn leases(&self, api: &Api) -> Result<Value, ApiError> {
        let namespace = self.config.election.as_ref().map_or("kube-system", |it| it.namespace.as_str());
        list(api, &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?limit=500")).await
    }

    /// Finds writes of other managers between these two times, to subresources that only our controllers should write.
    async fn look_for_foreign(&self, api: &Api, times: (Timestamp, Timestamp), report: &mut Report) {
        let mut foreign = BTreeSet::new();
        for (known, _) in self.config.controllers.ours() {
            for mark in known.profile.marks {
                match list(api, mark.list).await {
                    Ok(objects) => foreign.extend(rivals::foreign(known.name, &objects, mark.subresource, times)),
                    Err(err) => {
                        let text = format!("cannot see whether another manager does the work of {}: {err}", known.name);
                        report.tell(Severity::Warning, "rivals", text);
                        // Earlier writes of this controller may appear again, so they stay counted.
                        foreign.extend(self.seen.lock().iter().filter(|it| it.controller == known.name).cloned());
                    }
                }
            }
        }
        for controller in foreign.iter().map(|it| it.controller).collect::<BTreeSet<_>>() {
            let last = foreign.iter().filter(|it| it.controller == controller).max_by_key(|it| it.at);
            let Some(Foreign { object, manager, at, .. }) = last else { continue };
            let text = format!("{manager} does the work of {controller} too: it wrote {object} at {at}");
            report.tell(Severity::Error, "rivals", text);
        }
        self.count(foreign);
    }

    /// Counts and logs writes that were not seen before. A write that is no longer recent does not appear again.
    fn count(&self, foreign: BTreeSet<Foreign>) {
        let mut seen = self.seen.lock();
        for it in foreign.difference(&seen) {
            self.foreign.with_label_values(&[it.controller, &it.manager]).inc();
            let Foreign { controller, object, manager, .. } = it;
            tracing::warn!(controller, object, manager, "another manager does this controller's work too");
        }
        *seen = foreign;
    }
}

async fn review(api: &Api, wanted: Wanted, report: &mut Report) {
    let (path, question) = wanted.question();
    let asked = api.post(path, &question).await;
    let access = asked.map_or_else(|err| Access::Unknown(err.to_string()), |it| rights::access(&it));
    let who = match &wanted.who {
        Who::Account(name) => client::account_user(name),
        other => report.users.get(other).cloned().unwrap_or_default(),
    };
    let (what, purpose) = (wanted.text(), &wanted.purpose);
    let severity = if wanted.needed { Severity::Error } else { Severity::Warning };
    match access {
        Access::Granted => {}
        Access::Denied => {
            report.tell(severity, "rights", format!("{who} may not {what}, which {purpose} needs"));
            report.missing.push(wanted);
        }
        Access::Unknown(why) => {
            let text = format!("it is not known whether {who} may {what}, which {purpose} needs: {why}");
            report.tell(severity, "rights", text);
        }
    }
}

async fn list(api: &Api, path: &str) -> Result<Value, ApiError> {
    let bytes = api.read(path, "application/json").await?;
    serde_json::from_slice(&bytes).map_err(|err| ApiError::unknown(format!("{path}: {err}")))
}

/// The user name of this client at the API server; `None` when the review fails.
async fn user(api: &Api) -> Option<String> {
    let question = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let answer = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &question).await.ok()?;
    let answer: Value = serde_json::from_slice(&answer).ok()?;
    answer["status"]["userInfo"]["username"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_missing_only_where_neither_flags_nor_rights_say_otherwise() {
        let finding = |severity, check| Finding { severity, check, text: "a\nb".to_owned() };
        for (name, findings, fine, whole, line) in [
            ("nothing found", vec![], true, true, ""),
            ("flags in vain", vec![finding(Severity::Warning, FLAGS)], true, false, "# warning: flags: a b\n"),
            ("a newer server", vec![finding(Severity::Warning, "version")], true, true, "# warning: version: a b\n"),
            ("a note", vec![finding(Severity::Note, "clock")], true, true, "# note: clock: a b\n"),
            ("an older server", vec![finding(Severity::Error, "version")], false, false, "# error: version: a b\n"),
        ] {
            let report = Report { findings, ..Report::default() };
            let text = report.text();
            assert_eq!(report.is_fine(), fine, "{name}");
            assert_eq!(text.contains("# Nothing is missing."), whole, "{name}: {text}");
            assert!(text.contains(line), "{name}: {text}");
        }
    }
}
