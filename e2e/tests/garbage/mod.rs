//! The garbage collector on a real API server and on the embedded one: owner graphs by script, whose results must be
//! those of the upstream collector, and scenarios with kinds that are added, removed and broken.
//!
//! `E2E_MANAGER=go` runs everything with the upstream manager, and `RECORD=1` with it writes the results of the graphs;
//! `GRAPHS=<part of a name>` runs some of them. See `graphs/README.md`. Behaviour that only our manager has is asserted
//! only for ours.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

mod files;
mod kinds;
mod results;
mod setup;
mod trees;
mod trouble;

use crate::support::{On, on_both_servers};
use results::RunResults;

on_both_servers! {
    graphs_end_as_recorded_from_upstream
    role_of_upstream_is_sufficient
    acceptance_gc_001_009_010_016_pods_of_a_replication_controller
    acceptance_gc_002_019_object_with_another_owner_stays_and_loses_one_reference
    acceptance_gc_003_object_without_owner_is_never_deleted
    acceptance_gc_004_object_whose_owner_never_existed_is_deleted_without_event
    acceptance_gc_006_011_deployment_is_deleted_with_or_without_its_dependents
    acceptance_gc_007_jobs_and_pods_of_deleted_cronjob_are_deleted
    dependents_of_owner_with_orphan_finalizer_stay
    acceptance_gc_015_049_custom_resources_as_owners_and_dependents
    acceptance_gc_017_blocking_dependent_with_finalizer_blocks_its_owner
    acceptance_gc_018_non_blocking_dependent_with_finalizer_blocks_no_owner
    acceptance_gc_020_dependents_with_dependents_are_deleted_in_the_foreground_too
    acceptance_gc_021_cycle_is_deleted_in_the_foreground
    acceptance_gc_022_second_foreground_deletion_is_completed_too
    acceptance_gc_023_owner_is_deleted_when_reference_stops_blocking
    acceptance_gc_026_owner_in_another_namespace_counts_as_absent_and_gives_an_event
    acceptance_gc_027_034_cluster_scoped_object_is_never_deleted_for_a_namespaced_owner
    acceptance_gc_028_dependents_of_cluster_scoped_owner_are_collected_in_namespaces
    acceptance_gc_029_dependent_of_unknown_kind_stays
    acceptance_gc_030_reference_in_another_version_is_to_the_same_owner
    acceptance_gc_031_032_dependent_of_unserved_version_stays
    acceptance_gc_033_reference_with_wrong_kind_deletes_only_its_dependent
    acceptance_gc_035_successor_of_an_owner_owns_nothing
    acceptance_gc_051_events_are_not_collected
}

async fn graphs_end_as_recorded_from_upstream(on: On) {
    let Some(results) = RunResults::on(on).await else { return };
    let findings = results.findings();
    assert!(findings.is_empty(), "{} runs:\n{}", findings.len(), findings.join("\n"));
}

async fn role_of_upstream_is_sufficient(on: On) {
    let Some(results) = RunResults::on(on).await else { return };
    assert!(results.refused.is_empty(), "{}", results.refused.join("\n"));
}

async fn acceptance_gc_001_009_010_016_pods_of_a_replication_controller(on: On) {
    RunResults::assert_as_recorded(on, &["replication-controller", "replica-set"]).await;
}

async fn acceptance_gc_002_019_object_with_another_owner_stays_and_loses_one_reference(on: On) {
    RunResults::assert_as_recorded(on, &["one-of-two-goes", "both-go"]).await;
}

async fn acceptance_gc_003_object_without_owner_is_never_deleted(on: On) {
    RunResults::assert_as_recorded(on, &["nobodys", "let-go"]).await;
}

async fn acceptance_gc_004_object_whose_owner_never_existed_is_deleted_without_event(on: On) {
    RunResults::assert_as_recorded(on, &["absent", "absent-with-another-uid"]).await;
}

