//! What each manager wrote, by the audit log of the API server.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, ensure};
use e2e::{Audit, AuditEvent, eventually};
use jiff::Timestamp;

use crate::{
    kubelet::BUILT_IN,
    support::shipped::{controllers, document, strings},
};

/// The controllers whose account has another name.
const ACCOUNTS: [(&str, &str); 6] = [
    ("replicationcontroller-controller", "replication-controller"),
    ("garbage-collector-controller", "generic-garbage-collector"),
    ("daemonset-controller", "daemon-set-controller"),
    ("pod-garbage-collector-controller", "pod-garbage-collector"),
    (NODES, NODE_ACCOUNT),
    (EVICTIONS, NODE_ACCOUNT),
];
const NODES: &str = "node-lifecycle-controller";
const EVICTIONS: &str = "taint-eviction-controller";
/// The account of both.
const NODE_ACCOUNT: &str = "node-controller";
/// Upstream runs it every 20 seconds, and the load has no work for it most of the time.
const RARELY: &str = "pod-garbage-collector-controller";
const NAMESPACES: &str = "namespace-controller";
/// The pause of `docs/operations.md`.
const PAUSE: Duration = Duration::from_secs(20);
/// On a busy machine the load gives a controller nothing to write for this time at most.
const WITHOUT_WORK: Duration = Duration::from_secs(5);
/// A namespace is emptied only when it was terminating for this time.
const NAMESPACE_DELAY: Duration = Duration::from_secs(5);

/// A program that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    BuiltIn,
    Ours,
}

/// The audit log with the controllers of our manifests.
pub(crate) struct Writers {
    audit: Audit,
    /// The names in `--controllers` of our manifests.
    controllers: Vec<String>,
}

/// A write of one of these controllers.
struct Write<'a> {
    controller: &'a str,
    event: &'a AuditEvent,
    program: Program,
}

impl Writers {
    pub(crate) fn new(audit: Audit) -> Self {
        let deployment = document("base/deployment.yaml");
        let args = strings(&deployment["spec"]["template"]["spec"]["containers"][0]["args"]);
        Self { audit, controllers: controllers(&args).into_iter().map(str::to_owned).collect() }
    }

    /// How many controllers are swapped.
    pub(crate) fn controllers(&self) -> usize {
        self.controllers.len()
    }

    /// Waits until this program has written as each controller since this moment.
    pub(crate) async fn until_all_by(&mut self, program: Program, within: Duration) -> anyhow::Result<()> {
        let (audit, controllers) = (&mut self.audit, &self.controllers);
        let mut next = audit.events()?.len();
        let mut missing: Vec<&String> = controllers.iter().filter(|it| *it != RARELY).collect();
        eventually(&format!("work of each controller by {program:?}"), within, async || {
            let events = audit.events()?;
            let new = events.get(next..).unwrap_or_default().iter();
            for write in new.filter_map(|it| write(controllers, it)).filter(|it| it.event.succeeded()) {
                missing.retain(|it| write.program != program || **it != write.controller);
            }
            next = events.len();
            ensure!(missing.is_empty(), "not yet by {missing:?}");
            Ok(Some(()))
        })
        .await
    }

    /// The pod of mini-kcm that holds the Lease, and its identity in the Lease.
    pub(crate) fn leader(&mut self) -> anyhow::Result<(String, String)> {
        let last = self.audit.last("leader", |it| is_holder_write(it, "mini-kcm"))?;
        Ok((last.pod().to_owned(), last.lease_holder().unwrap_or_default().to_owned()))
    }

    /// Waits until another process than `old` leads and has written this many times.
    pub(crate) async fn until_new_leader(&mut self, old: &str, count: usize, within: Duration) -> anyhow::Result<()> {
        let is_by = |it: &AuditEvent, old_one: bool| {
            is_holder_write(it, "mini-kcm") && (it.lease_holder() == Some(old)) == old_one
        };
        let (audit, controllers) = (&mut self.audit, &self.controllers);
        eventually(&format!("{count} writes of a new leader"), within, async || {
            let events = audit.events()?;
            let last = events.iter().rposition(|it| is_by(it, true)).context("the old leader")?;
            let term = events[last..].iter().skip_while(|it| !is_by(it, false));
            let work = term.filter_map(|it| write(controllers, it));
            Ok((work.filter(|it| it.program == Program::Ours).count() >= count).then_some(()))
        })
        .await
    }

