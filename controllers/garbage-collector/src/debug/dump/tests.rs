use std::fmt::Write;

use super::*;
use crate::graph::fixture::*;

/// The output of upstream for a vertex that is observed and has edges.
fn vertex(
    uid: &str,
    dotted: &str,
    [group, version, kind]: [&str; 3],
    namespace: &str,
    name: &str,
    state: &str,
) -> String {
    let label = match state {
        "" => String::new(),
        some => format!("{some}\\n"),
    };
    let is = |word: &str| state.split(',').any(|it| it == word);
    let (missing, going, waits, guessed) =
        (is("missingFromGraph"), is("beingDeleted"), is("deletingDependents"), is("virtual"));
    let mut text =
        format!("  \"{uid}\" [\n    label=\"uid={uid}\\nnamespace={namespace}\\n{dotted}/{name}\\n{label}\"\n");
    let _ = write!(text, "    group=\"{group}\"\n    version=\"{version}\"\n    kind=\"{kind}\"\n");
    let _ = write!(text, "    namespace=\"{namespace}\"\n    name=\"{name}\"\n    uid=\"{uid}\"\n");
    let _ = write!(text, "    missing=\"{missing}\"\n    beingDeleted=\"{going}\"\n");
    let _ = write!(text, "    deletingDependents=\"{waits}\"\n    virtual=\"{guessed}\"\n  ];\n");
    text
}

const POD: [&str; 3] = ["", "v1", "Pod"];

fn pod(uid: &str, state: &str) -> String {
    vertex(uid, "Pod.v1", POD, "ns", uid, state)
}

fn drawn(world: &World, uids: &[&str]) -> String {
    dot(&world.graph.vertices(&uids_of_query(uids.iter().copied()), usize::MAX).unwrap())
}

#[test]
fn a_part_is_drawn_only_up_to_the_size_limit() {
    let mut world = World::new();
    for (dependent, owner) in [("a", "o"), ("b", "o"), ("c", "p")] {
        world.pod(object(dependent).owned_by([to(owner)]));
    }
    let drawn =
        |uids: &[&str], most| world.graph.vertices(&uids_of_query(uids.iter().copied()), most).map(|it| it.len());
    assert_eq!([drawn(&[], 5), drawn(&[], 4)], [Some(5), None]);
    assert_eq!([drawn(&["c"], 2), drawn(&["o"], 2)], [Some(2), None]);
}

#[test]
fn an_empty_graph_is_drawn_as_upstream_draws_it() {
    let mut world = World::new();
    assert_eq!(drawn(&world, &[]), "strict digraph full {\n}\n");
    world.pod(object("alone"));
    assert_eq!(drawn(&world, &[]), "strict digraph full {\n}\n", "an object without owners and dependents is left out");
    assert_eq!(drawn(&world, &["alone", "unknown"]), "strict digraph full {\n}\n");
}

#[test]
fn one_vertex_is_drawn_exactly_as_upstream_draws_it() {
    let mut world = World::new();
    world.set(object("web").uid("b").foreground());
    world.pod(object("web-1").uid("a").owned_by([named("apps/v1", "ReplicaSet", "web", "b")]));
    let want = r#"strict digraph full {
  // Node definitions.
  "a" [
    label="uid=a\nnamespace=ns\nPod.v1/web-1\n"
    group=""
    version="v1"
    kind="Pod"
    namespace="ns"
    name="web-1"
    uid="a"
    missing="false"
    beingDeleted="false"
    deletingDependents="false"
    virtual="false"
  ];
  "b" [
    label="uid=b\nnamespace=ns\nReplicaSet.v1.apps/web\nbeingDeleted,deletingDependents\n"
    group="apps"
    version="v1"
    kind="ReplicaSet"
    namespace="ns"
    name="web"
    uid="b"
    missing="false"
    beingDeleted="true"
    deletingDependents="true"
    virtual="false"
  ];
  // Edge definitions.
  "a" -> "b";
}
"#;
    assert_eq!(drawn(&world, &[]), want);
}

/// Two components: `a`, `b` and `c` around the virtual `v`, and `x` below `y`, of which one is being deleted.
fn two_components() -> World {
    let mut world = World::new();
    world.pod(object("c").owned_by([to("v")]));
    world.pod(object("b").owned_by([to("v"), to("a")]));
    world.pod(object("a"));
    world.pod(object("y").deleting(&["example.com/mine"]));
    world.pod(object("x").owned_by([to("y")]));
    world.without_due()
}

#[test]
fn vertices_are_sorted_by_uid_and_edges_by_both_ends() {
    let vertices =
        [pod("a", ""), pod("b", ""), pod("c", ""), pod("v", "virtual"), pod("x", ""), pod("y", "beingDeleted")];
    let edges = "  \"b\" -> \"a\";\n  \"b\" -> \"v\";\n  \"c\" -> \"v\";\n  \"x\" -> \"y\";\n";
    let want = format!(
        "strict digraph full {{\n  // Node definitions.\n{}  // Edge definitions.\n{edges}}}\n",
        vertices.concat()
    );
    assert_eq!(drawn(&two_components(), &[]), want);
}

#[test]
fn a_uid_draws_its_owners_and_dependents() {
    let world = two_components();
    let want = format!(
        "strict digraph full {{\n  // Node definitions.\n{}{}  // Edge definitions.\n  \"x\" -> \"y\";\n}}\n",
        pod("x", ""),
        pod("y", "beingDeleted")
    );
    assert_eq!(drawn(&world, &["x"]), want);
    assert_eq!(drawn(&world, &["y", "unknown"]), want);
    assert_eq!(drawn(&world, &["c", "y"]), drawn(&world, &[]));
    assert!(!drawn(&world, &["a"]).contains("\"x\""));
}

/// Upstream draws such an owner with the uid of the child, and again for each of its children.
#[test]
fn a_missing_owner_is_drawn_once_with_its_own_uid() {
    let mut world = World::new();
    world.pod(object("o"));
    world.pod(object("a").owned_by([to("o")]));
    world.pod(object("b").owned_by([to("o")]));
    world.pod_deleted("o");
    let missing = vertex("o", "Pod.v1", POD, "", "o", "missingFromGraph");
    let edges = "  \"a\" -> \"o\";\n  \"b\" -> \"o\";\n";
    let want = format!(
        "strict digraph full {{\n  // Node definitions.\n{}{}{missing}  // Edge definitions.\n{edges}}}\n",
        pod("a", ""),
        pod("b", "")
    );
    assert_eq!(drawn(&world, &[]), want);
    assert_eq!(drawn(&world, &["o"]), want);
}

#[test]
fn invented_names_stay_within_their_quotes() {
    let mut world = World::new();
    world.pod(object("a").owned_by([named("a/b/c", "K\"in\\d", "n\u{1}\u{85}ä", "o\n")]));
    let text = drawn(&world, &[]);
    assert!(text.contains("  \"o\\n\" [\n"), "{text}");
    assert!(text.contains("    group=\"\"\n    version=\"\"\n    kind=\"K\\\"in\\\\d\"\n"), "{text}");
    assert!(text.contains("    name=\"n\\x01\\u0085ä\"\n"), "{text}");
}
