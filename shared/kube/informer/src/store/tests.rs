use std::collections::BTreeMap;

use api::{Uid, Unreadable};
use proptest::prelude::*;

use super::*;
use crate::fixture::{Thing, ThingIndex, owned};

fn entry(name: &str, version: u64, color: &str, owner: &str) -> Entry<Thing> {
    let object = owned(name, version, color, owner).to_string();
    Entry::Readable(Arc::new(Thing::decode_object(object.as_bytes()).unwrap()))
}

fn unreadable(name: &str, version: u64, owner: &str) -> Entry<Thing> {
    let Entry::Readable(thing) = entry(name, version, "", owner) else { unreachable!() };
    Entry::Unreadable(Arc::new(Unreadable { meta: thing.meta.clone(), why: "color: not a string".to_owned() }))
}

fn store() -> Store<Thing> {
    let resource = Resource::namespaced("test.io", "v1", "things", "Thing");
    Store::new(resource, Arc::default(), 1)
}

fn synced(entries: impl IntoIterator<Item = Entry<Thing>>) -> Store<Thing> {
    let store = store();
    let mut set = store.empty_set();
    for entry in entries {
        set.upsert(entry);
    }
    store.replace(set);
    store
}

fn names(found: Result<Vec<Arc<Thing>>, StoreError>) -> Vec<String> {
    let mut names: Vec<_> = found.unwrap().iter().map(|it| it.meta.name.to_string()).collect();
    names.sort();
    names
}

fn color(color: &str) -> ThingIndex {
    ThingIndex::Color(color.to_owned())
}

fn owner(owner: &str) -> ThingIndex {
    ThingIndex::Owner(Uid::new(owner))
}

#[test]
fn acceptance_machinery_019_a_changed_value_moves_the_object_between_buckets_with_the_store() {
    let store = synced([entry("a", 1, "red", "o"), entry("b", 2, "red", "o")]);
    assert_eq!(names(store.by_index(&color("red"))), ["a", "b"]);
    store.apply(vec![(Event::Modified, entry("a", 3, "blue", "o"))]);
    assert_eq!(names(store.by_index(&color("red"))), ["b"]);
    assert_eq!(names(store.by_index(&color("blue"))), ["a"]);
    assert_eq!(store.get("ns", "a").unwrap().unwrap().color, "blue");
    store.apply(vec![(Event::Deleted, entry("a", 4, "blue", "o"))]);
    assert_eq!(names(store.by_index(&color("blue"))), [""; 0]);
    assert_eq!(names(store.by_index(&owner("o"))), ["b"]);
}

#[test]
fn acceptance_machinery_019_readers_see_an_object_move_in_bucket_and_content_at_once() {
    let swapped = |round: u64| {
        let (a, b) = if round.is_multiple_of(2) { ("red", "blue") } else { ("blue", "red") };
        [entry("a", round, a, "o"), entry("b", round, b, "o")]
    };
    let store = synced(swapped(2));
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for round in 3..5_000 {
                store.apply(swapped(round).map(|it| (Event::Modified, it)).into());
            }
        });
        while !writer.is_finished() {
            for word in ["red", "blue"] {
                // The two objects swap their colours: at every moment each bucket has exactly one object, and it has
                // that colour.
                let found = store.by_index(&color(word)).unwrap();
                assert_eq!(found.iter().map(|it| &*it.color).collect::<Vec<_>>(), [word]);
            }
        }
    });
}

#[test]
fn acceptance_machinery_020_readers_never_see_half_a_relist() {
    let generation = |word: &'static str| (0..50).map(move |number| entry(&format!("{word}-{number}"), 1, word, word));
    let store = synced(generation("even"));
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for round in 0..200 {
                let mut set = store.empty_set();
                generation(["odd", "even"][round % 2]).for_each(|it| drop(set.upsert(it)));
                store.replace(set);
            }
        });
        while !writer.is_finished() {
            let entries = store.entries();
            let colors: std::collections::BTreeSet<_> =
                entries.iter().map(|it| it.readable().unwrap().color.clone()).collect();
            assert_eq!((entries.len(), colors.len()), (50, 1));
            let indexed = store.by_index(&color("odd")).unwrap().len();
            assert!(indexed == 0 || indexed == 50, "{indexed}");
        }
    });
}

