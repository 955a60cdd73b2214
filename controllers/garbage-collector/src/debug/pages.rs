//! Two debug pages below `/debug/controllers/garbage-collector-controller/`: the graph as a drawing, and why an object
//! still exists or will be deleted. Both show the known state and send no requests.

use std::sync::Arc;

use api::{Meta, Uid};
use controller::{Builder, PageContent, Query};

use crate::{
    Ctx,
    debug::{
        dump,
        explain::{self, Facts, OwnerProof},
    },
    graph::{Coordinates, Item, ObjectState, ObjectView},
    metrics::UnresolvedReason,
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
    let uids = dump::uids_of_query(query.all(UID));
    let vertices = ctx.graph.read(|graph| graph.vertices(&uids, MOST_DRAWN));
    let vertices = vertices.ok_or_else(|| too_many(uids.is_empty()))?;
    Ok(PageContent { content_type: GRAPHVIZ, text: dump::dot(&vertices) })
}

fn too_many(is_whole: bool) -> String {
    let what = if is_whole { "the graph has" } else { "connected with the requested objects are" };
    let instead = if is_whole { "a part" } else { "another part" };
    format!("{what} more than {MOST_DRAWN} objects, which are not drawn: request {instead} as ?uid=<uid of an object>")
}

fn explain(ctx: &Ctx, query: &Query) -> Result<PageContent, String> {
    let uids: Vec<&str> = query.all(UID).collect();
    let [uid] = *uids else { return Err("name one object: ?uid=<its uid>".to_owned()) };
    let uid = Uid::new(uid);
    let facts = facts(ctx, &uid);
    let text = ctx.graph.read(|graph| explain::explain(graph, &uid, &facts));
    Ok(PageContent { content_type: TEXT, text })
}

/// Facts about an object from outside the graph.
fn facts(ctx: &Ctx, uid: &Uid) -> Facts {
    let view = ctx.graph.read(|graph| graph.view(uid));
    let item = view.as_ref().map_or_else(|| Item::Observed(uid.clone()), |it| item(uid, it));
    let meta = view.and_then(|it| it.meta);
    let held = ctx.delete_limiter.lock().is_held(&item);
    let trouble = ctx.meters.unresolved_owner(uid).map(|(of, why)| {
        format!("its owner of type {}/{} cannot be looked up: {}", of.api_version, of.kind, describe_reason(why))
    });
    Facts {
        is_leader: ctx.graph.term_start().is_some(),
        owners: meta.map(|it| owners(ctx, &it)).unwrap_or_default(),
        failures: ctx.graph.deletes.failures(&item).max(ctx.graph.orphans.failures(uid)),
        error: ctx.failed_attempts.deletes.get(&item).or_else(|| ctx.failed_attempts.orphans.get(uid)).or(trouble),
        held: held.then(|| {
            "as many objects as --gc-max-deletes-per-minute allows were deleted in the last minute".to_owned()
        }),
        unsynced: ctx.monitors.unsynced().iter().map(ToString::to_string).collect(),
    }
}

/// The queue item of an object.
fn item(uid: &Uid, view: &ObjectView) -> Item {
    match (view.state, &view.coordinates) {
        (ObjectState::Virtual | ObjectState::Unwatched, Some(it)) => Item::Virtual(Arc::new(it.clone())),
        _ => Item::Observed(uid.clone()),
    }
}

/// The known results about its owners.
fn owners(ctx: &Ctx, meta: &Meta) -> Vec<(Uid, OwnerProof)> {
    let found = meta.owners.iter().filter_map(|owner| {
        if ctx.graph.absence_proof(&Coordinates::referenced(owner, &meta.namespace)).is_some() {
            let proof = if ctx.graph.orphaned.contains(&owner.uid) { OwnerProof::Orphaned } else { OwnerProof::Gone };
            return Some((owner.uid.clone(), proof));
        }
        let unknown = ctx.kinds.resource(&owner.api_version, &owner.kind).err()?;
        Some((owner.uid.clone(), OwnerProof::Unprovable(unknown.to_string())))
    });
    found.collect()
}

fn describe_reason(why: UnresolvedReason) -> &'static str {
    match why {
        UnresolvedReason::UnknownKind => "its kind is not known",
        UnresolvedReason::NotServed => "the server does not serve it",
        UnresolvedReason::Misplaced => "it is namespaced, and its dependent is not",
        UnresolvedReason::Misnamed => "its name is not valid",
        UnresolvedReason::Failed => "the request failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_graph_that_is_too_large_names_the_query_for_a_part() {
        assert_eq!(
            too_many(true),
            "the graph has more than 10000 objects, which are not drawn: request a part as ?uid=<uid of an object>"
        );
        assert!(too_many(false).starts_with("connected with the requested objects are more than 10000 objects, "));
    }
}
