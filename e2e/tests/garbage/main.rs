//! The garbage collector on a real API server and on the embedded one: owner graphs by script, whose results must be
//! those of the upstream collector, and scenarios with kinds that are added, removed and broken.
//!
//! `E2E_MANAGER=go` runs everything with the upstream manager, and `RECORD=1` with it writes the results of the graphs;
//! `GRAPHS=<part of a name>` runs some of them. See `graphs/README.md`. Behaviour that only our manager has is asserted
//! only for ours.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

#[path = "../support/mod.rs"]
mod support;

mod kinds;
mod played;
mod sets;
mod setup;
mod trees;
mod trouble;

use played::Played;
use support::{On, on_both_servers};

on_both_servers! {
    graphs_leave_behind_what_upstream_leaves
    upstreams_own_role_is_enough
    acceptance_gc_001_009_010_016_pods_of_a_replication_controller
    acceptance_gc_002_019_what_has_another_owner_stays_and_loses_the_one_reference
    acceptance_gc_003_an_object_without_an_owner_is_never_deleted
    acceptance_gc_004_an_object_whose_owner_never_existed_is_deleted_without_an_event
    acceptance_gc_006_011_a_deployment_is_deleted_with_or_without_its_dependents
    acceptance_gc_007_a_cronjob_goes_with_its_jobs_and_pods
    an_owner_with_the_orphan_finalizer_leaves_its_dependents_behind
    acceptance_gc_015_049_custom_resources_own_and_are_owned
    acceptance_gc_017_a_held_dependent_keeps_the_owner_that_it_blocks
    acceptance_gc_018_a_held_dependent_that_does_not_block_keeps_no_owner
    acceptance_gc_020_dependents_with_dependents_are_deleted_in_the_foreground_too
    acceptance_gc_021_a_circle_goes_in_the_foreground
    acceptance_gc_022_a_second_foreground_deletion_is_served_too
    acceptance_gc_023_a_reference_that_blocks_no_more_lets_the_owner_go
    acceptance_gc_026_an_owner_in_another_namespace_is_none_and_an_event_says_so
    acceptance_gc_027_034_what_is_the_clusters_is_never_deleted_for_an_owner_in_a_namespace
    acceptance_gc_028_an_owner_of_the_cluster_has_dependents_in_namespaces
    acceptance_gc_029_an_unknown_kind_proves_nothing
    acceptance_gc_030_another_version_names_the_same_owner
    acceptance_gc_031_032_a_version_that_is_not_served_proves_nothing
    acceptance_gc_033_a_wrong_kind_deletes_only_the_dependent_that_names_it
    acceptance_gc_035_a_successor_has_nothing_to_do_with_it
    acceptance_gc_051_events_are_not_collected
}

async fn graphs_leave_behind_what_upstream_leaves(on: On) {
    let Some(played) = Played::on(on).await else { return };
    let findings = played.findings();
    assert!(findings.is_empty(), "{} plays:\n{}", findings.len(), findings.join("\n"));
}

async fn upstreams_own_role_is_enough(on: On) {
    let Some(played) = Played::on(on).await else { return };
    assert!(played.refused.is_empty(), "{}", played.refused.join("\n"));
}

async fn acceptance_gc_001_009_010_016_pods_of_a_replication_controller(on: On) {
    Played::shows(on, &["replication-controller", "replica-set"]).await;
}

async fn acceptance_gc_002_019_what_has_another_owner_stays_and_loses_the_one_reference(on: On) {
    Played::shows(on, &["one-of-two-goes", "both-go"]).await;
}

async fn acceptance_gc_003_an_object_without_an_owner_is_never_deleted(on: On) {
    Played::shows(on, &["nobodys", "let-go"]).await;
}

async fn acceptance_gc_004_an_object_whose_owner_never_existed_is_deleted_without_an_event(on: On) {
    Played::shows(on, &["absent", "absent-with-another-uid"]).await;
}

async fn acceptance_gc_006_011_a_deployment_is_deleted_with_or_without_its_dependents(on: On) {
    Played::shows(on, &["deployment"]).await;
}

async fn acceptance_gc_007_a_cronjob_goes_with_its_jobs_and_pods(on: On) {
    Played::shows(on, &["cronjob"]).await;
}

async fn an_owner_with_the_orphan_finalizer_leaves_its_dependents_behind(on: On) {
    Played::shows(on, &["orphans-by-itself", "dependent-that-orphans", "foreground-then-orphan"]).await;
}

async fn acceptance_gc_015_049_custom_resources_own_and_are_owned(on: On) {
    Played::shows(on, &["custom-owner", "custom-dependent", "custom-chain"]).await;
}

async fn acceptance_gc_017_a_held_dependent_keeps_the_owner_that_it_blocks(on: On) {
    Played::shows(on, &["held-dependent", "held-dependent-let-go"]).await;
}

async fn acceptance_gc_018_a_held_dependent_that_does_not_block_keeps_no_owner(on: On) {
    Played::shows(on, &["held-dependents-that-do-not-block"]).await;
}

async fn acceptance_gc_020_dependents_with_dependents_are_deleted_in_the_foreground_too(on: On) {
    Played::shows(on, &["foreground-all-the-way", "chain-that-blocks"]).await;
}

async fn acceptance_gc_021_a_circle_goes_in_the_foreground(on: On) {
    Played::shows(on, &["three-in-a-circle", "two-in-a-circle"]).await;
}

async fn acceptance_gc_022_a_second_foreground_deletion_is_served_too(on: On) {
    Played::shows(on, &["twice-in-the-foreground"]).await;
}

async fn acceptance_gc_023_a_reference_that_blocks_no_more_lets_the_owner_go(on: On) {
    Played::shows(on, &["unblocked", "unowned"]).await;
}

async fn acceptance_gc_026_an_owner_in_another_namespace_is_none_and_an_event_says_so(on: On) {
    Played::shows(on, &["other-namespace", "other-namespace-and-a-good-one"]).await;
}

async fn acceptance_gc_027_034_what_is_the_clusters_is_never_deleted_for_an_owner_in_a_namespace(on: On) {
    Played::shows(on, &["cluster-owned-by-a-namespace", "cluster-owned-by-nobody-in-a-namespace"]).await;
}

async fn acceptance_gc_028_an_owner_of_the_cluster_has_dependents_in_namespaces(on: On) {
    Played::shows(on, &["of-the-cluster", "cluster-owns-cluster", "custom-of-the-cluster"]).await;
}

async fn acceptance_gc_029_an_unknown_kind_proves_nothing(on: On) {
    Played::shows(on, &["unknown-kind"]).await;
}

async fn acceptance_gc_030_another_version_names_the_same_owner(on: On) {
    Played::shows(on, &["other-version", "other-builtin-version"]).await;
}

async fn acceptance_gc_031_032_a_version_that_is_not_served_proves_nothing(on: On) {
    let graphs = ["unserved-version", "absent-by-two-names", "absent-by-two-names-the-unserved-one-first"];
    Played::shows(on, &graphs).await;
}

async fn acceptance_gc_033_a_wrong_kind_deletes_only_the_dependent_that_names_it(on: On) {
    Played::shows(on, &["wrong-kind", "wrong-kind-first", "wrong-name"]).await;
}

async fn acceptance_gc_035_a_successor_has_nothing_to_do_with_it(on: On) {
    Played::shows(on, &["made-again"]).await;
}

async fn acceptance_gc_051_events_are_not_collected(on: On) {
    Played::shows(on, &["events"]).await;
}
