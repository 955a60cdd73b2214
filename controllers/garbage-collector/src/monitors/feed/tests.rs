use api::{Atom, MetaRef, OwnerRef, Resource};
use informer::Cause;

use super::*;
use crate::{
    graph::{Coordinates, Item},
    monitors::tests::{Standby, standby},
    rules::evidence::Gone,
};

const NAMESPACE: &str = "n";

fn uid(name: &str) -> Uid {
    Uid::new(&format!("uid-{name}"))
}

fn reference(name: &str) -> OwnerRef {
    OwnerRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: name.into(),
        uid: uid(name),
        controller: false,
        block_owner_deletion: false,
    }
}

fn object(name: &str, version: u64) -> Meta {
    Meta { name: name.into(), namespace: NAMESPACE.into(), uid: uid(name), version: version.into(), ..Meta::default() }
}

fn owned(name: &str, owner: &str) -> Meta {
    Meta { owners: Arc::from([reference(owner)]), ..object(name, 1) }
}

struct Fed {
    feed: Feed,
    world: Standby,
    told: Arc<Notify>,
}

fn fed() -> Fed {
    let world = standby();
    let of = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
    let by = world.graph.update(|graph| graph.monitor(&of));
    let told = Arc::new(Notify::new());
    Fed { feed: Feed::new(world.graph.clone(), by, Some(told.clone())), world, told }
}

impl Fed {
    /// Feeds a complete list.
    fn receive_list(&self, names: &[&str]) {
        let mut list = PartialList::default();
        for name in names {
            self.feed.collect(&mut list, object(name, 5));
        }
        self.feed.replace(list);
    }

    fn is_known(&self, name: &str) -> bool {
        self.world.graph.node(&Item::Observed(uid(name))).is_some_and(|it| it.meta.is_some())
    }

    /// The resourceVersion in the graph.
    fn version(&self, name: &str) -> Option<u64> {
        self.world.graph.version(&uid(name)).and_then(|it| it.number())
    }

