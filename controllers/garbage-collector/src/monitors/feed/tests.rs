use api::{Atom, MetaRef, OwnerRef, Resource};
use informer::Cause;

use super::*;
use crate::{
    evidence::Gone,
    graph::{Coordinates, Item},
    monitors::tests::{Standby, standby},
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
    let by = world.known.tell(|graph| graph.monitor(&of));
    let told = Arc::new(Notify::new());
    Fed { feed: Feed::new(world.known.clone(), by, Some(told.clone())), world, told }
}

impl Fed {
    /// Feeds a complete set.
    fn arrives(&self, names: &[&str]) {
        let mut set = Arriving::default();
        for name in names {
            self.feed.collect(&mut set, object(name, 5));
        }
        self.feed.replace(set);
    }

    fn knows(&self, name: &str) -> bool {
        self.world.known.node(&Item::Observed(uid(name))).is_some_and(|it| it.meta.is_some())
    }

    /// The resourceVersion in the graph.
    fn version(&self, name: &str) -> Option<u64> {
        self.world.known.version(&uid(name)).and_then(|it| it.number())
    }

    /// True if the object is proved gone.
    fn proved_gone(&self, name: &str) -> bool {
        self.world.known.gone(&Coordinates::claimed(&reference(name), &Atom::from(NAMESPACE))).is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_is_known_while_it_arrives_and_what_a_later_one_lacks_is_not_proved_gone() {
    let fed = fed();
    let mut set = Arriving::default();
    fed.feed.collect(&mut set, object("owner", 3));
    assert!(fed.knows("owner"), "before the set is whole");
    fed.feed.collect(&mut set, owned("dependent", "owner"));
    assert!(matches!(set, Arriving::First), "nothing is held of a first set");
    fed.feed.replace(set);
    assert_eq!(fed.feed.held(), 2);
    fed.arrives(&["dependent", "new"]);
    assert_eq!(["owner", "dependent", "new"].map(|it| fed.knows(it)), [false, true, true]);
    assert!(!fed.proved_gone("owner"), "a list proves nothing");
    fed.arrives(&[]);
    assert_eq!(fed.feed.held(), 0, "an empty set too is one");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_a_watch_tells_of_is_the_servers_word_also_while_a_set_arrives() {
    let fed = fed();
    fed.arrives(&["one", "other"]);
    fed.feed.apply(vec![
        (Event::Added, owned("of-one", "one")),
        (Event::Modified, owned("of-other", "other")),
        (Event::Deleted, object("one", 9)),
    ]);
    assert!(!fed.knows("one") && fed.proved_gone("one"));
    let mut set = Arriving::default();
    for there in [owned("of-one", "one"), owned("of-other", "other"), object("other", 5)] {
        fed.feed.collect(&mut set, there);
    }
    fed.feed.discard(&mut set, object("other", 10));
    assert!(!fed.knows("other") && fed.proved_gone("other"));
    fed.feed.replace(set);
    assert_eq!(fed.feed.held(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_typed_informer_lost_and_what_it_saw_go_are_told_apart() {
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
        let hear = |old: Option<MetaRef<'_>>, new: Option<MetaRef<'_>>, cause: Cause| {
            fed.feed.hear(&MetaChange { old, new, cause });
        };
        hear(None, Some(owner.as_ref()), Cause::Initial);
        hear(None, Some(dependent.as_ref()), Cause::Watch);
        hear(Some(owner.as_ref()), successor.then(|| next.as_ref()), cause);
        assert_eq!((fed.knows("owner"), fed.knows("next")), (false, successor), "{cause:?} {successor}");
        assert_eq!(fed.proved_gone("owner"), proved, "{cause:?} {successor}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_to_whom_they_may_bring_types_and_a_first_set_is_none() {
    use futures::FutureExt;
    let fed = fed();
    let told = || fed.told.notified().now_or_never().is_some();
    fed.arrives(&["a"]);
    fed.feed.hear(&MetaChange { old: None, new: Some(object("b", 1).as_ref()), cause: Cause::Initial });
    assert!(!told());
    fed.feed.apply(vec![(Event::Added, object("c", 7))]);
    assert!(told() && !told());
    fed.arrives(&["a"]);
    assert!(told(), "a later set may have changed anything");
    fed.feed.hear(&MetaChange { old: None, new: Some(object("d", 1).as_ref()), cause: Cause::Watch });
    assert!(told());
}

#[tokio::test(start_paused = true)]
async fn an_older_state_never_takes_the_place_of_a_newer_one() {
    let fed = fed();
    fed.feed.apply(vec![(Event::Added, object("a", 9))]);
    fed.feed.apply(vec![(Event::Modified, Meta { deletion: Some(1), ..object("a", 8) })]);
    let seen = fed.world.known.node(&Item::Observed(uid("a"))).unwrap();
    assert!(!seen.deleting && seen.meta.is_some_and(|it| it.version == 9.into()));
}

/// Issue 16, 15: after a restore of etcd, resourceVersions start again from the restored one.
#[tokio::test(start_paused = true)]
async fn a_whole_set_counts_however_old_its_versions_are_and_half_a_set_does_not() {
    let fed = fed();
    fed.feed.apply(vec![
        (Event::Added, object("a", 9)),
        (Event::Added, object("b", 7)),
        (Event::Added, object("c", 6)),
    ]);
    // The set is cut off: a server that lags may have sent it, and the next set may come from another server.
    let mut half = Arriving::default();
    fed.feed.collect(&mut half, object("a", 3));
    drop(half);
    assert_eq!(fed.version("a"), Some(9));
    let mut set = Arriving::default();
    fed.feed.collect(&mut set, Meta { deletion: Some(1), ..object("a", 3) });
    fed.feed.collect(&mut set, object("b", 2));
    fed.feed.collect(&mut set, object("b", 8));
    fed.feed.collect(&mut set, object("c", 4));
    fed.feed.discard(&mut set, object("c", 5));
    assert_eq!(["a", "b"].map(|it| fed.version(it)), [Some(9), Some(8)], "before the set is whole");
    fed.feed.replace(set);
    assert_eq!(["a", "b", "c"].map(|it| fed.version(it)), [Some(3), Some(8), None]);
    assert!(fed.world.known.node(&Item::Observed(uid("a"))).is_some_and(|it| it.deleting));
    fed.feed.apply(vec![(Event::Modified, object("a", 4))]);
    assert_eq!(fed.version("a"), Some(4), "what follows is newer than the set");
}

#[tokio::test(start_paused = true)]
async fn what_a_typed_informers_store_holds_counts_however_old_its_version_is() {
    let fed = fed();
    let (newer, older) = (object("a", 9), object("a", 3));
    fed.feed.hear(&MetaChange { old: None, new: Some(newer.as_ref()), cause: Cause::Initial });
    fed.feed.hear(&MetaChange { old: Some(newer.as_ref()), new: Some(older.as_ref()), cause: Cause::Relist });
    assert_eq!(fed.version("a"), Some(3));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_shown_again_is_proved_gone_no_more() {
    let fed = fed();
    fed.arrives(&["owner"]);
    fed.feed.apply(vec![(Event::Added, owned("dependent", "owner")), (Event::Deleted, object("owner", 9))]);
    assert!(fed.proved_gone("owner"));
    // No reference names it any more, but the proof is kept for dependents that come late.
    fed.feed.apply(vec![(Event::Deleted, owned("dependent", "owner"))]);
    assert!(fed.proved_gone("owner"));
    fed.feed.apply(vec![(Event::Added, object("owner", 5))]);
    assert!(!fed.proved_gone("owner"));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_shown_is_gone_by_none_of_its_names_any_more() {
    let beta =
        Coordinates::claimed(&OwnerRef { api_version: "v1beta1".into(), ..reference("owner") }, &NAMESPACE.into());
    let at = |version: u64| object("owner", version);
    type Shown = fn(&Feed, Meta);
    let cases: [(&str, bool, Shown, bool); 5] = [
        ("a watch shows it again", false, |feed, it| feed.apply(vec![(Event::Added, it)]), false),
        ("a set shows it again", false, |feed, it| feed.collect(&mut Arriving::default(), it), false),
        ("a typed informer shows it again", false, |feed, it| hear(feed, &it), false),
        ("a typed informer shows it once more", true, |feed, it| hear(feed, &it), false),
        // As on each change of the object: at a wrong name it stays proved gone.
        ("a watch shows it once more", true, |feed, it| feed.apply(vec![(Event::Modified, it)]), true),
    ];
    for (name, was_shown, show, proved) in cases {
        let fed = fed();
        if was_shown {
            fed.feed.apply(vec![(Event::Added, at(5))]);
        }
        fed.world.known.remember(Gone::told(beta.clone()), fed.world.known.restores());
        assert!(fed.world.known.gone(&beta).is_some());
        show(&fed.feed, at(6));
        assert_eq!(fed.world.known.gone(&beta).is_some(), proved, "{name}");
    }
}

fn hear(feed: &Feed, it: &Meta) {
    feed.hear(&MetaChange { old: None, new: Some(it.as_ref()), cause: Cause::Relist });
}
