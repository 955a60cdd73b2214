//! Jobs and CronJobs by script: the results must be those of the upstream manager.
//!
//! All are run at once, each in a namespace of its own; each scenario names the scripts that show its behaviour.
//! `E2E_MANAGER=go` runs them with the upstream manager, and `RECORD=1` with it writes the results; `WORKLOADS=<part of
//! a name>` runs some of them, `CONTROLLERS=cronjob-controller` lets upstream's manager run all other controllers. See
//! `workloads/README.md`.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

mod files;
mod results;
mod setup;

use crate::support::{On, on_both_servers};
use results::RunResults;

on_both_servers! {
    workloads_end_as_recorded_from_upstream
    roles_of_upstream_are_sufficient_and_no_status_is_refused
    acceptance_job_028_070_failure_target_comes_first_and_every_status_is_accepted
    acceptance_job_033_status_during_back_off_is_accepted
    acceptance_job_051_success_criteria_met_comes_first_and_both_are_accepted
    acceptance_job_058_status_of_resumed_job_is_accepted
    acceptance_job_059_edits_of_a_queue_on_suspended_job_are_accepted
    acceptance_job_060_suspended_job_without_completions_is_accepted_as_complete
    acceptance_job_062_deleted_suspended_job_gets_no_condition
    acceptance_job_022_orphaned_pods_of_deleted_job_lose_the_finalizer
    acceptance_job_023_deleted_pods_of_deleted_job_lose_the_finalizer
    acceptance_job_067_recreated_job_starts_without_state
    acceptance_cronjob_053_jobs_and_pods_are_deleted_with_their_cronjob
    acceptance_ttl_018_expired_job_with_finalizer_remains
    acceptance_ttl_019_pods_of_expired_job_are_deleted
}

async fn workloads_end_as_recorded_from_upstream(on: On) {
    let Some(results) = RunResults::on(on).await else { return };
    let findings = results.findings();
    assert!(findings.is_empty(), "{} workloads:\n{}", findings.len(), findings.join("\n"));
}

async fn roles_of_upstream_are_sufficient_and_no_status_is_refused(on: On) {
    let Some(results) = RunResults::on(on).await else { return };
    assert!(results.refused.is_empty(), "{}", results.refused.join("\n"));
}

async fn acceptance_job_022_orphaned_pods_of_deleted_job_lose_the_finalizer(on: On) {
    RunResults::assert_as_recorded(on, &["deleted-without-its-pods"]).await;
}

async fn acceptance_job_023_deleted_pods_of_deleted_job_lose_the_finalizer(on: On) {
    let both = ["deleted-in-the-background", "deleted-in-the-foreground", "finished-and-deleted-in-the-foreground"];
    RunResults::assert_as_recorded(on, &both).await;
}

async fn acceptance_job_028_070_failure_target_comes_first_and_every_status_is_accepted(on: On) {
    RunResults::assert_as_recorded(on, &["gives-up-at-once", "gives-up-and-waits", "ready"]).await;
}

async fn acceptance_job_033_status_during_back_off_is_accepted(on: On) {
    RunResults::assert_as_recorded(on, &["waits-beside-a-ready-pod"]).await;
}

async fn acceptance_job_051_success_criteria_met_comes_first_and_both_are_accepted(on: On) {
    RunResults::assert_as_recorded(on, &["the-leader-is-done", "done-while-others-run"]).await;
}

async fn acceptance_job_058_status_of_resumed_job_is_accepted(on: On) {
    RunResults::assert_as_recorded(on, &["suspended-and-resumed", "resumed-while-pods-end"]).await;
}

async fn acceptance_job_059_edits_of_a_queue_on_suspended_job_are_accepted(on: On) {
    RunResults::assert_as_recorded(on, &["made-suspended", "admitted"]).await;
}

async fn acceptance_job_060_suspended_job_without_completions_is_accepted_as_complete(on: On) {
    RunResults::assert_as_recorded(on, &["suspended-with-nothing-to-do"]).await;
}

async fn acceptance_job_062_deleted_suspended_job_gets_no_condition(on: On) {
    RunResults::assert_as_recorded(on, &["suspended-and-deleted"]).await;
}

async fn acceptance_job_067_recreated_job_starts_without_state(on: On) {
    RunResults::assert_as_recorded(on, &["deleted-and-made-again"]).await;
}

async fn acceptance_cronjob_053_jobs_and_pods_are_deleted_with_their_cronjob(on: On) {
    RunResults::assert_as_recorded(on, &["cron-deleted"]).await;
}

async fn acceptance_ttl_018_expired_job_with_finalizer_remains(on: On) {
    RunResults::assert_as_recorded(on, &["held-after-its-time"]).await;
}

async fn acceptance_ttl_019_pods_of_expired_job_are_deleted(on: On) {
    RunResults::assert_as_recorded(
        on,
        &["gone-after-its-time", "failed-and-gone-after-its-time", "time-to-live-set-later"],
    )
    .await;
}