#[test]
fn a_relist_has_deletions_first_and_no_delta_for_unchanged_objects() {
    let store = synced([entry("gone", 1, "red", "o"), entry("kept", 2, "red", "o"), entry("changed", 3, "red", "o")]);
    let kept = store.get("ns", "kept").unwrap().unwrap();
    let mut set = store.empty_set();
    for new in [entry("new", 5, "red", "o"), entry("kept", 2, "red", "o"), entry("changed", 4, "red", "o")] {
        let new = store.same(&new).unwrap_or(new);
        set.upsert(new);
    }
    let deltas = store.replace(set);
    let versions: Vec<_> = deltas
        .iter()
        .map(|Delta { old, new }| {
            let side = |it: &Option<Entry<Thing>>| it.as_ref().map(|it| it.meta().version.to_string());
            (side(old), side(new))
        })
        .collect();
    let version = |number: u64| Some(number.to_string());
    assert_eq!(versions, [(version(1), None), (None, version(5)), (version(3), version(4))]);
    assert!(Arc::ptr_eq(&kept, &store.get("ns", "kept").unwrap().unwrap()));
}

#[test]
fn presence_decides_what_an_event_is_and_an_equal_version_has_no_delta() {
    let store = synced([entry("a", 1, "red", "o")]);
    let apply = |event, entry| {
        let deltas = store.apply(vec![(event, entry)]);
        deltas.iter().map(|it| (it.old.is_some(), it.new.is_some())).collect::<Vec<_>>()
    };
    assert_eq!(apply(Event::Added, entry("a", 2, "red", "o")), [(true, true)], "ADDED of a known one is an update");
    assert_eq!(apply(Event::Modified, entry("b", 3, "red", "o")), [(false, true)], "MODIFIED of an unknown one adds");
    assert_eq!(apply(Event::Modified, entry("b", 3, "red", "o")), []);
    assert_eq!(apply(Event::Deleted, entry("b", 4, "red", "o")), [(true, false)]);
    assert_eq!(store.len(), 1);
}

#[test]
fn an_object_that_does_not_decode_is_an_error_of_each_read_that_it_belongs_to() {
    let store = synced([entry("a", 1, "red", "o"), entry("b", 2, "red", "p")]);
    store.apply(vec![(Event::Modified, unreadable("a", 3, "o"))]);
    let is_unreadable = |err: &StoreError| matches!(err, StoreError::Unreadable { key, .. } if &*key.name == "a");
    assert!(
        store.get("ns", "a").is_err_and(|err| is_unreadable(&err)),
        "the old object must not be returned as current"
    );
    assert!(store.by_index(&owner("o")).is_err_and(|err| is_unreadable(&err)));
    assert_eq!(names(store.by_index(&owner("p"))), ["b"]);
    assert_eq!(names(store.by_index(&color("red"))), ["b"], "other indexes leave it out");
    assert_eq!((store.len(), store.unreadable()), (2, 1));
    store.apply(vec![(Event::Modified, entry("a", 4, "red", "o"))]);
    assert_eq!((names(store.by_index(&owner("o"))), store.unreadable()), (vec!["a".to_owned()], 0));
}

#[test]
fn reads_fail_before_the_first_set_and_after_a_garbage_frame() {
    let store = store();
    assert!(matches!(store.get("ns", "a"), Err(StoreError::NotSynced { .. })));
    store.mark_untrusted("not synced yet");
    assert!(matches!(store.by_index(&color("red")), Err(StoreError::NotSynced { .. })));
    store.replace(store.empty_set());
    assert_eq!(store.get("ns", "a"), Ok(None));
    store.mark_untrusted("no JSON");
    assert!(matches!(store.get("ns", "a"), Err(StoreError::Broken { .. })));
    store.replace(store.empty_set());
    assert_eq!(store.get("ns", "a"), Ok(None));
}