    /// Checks that no two programs, no two processes of the built-in manager and no two pods of ours wrote as one
    /// controller at the same time. `starts` are those of the processes of the built-in manager.
    pub(crate) fn check_one_writer(&mut self, starts: &[Timestamp]) -> anyhow::Result<()> {
        let (audit, controllers) = (&mut self.audit, &self.controllers);
        let events = audit.events()?;
        let mut writes: Vec<Write<'_>> = events.iter().filter_map(|it| write(controllers, it)).collect();
        writes.sort_by_key(|it| it.event.received);
        // By the number of the process: a process runs its controllers from its first write to its last one.
        let mut built_in: BTreeMap<(&str, usize), [&AuditEvent; 2]> = BTreeMap::new();
        for Write { controller, event, .. } in writes.iter().filter(|it| it.program == Program::BuiltIn) {
            let process = starts.iter().filter(|it| **it <= event.received).count();
            built_in.entry((*controller, process)).or_insert([*event; 2])[1] = *event;
        }
        let ours: Vec<&Write<'_>> = writes.iter().filter(|it| it.program == Program::Ours).collect();
        ensure!(!ours.is_empty() && !built_in.is_empty(), "both have written");
        for ((controller, process), [first, last]) in &built_in {
            let is_between = |it: &&&Write<'_>| {
                it.controller == *controller && it.event.received > first.received && it.event.received < last.received
            };
            let between: Vec<String> = ours.iter().filter(is_between).map(|it| describe(it.event)).collect();
            ensure!(
                between.is_empty(),
                "{} writes of ours as {controller} while process {process} of the built-in manager wrote, from {} to {}:\n{}",
                between.len(),
                describe(first),
                describe(last),
                between.join("\n")
            );
        }
        let terms: Vec<&AuditEvent> = events.iter().filter(|it| is_holder_write(it, "mini-kcm")).collect();
        for Write { event, .. } in &ours {
            let term = terms.iter().rev().find(|it| it.completed <= event.received);
            let term = term.with_context(|| format!("a write without a Lease: {}", describe(event)))?;
            ensure!(
                term.pod() == event.pod(),
                "{} wrote {} after {} has taken the Lease at {}",
                event.pod(),
                describe(event),
                term.pod(),
                term.completed
            );
        }
        // On the Lease of the built-in manager ours never leads.
        let foreign = events.iter().find(|it| is_holder_write(it, BUILT_IN) && program(it) == Some(Program::Ours));
        ensure!(foreign.is_none(), "{foreign:?}");
        Ok(())
    }

    /// The longest time without a write of each controller, which has had work all the time since `begin`.
    pub(crate) fn check_pauses(&mut self, begin: Timestamp, end: Timestamp) -> anyhow::Result<()> {
        let (audit, controllers) = (&mut self.audit, &self.controllers);
        let events = audit.events()?;
        let mut pauses = Vec::new();
        for controller in controllers.iter().filter(|it| *it != RARELY) {
            let writes = events.iter().filter(|it| it.succeeded() && it.completed > begin && it.completed < end);
            let of_controller = writes.filter_map(|it| write(controllers, it)).filter(|it| it.controller == controller);
            let mut times: Vec<Timestamp> = of_controller.map(|it| it.event.completed).collect();
            times.extend([begin, end]);
            times.sort();
            let gaps = times.windows(2).map(|it| (it[1].duration_since(it[0]).unsigned_abs(), it[0]));
            let (longest, since) = gaps.max().context("no writes")?;
            pauses.push((longest, since, controller));
        }
        pauses.sort();
        for (pause, since, controller) in pauses.iter().rev().take(3) {
            e2e::report(&format!("longest pause of {controller}: {pause:.1?} since {since}"));
        }
        for (pause, since, controller) in pauses {
            let delay = if controller == NAMESPACES { NAMESPACE_DELAY } else { Duration::ZERO };
            let most = PAUSE + WITHOUT_WORK + delay;
            ensure!(pause <= most, "{controller} had no writer for {pause:.1?} since {since}");
        }
        Ok(())
    }
}

/// A write of one of these controllers. A request that was refused for missing rights changes nothing.
fn write<'a>(controllers: &'a [String], event: &'a AuditEvent) -> Option<Write<'a>> {
    if !event.is_work() || matches!(event.code(), 401 | 403) {
        return None;
    }
    let program = program(event)?;
    let client = event.user_agent.rsplit(['/', ':']).next()?;
    let controller = controllers.iter().find(|it| it.as_str() == controller_of(client, event))?;
    Some(Write { controller, event, program })
}

/// The controller of a client, by our names.
fn controller_of<'a>(client: &'a str, event: &AuditEvent) -> &'a str {
    if matches!(client, NODE_ACCOUNT | NODES | EVICTIONS) {
        // Both mark pods, so that only these writes are told apart.
        return match (event.resource().as_str(), event.verb.as_str()) {
            ("nodes" | "nodes/status", _) => NODES,
            ("pods", "delete") => EVICTIONS,
            _ => "",
        };
    }
    ACCOUNTS.iter().find(|(_, account)| *account == client).map_or(client, |(controller, _)| controller)
}

fn program(event: &AuditEvent) -> Option<Program> {
    match event.user_agent.split('/').next()? {
        BUILT_IN => Some(Program::BuiltIn),
        "mini-kcm" => Some(Program::Ours),
        _ => None,
    }
}

/// True for a successful write by the holder of this Lease.
fn is_holder_write(event: &AuditEvent, lease: &str) -> bool {
    event.name() == lease && event.lease_holder().is_some_and(|it| !it.is_empty())
}

fn describe(event: &AuditEvent) -> String {
    format!("{} {} {} ({})", event.received, event.summary(), event.pod(), event.user_agent)
}
