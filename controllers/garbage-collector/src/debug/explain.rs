//! Explains to users why one object still exists, or that it will be deleted.
//!
//! The text is no decision: deletions depend on live reads, and this shows the known state only.

use std::fmt::Write;

use api::{OwnerRef, Uid};

use crate::graph::{Graph, Item, ObjectState, ObjectView};

/// Facts about an object from outside the graph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    /// This process is the leader. A standby writes nothing.
    pub(crate) is_leader: bool,
    /// The known results about its owners.
    pub(crate) owners: Vec<(Uid, OwnerProof)>,
    /// How often in a row a pass for it failed.
    pub(crate) failures: u32,
    /// The error of the last pass.
    pub(crate) error: Option<String>,
    /// Why the delete limiter delays the object, if it does.
    pub(crate) held: Option<String>,
    /// Types whose monitors have not synced.
    pub(crate) unsynced: Vec<String>,
}

/// The known result about one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerProof {
    Gone,
    /// It is gone, and its dependents must stay.
    Orphaned,
    /// It could not be read, for this reason.
    Unprovable(String),
}

/// The known state of an object, and the next step.
pub(crate) fn explain(graph: &Graph, uid: &Uid, facts: &Facts) -> String {
    let Some(view) = graph.view(uid) else {
        return format!(
            "Uid {uid} is unknown: no monitor shows it, and no object that is shown names it as its owner.\n"
        );
    };
    let mut text = describe_state(uid, &view);
    let refs = view.meta.as_ref().map(|it| &*it.owners).unwrap_or_default();
    let owners: Vec<Owner<'_>> = refs.iter().map(|it| Owner::new(graph, facts, it)).collect();
    for owner in &owners {
        let _ = writeln!(text, "Owner: {}.", owner.describe());
    }
    write_dependents(&mut text, graph, uid, &view);
    write_waiting(&mut text, &view, facts);
    let _ = writeln!(text, "Next: {}.", next_step(&view, &owners, facts));
    text
}

fn describe_state(uid: &Uid, view: &ObjectView) -> String {
    let name = view.coordinates.as_ref().map_or_else(|| format!("uid {uid}"), ToString::to_string);
    let mut text = match view.state {
        ObjectState::Observed => {
            let by = view.resource.as_ref().map(ToString::to_string).unwrap_or_default();
            let version = view.meta.as_ref().map(|it| it.version.to_string()).unwrap_or_default();
            format!("{name} is observed by the monitor of {by}, at version {version}.\n")
        }
        ObjectState::Virtual => {
            format!("{name} is virtual: it is known only from references, and no monitor has shown it.\n")
        }
        ObjectState::Unwatched => {
            format!("{name} is unwatched: it was observed, but the monitor of its type has stopped.\n")
        }
        ObjectState::Gone => format!("{name} is gone, but other objects still name it as their owner.\n"),
    };
    if view.deleting {
        let finalizers = view.meta.as_ref().map(|it| &*it.finalizers).unwrap_or_default();
        let finalizers: Vec<&str> = finalizers.iter().map(|it| &**it).collect();
        let _ = match finalizers.as_slice() {
            [] => writeln!(text, "It is being deleted."),
            some => writeln!(text, "It is being deleted, with finalizers {}.", some.join(", ")),
        };
    }
    text
}

/// The number of dependents that are named. Of more, only the number is shown.
const NAMED: usize = 5;

fn write_dependents(text: &mut String, graph: &Graph, uid: &Uid, view: &ObjectView) {
    let ObjectView { dependents, blocking, .. } = view;
    if *dependents == 0 {
        return;
    }
    let _ = writeln!(text, "Dependents: {dependents}, of which {blocking} block its deletion in the foreground.");
    let mut names = blocking_names(graph, uid);
    let blockers = names.len();
    let others = graph.dependents(uid).into_iter().filter(|it| !it.is_blocking(uid));
    names.extend(others.map(|it| it.coordinates.to_string()));
    // The blocking dependents come first.
    let (first, rest) = names.split_at_mut(blockers);
    first.sort();
    rest.sort();
    for name in names.iter().take(NAMED) {
        let _ = writeln!(text, "- {name}");
    }
    if names.len() > NAMED {
        let _ = writeln!(text, "- and {} more", names.len() - NAMED);
    }
}

/// The names of the dependents that block its deletion, observed or not.
fn blocking_names(graph: &Graph, uid: &Uid) -> Vec<String> {
    let name = |item: Item| match item {
        Item::Observed(uid) => {
            let coordinates = graph.view(&uid).and_then(|it| it.coordinates);
            format!("{}, blocks", coordinates.map_or_else(|| format!("uid {uid}"), |it| it.to_string()))
        }
        Item::Virtual(coordinates) => format!("{coordinates}, blocks, though its type is no longer watched"),
    };
    graph.blocking(uid).into_iter().map(|(item, _)| name(item)).collect()
}