    /// True if the object is proved gone.
    fn proved_gone(&self, name: &str) -> bool {
        self.world.graph.absence_proof(&Coordinates::referenced(&reference(name), &Atom::from(NAMESPACE))).is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_partial_list_are_known_and_a_missing_object_is_no_proof() {
    let fed = fed();
    let mut list = PartialList::default();
    fed.feed.collect(&mut list, object("owner", 3));
    assert!(fed.is_known("owner"), "before the list is complete");
    fed.feed.collect(&mut list, owned("dependent", "owner"));
    assert!(matches!(list, PartialList::First), "a first list is not stored");
    fed.feed.replace(list);
    assert_eq!(fed.feed.object_count(), 2);
    fed.receive_list(&["dependent", "new"]);
    assert_eq!(["owner", "dependent", "new"].map(|it| fed.is_known(it)), [false, true, true]);
    assert!(!fed.proved_gone("owner"), "absence from a list proves nothing");
    fed.receive_list(&[]);
    assert_eq!(fed.feed.object_count(), 0, "an empty list counts too");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_event_is_a_proof_also_during_a_list() {
    let fed = fed();
    fed.receive_list(&["one", "other"]);
    fed.feed.apply(vec![
        (Event::Added, owned("of-one", "one")),
        (Event::Modified, owned("of-other", "other")),
        (Event::Deleted, object("one", 9)),
    ]);
    assert!(!fed.is_known("one") && fed.proved_gone("one"));
    let mut list = PartialList::default();
    for present in [owned("of-one", "one"), owned("of-other", "other"), object("other", 5)] {
        fed.feed.collect(&mut list, present);
    }
    fed.feed.discard(&mut list, object("other", 10));
    assert!(!fed.is_known("other") && fed.proved_gone("other"));
    fed.feed.replace(list);
    assert_eq!(fed.feed.object_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_typed_informer_reports_deleted_and_missing_objects_separately() {
    for (cause, successor, proved) in [
        (Cause::Watch, false, true),
        (Cause::Relist, false, false),
        (Cause::Initial, false, false),
        (Cause::Watch, true, false),
        (Cause::Relist, true, false),
    ] {
        let fed = fed();
        let (owner, dependent) = (object("owner", 3), owned("dependent", "owner"));
        let next = Meta { name: "owner".into(), ..object("next", 9) };
        let on_change = |old: Option<MetaRef<'_>>, new: Option<MetaRef<'_>>, cause: Cause| {
            fed.feed.on_change(&MetaChange { old, new, cause });
        };
        on_change(None, Some(owner.as_ref()), Cause::Initial);
        on_change(None, Some(dependent.as_ref()), Cause::Watch);
        on_change(Some(owner.as_ref()), successor.then(|| next.as_ref()), cause);
        assert_eq!((fed.is_known("owner"), fed.is_known("next")), (false, successor), "{cause:?} {successor}");
        assert_eq!(fed.proved_gone("owner"), proved, "{cause:?} {successor}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_type_definitions_are_notified_except_for_the_first_list() {
    use futures::FutureExt;
    let fed = fed();
    let told = || fed.told.notified().now_or_never().is_some();
    fed.receive_list(&["a"]);
    fed.feed.on_change(&MetaChange { old: None, new: Some(object("b", 1).as_ref()), cause: Cause::Initial });
    assert!(!told());
    fed.feed.apply(vec![(Event::Added, object("c", 7))]);
    assert!(told() && !told());
    fed.receive_list(&["a"]);
    assert!(told(), "a later list may contain changes");
    fed.feed.on_change(&MetaChange { old: None, new: Some(object("d", 1).as_ref()), cause: Cause::Watch });
    assert!(told());
}

#[tokio::test(start_paused = true)]
async fn an_older_state_never_replaces_a_newer_one() {
    let fed = fed();
    fed.feed.apply(vec![(Event::Added, object("a", 9))]);
    fed.feed.apply(vec![(Event::Modified, Meta { deletion: Some(1), ..object("a", 8) })]);
    let seen = fed.world.graph.node(&Item::Observed(uid("a"))).unwrap();
    assert!(!seen.deleting && seen.meta.is_some_and(|it| it.version == 9.into()));
}

/// Issue 16, 15: after a restore of etcd, resourceVersions start again from the restored one.
#[tokio::test(start_paused = true)]
async fn a_complete_list_counts_with_any_versions_and_a_partial_one_does_not() {
    let fed = fed();
    fed.feed.apply(vec![
        (Event::Added, object("a", 9)),
        (Event::Added, object("b", 7)),
        (Event::Added, object("c", 6)),
    ]);
    // The list is cut off: a server that lags may have sent it, and the next list may come from another server.
    let mut half = PartialList::default();
    fed.feed.collect(&mut half, object("a", 3));
    drop(half);
    assert_eq!(fed.version("a"), Some(9));
    let mut list = PartialList::default();
    fed.feed.collect(&mut list, Meta { deletion: Some(1), ..object("a", 3) });
    fed.feed.collect(&mut list, object("b", 2));
    fed.feed.collect(&mut list, object("b", 8));
    fed.feed.collect(&mut list, object("c", 4));
    fed.feed.discard(&mut list, object("c", 5));
    assert_eq!(["a", "b"].map(|it| fed.version(it)), [Some(9), Some(8)], "before the list is complete");
    fed.feed.replace(list);
    assert_eq!(["a", "b", "c"].map(|it| fed.version(it)), [Some(3), Some(8), None]);
    assert!(fed.world.graph.node(&Item::Observed(uid("a"))).is_some_and(|it| it.deleting));
    fed.feed.apply(vec![(Event::Modified, object("a", 4))]);
    assert_eq!(fed.version("a"), Some(4), "later events are newer than the list");
}

/// A list may contain an object that a live read has proved gone since the list was requested. That is no restore of
/// etcd.
#[tokio::test(start_paused = true)]
async fn a_state_that_a_live_read_overtook_counts_as_shown_until_the_monitor_shows_the_deletion() {
    for (is_in_list, shown_after) in [(Some(true), true), (Some(false), false), (None, false)] {
        let fed = fed();
        fed.feed.apply(vec![(Event::Added, object("a", 5)), (Event::Added, object("b", 5))]);
        let at = Coordinates::referenced(&reference("a"), &NAMESPACE.into());
        let graph = &fed.world.graph;
        graph.on_proved_absent(&at, Gone::from_deleted_event(at.clone()), graph.restores());
        assert!(!fed.is_known("a"));
        let is_shown = |version: u64| {
            graph.read(|graph| graph.is_shown_at(fed.feed.by, &uid("a"), &version.into(), &Version::from(9)))
        };
        assert_eq!((is_shown(5), is_shown(4)), (true, false));
        match is_in_list {
            Some(is_in_list) => fed.receive_list(if is_in_list { &["a", "b"] } else { &["b"] }),
            None => fed.feed.apply(vec![(Event::Deleted, object("a", 8))]),
        }
        assert_eq!(is_shown(5), shown_after, "{is_in_list:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_in_the_store_of_a_typed_informer_counts_with_any_version() {
    let fed = fed();
    let (newer, older) = (object("a", 9), object("a", 3));
    fed.feed.on_change(&MetaChange { old: None, new: Some(newer.as_ref()), cause: Cause::Initial });
    fed.feed.on_change(&MetaChange { old: Some(newer.as_ref()), new: Some(older.as_ref()), cause: Cause::Relist });
    assert_eq!(fed.version("a"), Some(3));
}

#[tokio::test(start_paused = true)]
async fn an_owner_observed_again_loses_its_absence_proof() {
    let fed = fed();
    fed.receive_list(&["owner"]);
    fed.feed.apply(vec![(Event::Added, owned("dependent", "owner")), (Event::Deleted, object("owner", 9))]);
    assert!(fed.proved_gone("owner"));
    // No reference names it any more, but the proof is kept for dependents that come late.
    fed.feed.apply(vec![(Event::Deleted, owned("dependent", "owner"))]);
    assert!(fed.proved_gone("owner"));
    fed.feed.apply(vec![(Event::Added, object("owner", 5))]);
    assert!(!fed.proved_gone("owner"));
}

#[tokio::test(start_paused = true)]
async fn an_observed_owner_loses_the_proofs_of_all_its_claims() {
    let beta =
        Coordinates::referenced(&OwnerRef { api_version: "v1beta1".into(), ..reference("owner") }, &NAMESPACE.into());
    let at = |version: u64| object("owner", version);
    type Shown = fn(&Feed, Meta);
    let cases: [(&str, bool, Shown, bool); 5] = [
        ("a watch shows it again", false, |feed, it| feed.apply(vec![(Event::Added, it)]), false),
        ("a list shows it again", false, |feed, it| feed.collect(&mut PartialList::default(), it), false),
        ("a typed informer shows it again", false, |feed, it| on_change(feed, &it), false),
        ("a typed informer shows it once more", true, |feed, it| on_change(feed, &it), false),
        // As on each change of the object: at a wrong name it stays proved gone.
        ("a watch shows it once more", true, |feed, it| feed.apply(vec![(Event::Modified, it)]), true),
    ];
    for (name, was_shown, show, proved) in cases {
        let fed = fed();
        if was_shown {
            fed.feed.apply(vec![(Event::Added, at(5))]);
        }
        fed.world.graph.cache_proof(Gone::from_deleted_event(beta.clone()), fed.world.graph.restores());
        assert!(fed.world.graph.absence_proof(&beta).is_some());
        show(&fed.feed, at(6));
        assert_eq!(fed.world.graph.absence_proof(&beta).is_some(), proved, "{name}");
    }
}

fn on_change(feed: &Feed, it: &Meta) {
    feed.on_change(&MetaChange { old: None, new: Some(it.as_ref()), cause: Cause::Relist });
}