#[test]
fn an_object_is_the_same_only_with_its_uid_and_gone_only_if_the_store_is_certain() {
    let uid = |name: &str| Uid::new(&format!("uid-{name}"));
    let same = |store: &Store<Thing>, uid: &Uid| store.get_same("ns", "a", uid).map(|it| it.is_some());
    let store = synced([entry("a", 1, "red", "o")]);
    assert_eq!((same(&store, &uid("a")), same(&store, &uid("other"))), (Ok(true), Ok(false)));
    assert!(!store.is_gone("ns", "a", &uid("a")));
    assert!(store.is_gone("ns", "a", &uid("other")) && store.is_gone("ns", "b", &uid("b")));
    let object = store.get("ns", "a").unwrap().unwrap();
    assert_eq!(store.is_alive(&object.meta()), Ok(true));
    store.apply(vec![(Event::Deleted, entry("a", 2, "red", "o"))]);
    assert_eq!(store.is_alive(&object.meta()), Ok(false));
    store.mark_untrusted("no JSON");
    assert!(!store.is_gone("ns", "a", &uid("a")) && store.is_alive(&object.meta()).is_err());
}

/// By name, only for red things and for those that do not decode.
fn red(entry: &Entry<Thing>) -> Option<String> {
    let is_red = entry.readable().is_none_or(|it| it.color == "red");
    is_red.then(|| entry.meta().name.to_string())
}

#[test]
fn a_declared_index_has_the_present_objects_and_follows_each_change() {
    let store = synced([entry("x", 1, "red", "o"), entry("a", 1, "red", "o"), entry("b", 2, "blue", "o")]);
    // Leaves an unused slot before those of the others.
    store.apply(vec![(Event::Deleted, entry("x", 2, "red", "o"))]);
    let (by_name, by_color) =
        (store.declare_index("red", red), store.declare_index("color", |it| Some(it.readable()?.color.clone())));
    let found = |name: &str| names(by_name.get(&name.to_owned()));
    assert_eq!((found("a"), found("b")), (vec!["a".to_owned()], vec![]));
    store.apply(vec![
        (Event::Modified, entry("a", 3, "blue", "o")),
        (Event::Modified, entry("b", 4, "red", "o")),
        (Event::Added, entry("c", 5, "red", "o")),
    ]);
    assert_eq!((found("a"), found("b"), found("c")), (vec![], vec!["b".to_owned()], vec!["c".to_owned()]));
    assert_eq!(names(by_color.get(&"red".to_owned())), ["b", "c"]);
    store.apply(vec![(Event::Deleted, entry("c", 6, "red", "o")), (Event::Modified, unreadable("b", 7, "o"))]);
    assert_eq!(found("c"), [""; 0]);
    assert!(matches!(by_name.get(&"b".to_owned()), Err(StoreError::Unreadable { .. })));
    store.mark_untrusted("broken");
    assert!(matches!(by_name.get(&"a".to_owned()), Err(StoreError::Broken { .. })));
}

#[test]
fn a_relist_keeps_declared_indexes_also_those_that_were_declared_meanwhile() {
    let store = store();
    let early = store.declare_index("early", red);
    assert!(matches!(early.get(&"a".to_owned()), Err(StoreError::NotSynced { .. })));
    let mut set = store.empty_set();
    set.upsert(entry("a", 1, "red", "o"));
    let late = store.declare_index("late", red);
    set.upsert(entry("b", 2, "red", "o"));
    store.replace(set);
    for name in ["a", "b"] {
        assert_eq!([&early, &late].map(|it| names(it.get(&name.to_owned()))), [[name], [name]]);
    }
    store.replace(store.empty_set());
    assert_eq!(names(early.get(&"a".to_owned())), [""; 0]);
}

#[test]
fn an_index_that_is_declared_twice_is_one_index() {
    let store = synced([entry("a", 1, "red", "o")]);
    let indexes = [store.declare_index("red", red), store.declare_index("red", red)];
    assert_eq!(indexes.each_ref().map(|it| names(it.get(&"a".to_owned()))), [["a"], ["a"]]);
    assert_eq!(indexes.map(|it| it.number), [0, 0]);
}