async fn acceptance_gc_006_011_deployment_is_deleted_with_or_without_its_dependents(on: On) {
    RunResults::assert_as_recorded(on, &["deployment"]).await;
}

async fn acceptance_gc_007_jobs_and_pods_of_deleted_cronjob_are_deleted(on: On) {
    RunResults::assert_as_recorded(on, &["cronjob"]).await;
}

async fn dependents_of_owner_with_orphan_finalizer_stay(on: On) {
    RunResults::assert_as_recorded(on, &["orphans-by-itself", "dependent-that-orphans", "foreground-then-orphan"])
        .await;
}

async fn acceptance_gc_015_049_custom_resources_as_owners_and_dependents(on: On) {
    RunResults::assert_as_recorded(on, &["custom-owner", "custom-dependent", "custom-chain"]).await;
}

async fn acceptance_gc_017_blocking_dependent_with_finalizer_blocks_its_owner(on: On) {
    RunResults::assert_as_recorded(on, &["held-dependent", "held-dependent-let-go"]).await;
}

async fn acceptance_gc_018_non_blocking_dependent_with_finalizer_blocks_no_owner(on: On) {
    RunResults::assert_as_recorded(on, &["held-dependents-that-do-not-block"]).await;
}

async fn acceptance_gc_020_dependents_with_dependents_are_deleted_in_the_foreground_too(on: On) {
    RunResults::assert_as_recorded(on, &["foreground-all-the-way", "chain-that-blocks"]).await;
}

async fn acceptance_gc_021_cycle_is_deleted_in_the_foreground(on: On) {
    RunResults::assert_as_recorded(on, &["three-in-a-circle", "two-in-a-circle"]).await;
}

async fn acceptance_gc_022_second_foreground_deletion_is_completed_too(on: On) {
    RunResults::assert_as_recorded(on, &["twice-in-the-foreground"]).await;
}

async fn acceptance_gc_023_owner_is_deleted_when_reference_stops_blocking(on: On) {
    RunResults::assert_as_recorded(on, &["unblocked", "unowned"]).await;
}

async fn acceptance_gc_026_owner_in_another_namespace_counts_as_absent_and_gives_an_event(on: On) {
    RunResults::assert_as_recorded(on, &["other-namespace", "other-namespace-and-a-good-one"]).await;
}

async fn acceptance_gc_027_034_cluster_scoped_object_is_never_deleted_for_a_namespaced_owner(on: On) {
    RunResults::assert_as_recorded(on, &["cluster-owned-by-a-namespace", "cluster-owned-by-nobody-in-a-namespace"])
        .await;
}

async fn acceptance_gc_028_dependents_of_cluster_scoped_owner_are_collected_in_namespaces(on: On) {
    RunResults::assert_as_recorded(on, &["of-the-cluster", "cluster-owns-cluster", "custom-of-the-cluster"]).await;
}

async fn acceptance_gc_029_dependent_of_unknown_kind_stays(on: On) {
    RunResults::assert_as_recorded(on, &["unknown-kind"]).await;
}

async fn acceptance_gc_030_reference_in_another_version_is_to_the_same_owner(on: On) {
    RunResults::assert_as_recorded(on, &["other-version", "other-builtin-version"]).await;
}

async fn acceptance_gc_031_032_dependent_of_unserved_version_stays(on: On) {
    let graphs = ["unserved-version", "absent-by-two-names", "absent-by-two-names-the-unserved-one-first"];
    RunResults::assert_as_recorded(on, &graphs).await;
}

async fn acceptance_gc_033_reference_with_wrong_kind_deletes_only_its_dependent(on: On) {
    RunResults::assert_as_recorded(on, &["wrong-kind", "wrong-kind-first", "wrong-name"]).await;
}

async fn acceptance_gc_035_successor_of_an_owner_owns_nothing(on: On) {
    RunResults::assert_as_recorded(on, &["made-again"]).await;
}

async fn acceptance_gc_051_events_are_not_collected(on: On) {
    RunResults::assert_as_recorded(on, &["events"]).await;
}
