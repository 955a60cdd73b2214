use api::Resource;

use super::*;

/// `+a` exists, `-a` is gone, `~a` waits, `o-a` is gone and was orphaned; a `!` after it: the reference blocks.
fn checked(owners: &[&str], finalizers: &[&str]) -> CheckedObject {
    let mut references = Vec::new();
    let mut owner_states = Vec::new();
    for owner in owners {
        let (text, blocks) = owner.strip_suffix('!').map_or((*owner, false), |it| (it, true));
        let (sign, name) = text.split_at(text.len() - 1);
        let reference = OwnerRef {
            api_version: "v1".into(),
            // References of equal uid differ in kind.
            kind: format!("Kind{}", references.len()).as_str().into(),
            name: name.into(),
            uid: Uid::new(name),
            controller: false,
            block_owner_deletion: blocks,
        };
        let gone = Gone::from_deleted_event(Coordinates::referenced(&reference, &"ns".into()));
        owner_states.push(match sign {
            "+" => OwnerState::Live(reference.uid.clone()),
            "~" => OwnerState::Waiting(WaitingProof::assumed(reference.uid.clone())),
            "o-" => OwnerState::Orphaned(gone),
            _ => OwnerState::Gone(gone),
        });
        references.push(reference);
    }
    let object = object(references, finalizers);
    CheckedObject::new(object, owner_states).unwrap()
}

