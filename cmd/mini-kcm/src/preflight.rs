//! Checks whether a manager with these flags can do its work in this cluster: permissions, the server's version,
//! clocks, other managers.
//!
//! `--preflight` runs the checks once and exits with the findings. A running manager also runs them, in parallel to its
//! election, so that they never delay or stop it. It logs the findings as warnings. A check changes nothing in the
//! cluster. Reading order: this file sends the requests; `permissions` (the needed permissions), `rbac_yaml` (rules
//! that grant the missing ones), `server` (version and clock) and `other_managers` evaluate the answers.

mod other_managers;
mod permissions;
mod rbac_yaml;
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

pub use self::permissions::{Permission, Requester};
use self::{other_managers::ForeignWrite, permissions::AccessReviewResult, server::VersionSupport};
use crate::{config::Config, serve::ReviewConnections};

/// The interval of the checks in a running manager.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);
/// A running manager delays its first check, because it has more urgent requests at its start.
const FIRST_DELAY: Duration = Duration::from_secs(2);
/// The timeout of one run of the checks. It sends about thirty requests of a few milliseconds each.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A larger clock difference, in seconds, is a finding. Leases tolerate it, because no manager compares the times of a
/// Lease with its own clock. A controller that waits for a time from an object acts too early or too late by it.
const MAX_CLOCK_DIFFERENCE: f64 = 5.0;
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
    /// The foreign writes that the last check found.
    seen: Mutex<BTreeSet<ForeignWrite>>,
    /// For each controller that was held back: when that ended on our clock, `None` as long as it lasts.
    held_back: Mutex<BTreeMap<&'static str, Option<Timestamp>>>,
    /// The time on our clock when our term began.
    term_begun_at: Mutex<Option<Timestamp>>,
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
    /// The check: `flags`, `server`, `version`, `clock`, `rights`, `rivals`, `interlock`.
    pub check: &'static str,
    /// One sentence.
    pub text: String,
}

/// The result of one run of the checks.
#[derive(Debug, Default)]
pub struct PreflightReport {
    /// Sorted.
    pub findings: Vec<Finding>,
    /// The checks whose findings are new. The findings of all other checks stay as they were.
    pub completed: BTreeSet<&'static str>,
    /// Permissions that are certainly missing.
    pub missing: Vec<Permission>,
    /// The user names of the kubeconfigs.
    pub users: BTreeMap<Requester, String>,
}

impl PreflightReport {
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
            let label = match severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            text.push_str(&format!("# {label}: {check}: {}\n", what.replace('\n', " ")));
        }
        if !self.missing.is_empty() {
            text.push_str("# These rules grant what is missing:\n");
            text.push_str(&rbac_yaml::yaml(&self.missing, &self.users));
        }
        // A flag without effect counts as missing, although no rule can grant it.
        let has_flag_warning = self.findings.iter().any(|it| it.check == FLAGS);
        if self.is_fine() && self.missing.is_empty() && !has_flag_warning {
            text.push_str("# Nothing is missing.\n");
        }
        text
    }

    /// Adds a finding.
    pub(crate) fn add_finding(&mut self, severity: Severity, check: &'static str, text: String) {
        self.findings.push(Finding { severity, check, text });
    }
}

impl Preflight {
    /// For a manager with this configuration, with its clients and the connections of its serving port.
    #[must_use]
    pub fn new(
        config: &Config,
        clients: &Clients,
        review_connections: &ReviewConnections,
        environment: &Environment,
    ) -> Self {
        let Environment { clock, metrics, .. } = environment;
        let with = |it: &Option<Connection>| it.clone().map(|it| Clients::new(it, environment.clone()));
        Self {
            config: config.clone(),
            clients: clients.clone(),
            authenticator: with(&review_connections.authentication),
            authorizer: with(&review_connections.authorization),
            clock: clock.clone(),
            findings: metrics.gauges(
                "mini_kcm_preflight_findings",
                "Findings of the preflight checks, by check.",
                &["check"],
            ),
            foreign: metrics.counters(
                "mini_kcm_foreign_writes_total",
                "Writes of another controller manager to a subresource that only this controller should write.",
                &["controller", "manager"],
            ),
            seen: Mutex::default(),
            held_back: Mutex::default(),
            term_begun_at: Mutex::default(),
        }
    }

