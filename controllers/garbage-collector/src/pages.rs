//! Two debug pages below `/debug/controllers/garbage-collector-controller/`: the graph as a drawing, and why an object
//! still exists or will be deleted. Both show the known state and send no requests.

use std::sync::Arc;

use api::{Meta, Uid};
use controller::{Builder, PageContent, Query};

use crate::{
    Ctx, dump,
    graph::{Coordinates, Item, Portrait, Seen},
    metrics::Why,
    why::{self, Facts, Proof},
};

/// The content type of upstream's `debugHTTPHandler`.
const GRAPHVIZ: &str = "text/vnd.graphviz";
const TEXT: &str = "text/plain; charset=utf-8";
const UID: &str = "uid";
/// Each object takes about 700 bytes of the page, which is in memory until it is sent.
const MOST_DRAWN: usize = 10_000;

pub(crate) fn declare(builder: &mut Builder, ctx: &Arc<Ctx>) {
    let (drawn, explained) = (ctx.clone(), ctx.clone());
    builder.page("graph", move |query| graph(&drawn, query));
    builder.page("why", move |query| explain(&explained, query));
}

/// The whole graph, or only what is connected with the requested objects.
fn graph(ctx: &Ctx, query: &Query) -> Result<PageContent, String> {
    let uids = dump::asked(query.all(UID));
    let vertices = ctx.known.ask(|graph| graph.vertices(&uids, MOST_DRAWN));
    let vertices = vertices.ok_or_else(|| too_many(uids.is_empty()))?;
    Ok(PageContent { content_type: GRAPHVIZ, text: dump::dot(&vertices) })
}

fn too_many(is_whole: bool) -> String {
    let what = if is_whole { "the graph has" } else { "connected with what was asked for are" };
    let instead = if is_whole { "a part of it" } else { "another part" };
    format!("{what} more than {MOST_DRAWN} objects, which are not drawn: ask for {instead} as ?uid=<uid of an object>")
}

fn explain(ctx: &Ctx, query: &Query) -> Result<PageContent, String> {
    let uids: Vec<&str> = query.all(UID).collect();
    let [uid] = *uids else { return Err("of which object? ask as ?uid=<its uid>".to_owned()) };
    let uid = Uid::new(uid);
    let facts = facts(ctx, &uid);
    let text = ctx.known.ask(|graph| why::why(graph, &uid, &facts));
    Ok(PageContent { content_type: TEXT, text })
}

/// Facts about an object from outside the graph.
fn facts(ctx: &Ctx, uid: &Uid) -> Facts {
    let portrait = ctx.known.ask(|graph| graph.portrait(uid));
    let item = portrait.as_ref().map_or_else(|| Item::Observed(uid.clone()), |it| item(uid, it));
    let meta = portrait.and_then(|it| it.meta);
    let held = ctx.breaker.lock().holds(&item);
    let trouble = ctx.meters.trouble(uid).map(|(of, why)| {
        format!("its owner of type {}/{} cannot be looked for: {}", of.api_version, of.kind, plainly(why))
    });
    Facts {
        leads: ctx.known.began().is_some(),
        owners: meta.map(|it| owners(ctx, &it)).unwrap_or_default(),
        failures: ctx.known.deletes.failures(&item).max(ctx.known.orphans.failures(uid)),
        error: ctx.failed.deletes.of(&item).or_else(|| ctx.failed.orphans.of(uid)).or(trouble),
        held: held.then(|| "as many objects as --gc-max-deletes-per-minute allows went in the last minute".to_owned()),
        unsynced: ctx.monitors.unsynced().iter().map(ToString::to_string).collect(),
    }
}

/// The queue item of an object.
fn item(uid: &Uid, portrait: &Portrait) -> Item {
    match (portrait.seen, &portrait.coordinates) {
        (Seen::Virtual | Seen::Unwatched, Some(it)) => Item::Virtual(Arc::new(it.clone())),
        _ => Item::Observed(uid.clone()),
    }
}

/// The known results about its owners.
fn owners(ctx: &Ctx, meta: &Meta) -> Vec<(Uid, Proof)> {
    let found = meta.owners.iter().filter_map(|owner| {
        if ctx.known.gone(&Coordinates::claimed(owner, &meta.namespace)).is_some() {
            let proof = if ctx.known.orphaned.has(&owner.uid) { Proof::Orphaned } else { Proof::Gone };
            return Some((owner.uid.clone(), proof));
        }
        let unknown = ctx.kinds.resource(&owner.api_version, &owner.kind).err()?;
        Some((owner.uid.clone(), Proof::Unprovable(unknown.to_string())))
    });
    found.collect()
}

fn plainly(why: Why) -> &'static str {
    match why {
        Why::UnknownKind => "it is not known where objects of its kind are",
        Why::NotServed => "the server does not serve it",
        Why::Misplaced => "it is namespaced, and its dependent is not",
        Why::Misnamed => "no object can have its name",
        Why::Failed => "the server could not tell",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_graph_that_is_too_large_names_the_query_for_a_part() {
        assert_eq!(
            too_many(true),
            "the graph has more than 10000 objects, which are not drawn: ask for a part of it as ?uid=<uid of an object>"
        );
        assert!(too_many(false).starts_with("connected with what was asked for are more than 10000 objects, "));
    }
}
