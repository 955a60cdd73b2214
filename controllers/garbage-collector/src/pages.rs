//! Two pages for people, below `/debug/controllers/garbage-collector-controller/`: the graph as a drawing, and why one object
//! is still there, or will go. Both tell what is known, and ask nobody.

use std::sync::Arc;

use api::{Meta, Uid};
use controller::{Builder, Query, Shown};

use crate::{
    Ctx, dump,
    graph::{Item, NodeView},
    metrics::Why,
    why::{self, Facts, Proof},
};

/// As upstream.
const GRAPHVIZ: &str = "text/vnd.graphviz";
const TEXT: &str = "text/plain; charset=utf-8";
const UID: &str = "uid";

pub(crate) fn declare(builder: &mut Builder, ctx: &Arc<Ctx>) {
    let (drawn, explained) = (ctx.clone(), ctx.clone());
    builder.page("graph", move |query| Ok(graph(&drawn, query)));
    builder.page("why", move |query| explain(&explained, query));
}

/// All of it, or what is connected with the objects that are asked for.
fn graph(ctx: &Ctx, query: &Query) -> Shown {
    let uids = dump::asked(query.all(UID));
    let vertices = ctx.known.ask(|graph| graph.vertices(&uids));
    Shown { content_type: GRAPHVIZ, text: dump::dot(&vertices) }
}

fn explain(ctx: &Ctx, query: &Query) -> Result<Shown, String> {
    let uids: Vec<&str> = query.all(UID).collect();
    let [uid] = *uids else { return Err("of which object? ask as ?uid=<its uid>".to_owned()) };
    let uid = Uid::new(uid);
    let facts = facts(ctx, &uid);
    let text = ctx.known.ask(|graph| why::why(graph, &uid, &facts));
    Ok(Shown { content_type: TEXT, text })
}

/// What others than the graph know of an object.
fn facts(ctx: &Ctx, uid: &Uid) -> Facts {
    let item = Item::Observed(uid.clone());
    let meta = ctx.known.node(&item).and_then(|NodeView { meta, .. }| meta);
    let held = ctx.breaker.lock().holds(&item);
    let trouble = ctx.meters.trouble(uid).map(|(of, why)| {
        format!("its owner of type {}/{} cannot be looked for: {}", of.api_version, of.kind, plainly(why))
    });
    Facts {
        leads: ctx.known.began().is_some(),
        owners: meta.map(|it| owners(ctx, &it)).unwrap_or_default(),
        failures: ctx.known.deletes.failures(&item).max(ctx.known.orphans.failures(uid)),
        error: trouble,
        held: held.then(|| "as many objects as --gc-max-deletes-per-minute allows went in the last minute".to_owned()),
        unsynced: ctx.monitors.unsynced().iter().map(ToString::to_string).collect(),
    }
}

/// What was found out of owners, as far as it is remembered.
fn owners(ctx: &Ctx, meta: &Meta) -> Vec<(Uid, Proof)> {
    let found = meta.owners.iter().filter_map(|owner| {
        if ctx.known.absent().of(owner, &meta.namespace).is_some() {
            return Some((owner.uid.clone(), Proof::Gone));
        }
        let unknown = ctx.kinds.resource(&owner.api_version, &owner.kind).err()?;
        Some((owner.uid.clone(), Proof::Unprovable(unknown.to_string())))
    });
    found.collect()
}

fn plainly(why: Why) -> &'static str {
    match why {
        Why::UnknownKind => "no such kind is known to be served",
        Why::NotServed => "the server does not serve it",
        Why::Misplaced => "it is namespaced, and its dependent is not",
        Why::Failed => "the server could not tell",
    }
}