    /// Our term begins. From now on no other manager should do the same work.
    pub fn on_term_begun(&self) {
        *self.term_begun_at.lock() = Some(self.clock.wall());
    }

    /// Records which controllers are held back now. Another manager may do their work until then.
    pub fn set_held_back(&self, controllers: BTreeSet<&'static str>) {
        let now = self.clock.wall();
        let mut held_back = self.held_back.lock();
        for (_, ended) in held_back.iter_mut().filter(|it| !controllers.contains(it.0)) {
            ended.get_or_insert(now);
        }
        held_back.extend(controllers.into_iter().map(|it| (it, None)));
    }

    /// The controllers whose work another manager was observed to do lately, with this manager.
    #[must_use]
    pub fn foreign_writers(&self) -> BTreeMap<&'static str, String> {
        let now = self.clock.wall();
        let seen = self.seen.lock();
        // The last check may be long ago, or may have failed.
        seen.iter().filter(|it| it.is_recent(now)).map(|it| (it.controller, it.manager.clone())).collect()
    }

    /// Runs the checks periodically while the manager runs, and logs new findings. When all permissions are granted,
    /// they are not checked again: they are rarely removed, and a controller logs a denied request.
    pub async fn run_periodically(&self) {
        tokio::time::sleep(FIRST_DELAY).await;
        let mut reported: BTreeSet<Finding> = BTreeSet::new();
        let mut all_granted = false;
        loop {
            let report = self.run_checks(!all_granted).await;
            all_granted |= report.completed.contains("rights") && report.findings.iter().all(|it| it.check != "rights");
            self.log_report(report, &mut reported);
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    fn log_report(&self, report: PreflightReport, reported: &mut BTreeSet<Finding>) {
        let PreflightReport { findings, completed, missing, users: _ } = report;
        let findings: BTreeSet<Finding> = findings.into_iter().filter(|it| it.severity != Severity::Note).collect();
        for check in &completed {
            let count = findings.iter().filter(|it| it.check == *check).count();
            self.findings.with_label_values(&[*check]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let new: Vec<&Finding> = findings.difference(reported).collect();
        for Finding { check, text, .. } in &new {
            tracing::warn!(check, "preflight: {text}");
        }
        if new.iter().any(|it| it.check == "rights") && !missing.is_empty() {
            tracing::info!("--preflight prints the rules that grant what is missing");
        }
        let was_fine = reported.is_empty();
        // Findings of a check that was not completed stay.
        reported.retain(|it| !completed.contains(it.check));
        reported.extend(findings);
        if reported.is_empty() && !was_fine {
            tracing::info!("preflight: nothing is missing any more");
        }
    }

    /// Runs all checks once. It includes the warnings about flags, which a running manager logs at its start.
    pub async fn run(&self) -> PreflightReport {
        let mut report = self.run_checks(true).await;
        report.completed.insert(FLAGS);
        for warning in &self.config.warnings {
            report.add_finding(Severity::Warning, FLAGS, warning.clone());
        }
        report
    }

    async fn run_checks(&self, include_permissions: bool) -> PreflightReport {
        let mut report = PreflightReport::default();
        report.completed.insert("server");
        let all = async {
            let api = self.clients.unfenced("preflight", self.config.limits);
            let Some(ahead) = self.check_server(&api, &mut report).await else { return };
            if include_permissions {
                self.check_permissions(&mut report).await;
            }
            self.check_other_managers(&api, ahead, &mut report).await;
        };
        if tokio::time::timeout(TIMEOUT, all).await.is_err() {
            report.add_finding(
                Severity::Error,
                "server",
                format!("the server did not answer all requests within {TIMEOUT:?}"),
            );
        }
        report
    }

    /// Returns by how many seconds our clock is ahead of the server's; `None` when the server does not answer.
    async fn check_server(&self, api: &Api, report: &mut PreflightReport) -> Option<f64> {
        let sent = self.clock.wall();
        let (answer, date) = match api.read_dated("/version", "*/*").await {
            Ok(answer) => answer,
            Err(err) => {
                report.completed.insert("version");
                report.add_finding(
                    Severity::Error,
                    "version",
                    format!("the server does not report its version: {err}"),
                );
                return (err.code() != 0).then_some(0.0);
            }
        };
        let received = self.clock.wall();
        report.completed.insert("version");
        match server::version(&answer) {
            VersionSupport::Known => {}
            VersionSupport::TooOld(version) => {
                let oldest = server::OLDEST;
                let text =
                    format!("the server is {version}, older than 1.{oldest}, the oldest that this manager works with");
                report.add_finding(Severity::Error, "version", text);
            }
            VersionSupport::TooNew(version) => {
                let text =
                    format!("the server is {version}, newer than 1.{}: its new features are not known", server::NEWEST);
                report.add_finding(Severity::Warning, "version", text);
            }
            VersionSupport::Unknown => {
                report.add_finding(Severity::Warning, "version", "the server does not report its version".to_owned());
            }
        }
        let Some(date) = date else {
            let text = "the server does not report its time, so clocks were not compared; ours is assumed to be right";
            report.add_finding(Severity::Note, "clock", text.to_owned());
            return Some(0.0);
        };
        let ahead = server::ahead(date, sent, received);
        report.completed.insert("clock");
        self.check_clock(ahead, report);
        Some(ahead)
    }

    fn check_clock(&self, ahead: f64, report: &mut PreflightReport) {
        if ahead.abs() < MAX_CLOCK_DIFFERENCE {
            return;
        }
        // Expiry of a Lease is measured from its observed changes, not from its times. So a difference that is smaller
        // than the lease duration does no harm.
        let lease = self.config.election.as_ref().map_or(f64::INFINITY, |it| it.lease_duration.as_secs_f64());
        let severity = if ahead.abs() < lease { Severity::Warning } else { Severity::Error };
        let direction = if ahead > 0.0 { "ahead of" } else { "behind" };
        report.add_finding(severity, "clock", format!("our clock is {:.0} s {direction} the server's", ahead.abs()));
    }

    async fn check_permissions(&self, report: &mut PreflightReport) {
        let requesters = [
            (Requester::Manager, Some(&self.clients)),
            (Requester::Authenticator, self.authenticator.as_ref()),
            (Requester::Authorizer, self.authorizer.as_ref()),
        ];
        let mut senders = BTreeMap::new();
        for (requester, clients) in requesters {
            let Some(clients) = clients else { continue };
            let api = clients.unfenced("preflight", self.config.limits);
            let user = user(&api).await.unwrap_or_else(|| format!("<the user of --{}>", requester.name()));
            report.users.insert(requester.clone(), user);
            senders.insert(requester, api);
        }
        for permission in permissions::needed_permissions(&self.config) {
            if let Some(api) = senders.get(&permission.requester.review_sender()) {
                review(api, permission, report).await;
            }
        }
        // Marked only after the last review. An incomplete check must not remove earlier findings.
        report.completed.insert("rights");
    }

    async fn check_other_managers(&self, api: &Api, ahead: f64, report: &mut PreflightReport) {
        let now = server::server_time(self.clock.wall(), ahead);
        let term_begun_at = *self.term_begun_at.lock();
        let term_begun_at = term_begun_at.map(|it| server::server_time(it, ahead));
        let ours = self.config.election.as_ref().map(|it| it.name.as_str());
        let leaders = match self.leases(api).await {
            Ok(leases) => other_managers::leaders(&leases, now),
            Err(err) => {
                let text = format!("cannot find out whether another manager leads under another Lease: {err}");
                report.add_finding(Severity::Warning, "rivals", text);
                Vec::new()
            }
        };
        if let Some(since) = other_managers::since(term_begun_at, ours, &leaders) {
            self.check_foreign_writes(api, (since, now), ahead, report).await;
        }
        for other_managers::Leader { lease, holder, .. } in &leaders {
            if Some(lease.as_str()) != ours {
                let text =
                    format!("{holder} leads under the Lease {lease}: check that its --controllers excludes ours");
                report.add_finding(Severity::Warning, "rivals", text);
            } else if term_begun_at.is_none() {
                let text = format!("{holder} leads now under our Lease {lease}: this process would be a standby");
                report.add_finding(Severity::Note, "rivals", text);
            }
        }
        report.completed.insert("rivals");
    }

    /// The Leases in the namespace of our Lease.
    async fn leases(&self, api: &Api) -> Result<Value, ApiError> {
        let namespace = self.config.election.as_ref().map_or("kube-system", |it| it.namespace.as_str());
        list(api, &format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?limit=500")).await
    }

    /// Finds writes of other managers between these two times, to subresources that only our controllers should write.
    async fn check_foreign_writes(
        &self,
        api: &Api,
        times: (Timestamp, Timestamp),
        ahead: f64,
        report: &mut PreflightReport,
    ) {
        let mut foreign = BTreeSet::new();
        for registration in self.config.controllers.implemented() {
            for mark in registration.profile.marks {
                match list(api, mark.list).await {
                    Ok(objects) => foreign.extend(other_managers::foreign_writes(
                        registration.name,
                        &objects,
                        mark.subresource,
                        times,
                    )),
                    Err(err) => {
                        let text = format!(
                            "cannot find out whether another manager does the work of {}: {err}",
                            registration.name
                        );
                        report.add_finding(Severity::Warning, "rivals", text);
                        // Earlier writes of this controller may appear again, so they stay counted.
                        foreign
                            .extend(self.seen.lock().iter().filter(|it| it.controller == registration.name).cloned());
                    }
                }
            }
        }
        let held_back = self.held_back.lock().clone();
        let is_fault = |it: &&ForeignWrite| match held_back.get(it.controller) {
            None => true,
            Some(None) => false,
            Some(Some(ended)) => it.is_after(server::server_time(*ended, ahead)),
        };
        let faults: BTreeSet<&ForeignWrite> = foreign.iter().filter(is_fault).collect();
        for controller in faults.iter().map(|it| it.controller).collect::<BTreeSet<_>>() {
            let last = faults.iter().filter(|it| it.controller == controller).max_by_key(|it| it.at);
            let Some(ForeignWrite { object, manager, at, .. }) = last else { continue };
            let text = format!("{manager} does the work of {controller} too: it wrote {object} at {at}");
            report.add_finding(Severity::Error, "rivals", text);
        }
        self.count(&faults);
        *self.seen.lock() = foreign;
    }

    /// Counts and logs writes that were not seen before. A write that is no longer recent does not appear again.
    fn count(&self, faults: &BTreeSet<&ForeignWrite>) {
        let seen = self.seen.lock();
        for it in faults.iter().filter(|it| !seen.contains(**it)) {
            self.foreign.with_label_values(&[it.controller, &it.manager]).inc();
            let ForeignWrite { controller, object, manager, .. } = it;
            tracing::warn!(controller, object, manager, "another manager also runs this controller");
        }
    }
}

async fn review(api: &Api, permission: Permission, report: &mut PreflightReport) {
    let (path, question) = permission.review_request();
    let asked = api.post(path, &question).await;
    let access = asked.map_or_else(|err| AccessReviewResult::Unknown(err.to_string()), |it| permissions::access(&it));
    let requester = match &permission.requester {
        Requester::Account(name) => client::account_user(name),
        other => report.users.get(other).cloned().unwrap_or_default(),
    };
    let (what, purpose) = (permission.text(), &permission.purpose);
    let severity = if permission.needed { Severity::Error } else { Severity::Warning };
    match access {
        AccessReviewResult::Granted => {}
        AccessReviewResult::Denied => {
            report.add_finding(severity, "rights", format!("{requester} may not {what}, which {purpose} needs"));
            report.missing.push(permission);
        }
        AccessReviewResult::Unknown(why) => {
            let text = format!("it is not known whether {requester} may {what}, which {purpose} needs: {why}");
            report.add_finding(severity, "rights", text);
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
    fn nothing_is_missing_when_neither_flags_nor_permissions_have_findings() {
        let finding = |severity, check| Finding { severity, check, text: "a\nb".to_owned() };
        for (name, findings, fine, whole, line) in [
            ("nothing found", vec![], true, true, ""),
            ("flags without effect", vec![finding(Severity::Warning, FLAGS)], true, false, "# warning: flags: a b\n"),
            ("a newer server", vec![finding(Severity::Warning, "version")], true, true, "# warning: version: a b\n"),
            ("a note", vec![finding(Severity::Note, "clock")], true, true, "# note: clock: a b\n"),
            ("an older server", vec![finding(Severity::Error, "version")], false, false, "# error: version: a b\n"),
        ] {
            let report = PreflightReport { findings, ..PreflightReport::default() };
            let text = report.text();
            assert_eq!(report.is_fine(), fine, "{name}");
            assert_eq!(text.contains("# Nothing is missing."), whole, "{name}: {text}");
            assert!(text.contains(line), "{name}: {text}");
        }
    }
}