fn write_waiting(text: &mut String, view: &ObjectView, facts: &Facts) {
    let Facts { is_leader, owners: _, failures, error, held, unsynced } = facts;
    if !is_leader {
        text.push_str("Waiting: this manager is a standby, so it writes nothing.\n");
    }
    if view.is_due {
        text.push_str("Waiting: it is queued.\n");
    }
    if *failures > 0 {
        let _ = match error {
            Some(why) => writeln!(text, "Waiting: {failures} attempts in a row failed, the last one as {why}."),
            // Such an attempt is no failure.
            None => writeln!(
                text,
                "Waiting: {failures} attempts in a row had no result: no watch shows it yet, or it changes constantly."
            ),
        };
    }
    if let Some(held) = held {
        let _ = writeln!(text, "Waiting: the delete limit delays it: {held}.");
    }
    if !unsynced.is_empty() {
        let _ = writeln!(
            text,
            "Waiting: not all dependents may be known, as these types have not synced: {}.",
            unsynced.join(", ")
        );
    }
}

/// A reference, and the known state of the owner.
struct Owner<'a> {
    named: &'a OwnerRef,
    proof: Option<&'a OwnerProof>,
    view: Option<ObjectView>,
}

impl<'a> Owner<'a> {
    fn new(graph: &Graph, facts: &'a Facts, named: &'a OwnerRef) -> Self {
        let proof = facts.owners.iter().find(|(uid, _)| *uid == named.uid).map(|(_, proof)| proof);
        Self { named, proof, view: graph.view(&named.uid) }
    }

    fn describe(&self) -> String {
        let OwnerRef { api_version, kind, name, uid, controller: _, block_owner_deletion } = self.named;
        let blocks = if *block_owner_deletion { ", which this blocks in the foreground" } else { "" };
        format!("{api_version}/{kind} {name}, uid {uid}{blocks}: {}", self.state())
    }

    fn state(&self) -> String {
        match self.proof {
            Some(OwnerProof::Gone) => return "proved gone".to_owned(),
            Some(OwnerProof::Orphaned) => return "proved gone, and its dependents stay".to_owned(),
            Some(OwnerProof::Unprovable(why)) => return format!("it cannot be looked up: {why}"),
            None => {}
        }
        let Some(view) = &self.view else { return "it is unknown".to_owned() };
        let words = match view.state {
            ObjectState::Observed if view.deleting_dependents => {
                "observed, waiting for its dependents to be deleted first"
            }
            ObjectState::Observed if view.deleting => "observed, being deleted",
            ObjectState::Observed => "observed, and not being deleted",
            ObjectState::Virtual => "not observed yet, and looked up live",
            ObjectState::Unwatched => "its type is no longer watched; it is looked up live",
            ObjectState::Gone => "it is no longer shown, and a live read must prove that it is gone",
        };
        words.to_owned()
    }

    fn is_live(&self) -> bool {
        let seen = |it: &ObjectView| it.state == ObjectState::Observed && !it.deleting_dependents;
        self.proof.is_none() && self.view.as_ref().is_some_and(seen)
    }

    fn is_waiting(&self) -> bool {
        self.proof.is_none() && self.view.as_ref().is_some_and(|it| it.deleting_dependents)
    }

    fn is_gone(&self) -> bool {
        self.proof == Some(&OwnerProof::Gone) || self.was_orphaned()
    }

    fn was_orphaned(&self) -> bool {
        self.proof == Some(&OwnerProof::Orphaned)
    }
}

fn next_step(view: &ObjectView, owners: &[Owner<'_>], facts: &Facts) -> &'static str {
    match view.state {
        ObjectState::Virtual | ObjectState::Unwatched => {
            return "a live read checks if it exists; its dependents stay until a read proves it gone";
        }
        ObjectState::Gone => return "its dependents are deleted, except those with another owner that exists",
        ObjectState::Observed => {}
    }
    if view.orphaning {
        return "its dependents lose their references to it, then it is deleted";
    }
    if view.deleting_dependents && view.blocking > 0 {
        return "it is deleted when no dependent blocks it any more";
    }
    if view.deleting_dependents {
        return "the finalizer foregroundDeletion is removed";
    }
    if view.deleting {
        return "nothing: it is deleted when its remaining finalizers are removed by their own controllers";
    }
    match owners {
        [] => "nothing: it has no owner, so it stays",
        _ if owners.iter().any(Owner::is_live) && owners.iter().all(Owner::is_live) => {
            "nothing: its owners exist, so it stays"
        }
        _ if owners.iter().any(Owner::is_live) => {
            "it stays, as an owner exists; references to owners that are gone are removed"
        }
        _ if owners.iter().all(Owner::was_orphaned) => {
            "it stays, as it was orphaned; references to owners that are gone are removed"
        }
        _ if !owners.iter().all(|it| it.is_gone() || it.is_waiting()) => "it stays until each owner is proved gone",
        _ if facts.held.is_some() => "it is deleted when the delete limit allows it",
        _ => "it is deleted, as none of its owners stays",
    }
}

#[cfg(test)]
mod tests;