fn object(owners: Vec<OwnerRef>, finalizers: &[&str]) -> Object {
    let finalizers = finalizers.iter().map(|it| (*it).into()).collect();
    let uid = Uid::new("item");
    let meta = Meta { name: "item".into(), uid, finalizers, owners: owners.into(), ..Meta::default() };
    let coordinates = Coordinates {
        kind: "Pod".into(),
        api_version: "v1".into(),
        namespace: "ns".into(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
    };
    Object { coordinates, resource: pods(), meta }
}

fn pods() -> Resource {
    Resource::namespaced("", "v1", "pods", "Pod")
}

/// In one line: `keep`, `drop a b`, `delete Background (owners_gone)`, with `unblock, ` before.
fn describe(verdict: Verdict) -> String {
    match verdict {
        Verdict::Keep => "keep".to_owned(),
        Verdict::DropRefs(RefRemoval { object: _, owners }) => {
            let names: Vec<String> = owners.iter().map(Uid::to_string).collect();
            format!("drop {}", names.join(" "))
        }
        Verdict::Delete(permit) => {
            let first = if permit.unblock_own_refs_first() { "unblock, " } else { "" };
            assert_eq!(permit.owners().len(), permit.object().meta.owners.len(), "a proof for each owner");
            format!("{first}delete {:?} ({})", permit.policy(), permit.reason().as_str())
        }
    }
}

const NONE: Dependents = Dependents { any: false, any_waiting: false };
const SOME: Dependents = Dependents { any: true, any_waiting: false };
const ONE_WAITS: Dependents = Dependents { any: true, any_waiting: true };

#[test]
fn the_verdict_follows_from_the_owner_states() {
    for (name, owners, finalizers, dependents, want) in [
        ("its owner exists", &["+a"][..], &[][..], NONE, "keep"),
        ("all owners exist", &["+a", "+b"], &[], SOME, "keep"),
        ("its owner is gone", &["-a"], &[], NONE, "delete Background (owners_gone)"),
        ("all owners are gone", &["-a", "-b"], &[], SOME, "delete Background (owners_gone)"),
        ("one exists", &["-a", "+b", "-c"], &[], NONE, "drop a c"),
        ("one exists, one waits", &["~a!", "+b"], &[], NONE, "drop a"),
        ("one exists, one waits, one is gone", &["~a", "+b", "-c"], &[], ONE_WAITS, "drop a c"),
        ("its owner waits", &["~a!"], &[], NONE, "delete Background (owner_waits)"),
        ("its owner waits, it has dependents", &["~a"], &[], SOME, "delete Foreground (owner_waits)"),
        ("one waits, one is gone", &["~a", "-b"], &[], SOME, "delete Foreground (owner_waits)"),
        ("a possible cycle", &["~a!"], &[], ONE_WAITS, "unblock, delete Foreground (owner_waits)"),
        ("a possible cycle that does not block", &["~a"], &[], ONE_WAITS, "delete Foreground (owner_waits)"),
        ("a cycle without owner", &["-a!"], &[], ONE_WAITS, "delete Background (owners_gone)"),
        ("it has the orphan finalizer", &["-a"], &[ORPHAN], SOME, "delete Orphan (owners_gone)"),
        ("it has the foregroundDeletion finalizer", &["-a"], &[FOREGROUND], NONE, "delete Foreground (owners_gone)"),
        ("both", &["-a"], &[FOREGROUND, ORPHAN], NONE, "delete Orphan (owners_gone)"),
        ("its owner waits, it has the orphan finalizer", &["~a"], &[ORPHAN], NONE, "delete Orphan (owner_waits)"),
        ("its owner waits, its dependents do not wait", &["~a"], &[ORPHAN], SOME, "delete Foreground (owner_waits)"),
        ("another finalizer has no effect", &["-a"], &["x/y"], NONE, "delete Background (owners_gone)"),
        ("it was orphaned", &["o-a"], &[], SOME, "drop a"),
        ("it was orphaned, and one exists", &["o-a", "+b"], &[], NONE, "drop a"),
        ("it was orphaned by one, the other is gone", &["o-a", "-b"], &[], NONE, "delete Background (owners_gone)"),
        ("it was orphaned by one, the other waits", &["o-a", "~b"], &[], NONE, "delete Background (owner_waits)"),
        ("the same owner, rightly and wrongly named", &["+a", "-a"], &[], NONE, "keep"),
        ("the same, beside one that is gone", &["-a", "+a", "-b"], &[], NONE, "drop b"),
        ("named twice", &["-a", "-a", "+b"], &[], NONE, "drop a"),
    ] {
        assert_eq!(describe(verdict(checked(owners, finalizers), dependents)), want, "{name}");
    }
}

fn node(meta: Option<Meta>, deleting: bool, deleting_dependents: bool) -> NodeView {
    NodeView {
        coordinates: object(Vec::new(), &[]).coordinates,
        resource: meta.is_some().then(pods),
        meta,
        deleting,
        deleting_dependents,
        has_dependents: false,
        has_waiting_dependent: false,
    }
}

#[test]
fn the_next_step_follows_from_the_object_itself() {
    let (object, _) = checked(&["-a"], &[]).into_parts();
    let owned = object.meta.clone();
    let free = Meta { owners: Vec::new().into(), ..owned.clone() };
    let of = |meta: &Meta| Object { meta: meta.clone(), ..object.clone() };
    for (name, node, want) in [
        ("no monitor shows it", node(None, false, false), NextStep::LookUp(object.coordinates.clone())),
        ("its type is no longer watched", node(None, true, false), NextStep::LookUp(object.coordinates.clone())),
        ("it is already being deleted", node(Some(owned.clone()), true, false), NextStep::Nothing),
        ("it has no owners", node(Some(free.clone()), false, false), NextStep::Nothing),
        ("it waits", node(Some(free.clone()), true, true), NextStep::Foreground(of(&free))),
        ("it waits, and its owners are gone", node(Some(owned.clone()), true, true), NextStep::Foreground(of(&owned))),
        ("it has owners", node(Some(owned.clone()), false, false), NextStep::CheckOwners(of(&owned))),
    ] {
        assert_eq!(next_step(node), want, "{name}");
    }
}

#[test]
fn a_waiting_owner_is_finished_without_blocking_dependents() {
    let item = |name: &str| Item::Observed(Uid::new(name));
    assert_eq!(foreground(Vec::new()), Foreground::Finish);
    let blocking = vec![(item("a"), false), (item("b"), true), (item("c"), false)];
    assert_eq!(foreground(blocking), Foreground::Check(vec![item("a"), item("c")]));
    assert_eq!(foreground(vec![(item("b"), true)]), Foreground::Check(Vec::new()), "it still blocks");
}

fn permit_for(owners: &[&str], finalizers: &[&str], dependents: Dependents) -> DeletePermit {
    match verdict(checked(owners, finalizers), dependents) {
        Verdict::Delete(permit) => permit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn acceptance_gc_037_a_delete_permit_is_valid_for_a_later_state_without_relevant_changes() {
    let mut permit = permit_for(&["-a"], &["x/y"], NONE);
    let seen = permit.object().meta.clone();
    let later = Meta { version: Version::from(9), finalizers: ["x/z".into()].into(), ..seen.clone() };
    assert!(permit.revalidate(&later));
    assert_eq!(permit.object().meta.version, Version::from(9), "it is valid for that state now");
    let (other, _) = checked(&["-b"], &[]).into_parts();
    for (name, live) in [
        ("another object", Meta { uid: Uid::new("other"), ..later.clone() }),
        ("acceptance_gc_036: other owners", Meta { owners: other.meta.owners, ..later.clone() }),
        ("it is being deleted", Meta { deletion: Some(1), ..later.clone() }),
        ("it has the orphan finalizer", Meta { finalizers: [ORPHAN.into()].into(), ..later.clone() }),
        ("it has the foregroundDeletion finalizer", Meta { finalizers: [FOREGROUND.into()].into(), ..later.clone() }),
    ] {
        assert!(!permit.revalidate(&live), "{name}");
        assert_eq!(permit.object().meta.version, Version::from(9), "{name}");
    }
}

#[test]
fn an_object_with_unblocked_references_is_deleted_in_its_new_state() {
    let mut permit = permit_for(&["~a!", "-b"], &[], ONE_WAITS);
    assert!(permit.unblock_own_refs_first());
    permit.on_refs_unblocked(Version::from(8));
    assert!(!permit.unblock_own_refs_first());
    assert_eq!(permit.object().meta.version, Version::from(8));
    assert!(permit.object().meta.owners.iter().all(|it| !it.block_owner_deletion));
    assert_eq!(permit.object().meta.owners.len(), 2);
}
