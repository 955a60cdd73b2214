//! Explains to users why one object still exists, or that it will be deleted.
//!
//! The text is no decision: deletions depend on live reads, and this shows the known state only.

use std::fmt::Write;

use api::{OwnerRef, Uid};

use crate::graph::{Graph, Item, Portrait, Seen};

/// Facts about an object from outside the graph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Facts {
    /// This process is the leader. A standby writes nothing.
    pub(crate) leads: bool,
    /// The known results about its owners.
    pub(crate) owners: Vec<(Uid, Proof)>,
    /// How often in a row a pass for it failed.
    pub(crate) failures: u32,
    /// The error of the last pass.
    pub(crate) error: Option<String>,
    /// The text of the breaker, if it delays the object.
    pub(crate) held: Option<String>,
    /// Types whose monitors have not synced.
    pub(crate) unsynced: Vec<String>,
}

/// The known result about one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    Gone,
    /// It is gone, and its dependents must stay.
    Orphaned,
    /// It could not be read, for this reason.
    Unprovable(String),
}

/// All that is known of an object, and what follows.
pub(crate) fn why(graph: &Graph, uid: &Uid, facts: &Facts) -> String {
    let Some(portrait) = graph.portrait(uid) else {
        return format!(
            "Nothing is known of uid {uid}: no monitor shows it, and nothing that is shown names it as its owner.\n"
        );
    };
    let mut text = known(uid, &portrait);
    let refs = portrait.meta.as_ref().map(|it| &*it.owners).unwrap_or_default();
    let owners: Vec<Owner<'_>> = refs.iter().map(|it| Owner::new(graph, facts, it)).collect();
    for owner in &owners {
        let _ = writeln!(text, "Owner: {}.", owner.words());
    }
    below(&mut text, graph, uid, &portrait);
    waiting(&mut text, &portrait, facts);
    let _ = writeln!(text, "Next: {}.", next(&portrait, &owners, facts));
    text
}

fn known(uid: &Uid, portrait: &Portrait) -> String {
    let name = portrait.coordinates.as_ref().map_or_else(|| format!("uid {uid}"), ToString::to_string);
    let mut text = match portrait.seen {
        Seen::Observed => {
            let by = portrait.resource.as_ref().map(ToString::to_string).unwrap_or_default();
            let version = portrait.meta.as_ref().map(|it| it.version.to_string()).unwrap_or_default();
            format!("{name} is observed by the monitor of {by}, at version {version}.\n")
        }
        Seen::Virtual => {
            format!("{name} is virtual: it is known only as others name it, and nobody has observed it.\n")
        }
        Seen::Unwatched => format!("{name} is unwatched: it was observed, but the monitor of its type has stopped.\n"),
        Seen::Gone => format!("{name} is gone, but others still name it as their owner.\n"),
    };
    if portrait.deleting {
        let finalizers = portrait.meta.as_ref().map(|it| &*it.finalizers).unwrap_or_default();
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

fn below(text: &mut String, graph: &Graph, uid: &Uid, portrait: &Portrait) {
    let Portrait { dependents, blocking, .. } = portrait;
    if *dependents == 0 {
        return;
    }
    let _ = writeln!(text, "Dependents: {dependents}, of which {blocking} block its deletion in the foreground.");
    let mut names = blocking_names(graph, uid);
    let blockers = names.len();
    let others = graph.dependents(uid).into_iter().filter(|it| !it.blocks(uid));
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
            let coordinates = graph.portrait(&uid).and_then(|it| it.coordinates);
            format!("{}, blocks", coordinates.map_or_else(|| format!("uid {uid}"), |it| it.to_string()))
        }
        Item::Virtual(coordinates) => format!("{coordinates}, blocks, though its type is watched no more"),
    };
    graph.blocking(uid).into_iter().map(|(item, _)| name(item)).collect()
}