#[test]
fn an_unreadable_pod_is_found_by_its_metadata_and_as_an_orphan_blocks_no_read() {
    let Entry::Unreadable(owned) = unreadable("a", 1, "o") else { unreachable!() };
    let values = |meta: &api::Meta| {
        let mut values = Vec::new();
        api::Pod::index_meta(meta.as_ref(), &mut |value| values.push(value));
        values
    };
    let namespace = || api::PodIndex::Namespace("ns".into());
    assert_eq!(values(&owned.meta), [api::PodIndex::Owner(Uid::new("o")), namespace()]);
    let orphan = api::Meta { owners: Arc::new([]), ..owned.meta.clone() };
    assert_eq!(values(&orphan), [namespace()]);
}

#[derive(Debug, Clone)]
enum StoreOperation {
    Put { name: u8, version: u64, color: u8, owner: u8, readable: bool },
    Delete { name: u8 },
    Replace { keep: Vec<u8> },
}

fn step() -> impl Strategy<Value = StoreOperation> {
    let put = (0..12u8, 1..6u64, 0..3u8, 0..3u8, prop::bool::weighted(0.85));
    prop_oneof![
        6 => put.prop_map(|(name, version, color, owner, readable)| StoreOperation::Put { name, version, color, owner, readable }),
        3 => (0..12u8).prop_map(|name| StoreOperation::Delete { name }),
        1 => prop::collection::vec(0..12u8, 0..12).prop_map(|keep| StoreOperation::Replace { keep }),
    ]
}

/// The model: a map that is searched completely for each query.
type Model = BTreeMap<String, Entry<Thing>>;

fn agree(store: &Store<Thing>, model: &Model) {
    assert_eq!(store.len(), model.len());
    assert_eq!(store.unreadable(), model.values().filter(|it| it.readable().is_none()).count());
    let mut all: Vec<_> = store.entries().iter().map(|it| it.meta().name.to_owned()).collect();
    all.sort();
    assert!(all.iter().eq(model.keys()));
    for number in 0..12 {
        let name = format!("n{number}");
        match model.get(&name) {
            None => assert_eq!(store.get("ns", &name), Ok(None)),
            Some(Entry::Readable(thing)) => assert_eq!(store.get("ns", &name).unwrap().as_ref(), Some(thing)),
            Some(Entry::Unreadable(_)) => assert!(store.get("ns", &name).is_err()),
        }
        assert_eq!(store.get("other", &name), Ok(None));
    }
    for number in 0..3 {
        let word = format!("w{number}");
        let colored = model.iter().filter(|(_, it)| it.readable().is_some_and(|it| it.color == word));
        assert!(names(store.by_index(&color(&word))).iter().eq(colored.map(|(name, _)| name)));
        let owned = || model.iter().filter(|(_, it)| it.meta().controller().is_some_and(|it| *it.name == *word));
        match store.by_index(&owner(&word)) {
            Err(_) => assert!(owned().any(|(_, it)| it.readable().is_none())),
            found => assert!(names(found).iter().eq(owned().map(|(name, _)| name))),
        }
    }
}

proptest! {
    #[test]
    fn the_store_agrees_with_a_naive_model(steps in prop::collection::vec(step(), 1..60)) {
        let store = synced([]);
        let mut model = Model::new();
        for step in steps {
            match step {
                StoreOperation::Put { name, version, color, owner, readable } => {
                    let (name, owner) = (format!("n{name}"), format!("w{owner}"));
                    let new = if readable {
                        entry(&name, version, &format!("w{color}"), &owner)
                    } else {
                        unreadable(&name, version, &owner)
                    };
                    store.apply(vec![(Event::Modified, new.clone())]);
                    if model.get(&name).is_none_or(|old| !are_same(old, &new)) {
                        model.insert(name, new);
                    }
                }
                StoreOperation::Delete { name } => {
                    let name = format!("n{name}");
                    store.apply(vec![(Event::Deleted, unreadable(&name, 9, "w0"))]);
                    model.remove(&name);
                }
                StoreOperation::Replace { keep } => {
                    model.retain(|name, _| keep.iter().any(|it| *name == format!("n{it}")));
                    let mut set = store.empty_set();
                    model.values().for_each(|it| drop(set.upsert(it.clone())));
                    store.replace(set);
                }
            }
            agree(&store, &model);
        }
    }
}