fn waiting(text: &mut String, portrait: &Portrait, facts: &Facts) {
    let Facts { leads, owners: _, failures, error, held, unsynced } = facts;
    if !leads {
        text.push_str("Waiting: this manager does not lead, so it writes nothing.\n");
    }
    if portrait.is_due {
        text.push_str("Waiting: it is to be looked at.\n");
    }
    if *failures > 0 {
        let _ = match error {
            Some(why) => writeln!(text, "Waiting: {failures} attempts in a row failed, the last one as {why}."),
            // Such an attempt is no failure.
            None => writeln!(
                text,
                "Waiting: {failures} attempts in a row settled nothing: no watch shows it yet, or it changes all the time."
            ),
        };
    }
    if let Some(held) = held {
        let _ = writeln!(text, "Waiting: the breaker holds it back: {held}.");
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
    proof: Option<&'a Proof>,
    portrait: Option<Portrait>,
}

impl<'a> Owner<'a> {
    fn new(graph: &Graph, facts: &'a Facts, named: &'a OwnerRef) -> Self {
        let proof = facts.owners.iter().find(|(uid, _)| *uid == named.uid).map(|(_, proof)| proof);
        Self { named, proof, portrait: graph.portrait(&named.uid) }
    }

    fn words(&self) -> String {
        let OwnerRef { api_version, kind, name, uid, controller: _, block_owner_deletion } = self.named;
        let blocks = if *block_owner_deletion { ", which this blocks in the foreground" } else { "" };
        format!("{api_version}/{kind} {name}, uid {uid}{blocks}: {}", self.found())
    }

    fn found(&self) -> String {
        match self.proof {
            Some(Proof::Gone) => return "proved gone".to_owned(),
            Some(Proof::Orphaned) => return "proved gone, and its dependents were to stay".to_owned(),
            Some(Proof::Unprovable(why)) => return format!("it cannot be asked for, as {why}"),
            None => {}
        }
        let Some(portrait) = &self.portrait else { return "nothing is known of it".to_owned() };
        let words = match portrait.seen {
            Seen::Observed if portrait.deleting_dependents => "observed, waiting for its dependents to go first",
            Seen::Observed if portrait.deleting => "observed, being deleted",
            Seen::Observed => "observed, and not being deleted",
            Seen::Virtual => "not observed so far, and looked for live",
            Seen::Unwatched => "its type is watched no more, and it is looked for live",
            Seen::Gone => "it is shown no more, which is to be proved live",
        };
        words.to_owned()
    }

    fn lives(&self) -> bool {
        let seen = |it: &Portrait| it.seen == Seen::Observed && !it.deleting_dependents;
        self.proof.is_none() && self.portrait.as_ref().is_some_and(seen)
    }

    fn waits(&self) -> bool {
        self.proof.is_none() && self.portrait.as_ref().is_some_and(|it| it.deleting_dependents)
    }

    fn is_gone(&self) -> bool {
        self.proof == Some(&Proof::Gone) || self.was_orphaned()
    }

    fn was_orphaned(&self) -> bool {
        self.proof == Some(&Proof::Orphaned)
    }
}

fn next(portrait: &Portrait, owners: &[Owner<'_>], facts: &Facts) -> &'static str {
    match portrait.seen {
        Seen::Virtual | Seen::Unwatched => {
            return "a live read tells whether it is there; what depends on it stays until that proves it gone";
        }
        Seen::Gone => return "what depends on it is deleted, unless another owner of it lives",
        Seen::Observed => {}
    }
    if portrait.orphaning {
        return "its dependents lose their references to it, then it goes";
    }
    if portrait.deleting_dependents && portrait.blocking > 0 {
        return "it goes when no dependent blocks it any more";
    }
    if portrait.deleting_dependents {
        return "the finalizer foregroundDeletion is taken off";
    }
    if portrait.deleting {
        return "nothing here: it goes when its finalizers are taken off by whoever set them";
    }
    match owners {
        [] => "nothing: it has no owner, so it stays",
        _ if owners.iter().any(Owner::lives) && owners.iter().all(Owner::lives) => {
            "nothing: its owners live, so it stays"
        }
        _ if owners.iter().any(Owner::lives) => {
            "it stays, as an owner lives; references to those that are gone are taken off"
        }
        _ if owners.iter().all(Owner::was_orphaned) => {
            "it stays, as it was orphaned; references to those that are gone are taken off"
        }
        _ if !owners.iter().all(|it| it.is_gone() || it.waits()) => "it stays until each owner is proved gone",
        _ if facts.held.is_some() => "it is deleted as soon as the breaker lets it",
        _ => "it is deleted, as no owner of it stays",
    }
}

#[cfg(test)]
mod tests;
