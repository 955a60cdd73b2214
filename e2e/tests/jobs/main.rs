//! Jobs and CronJobs by script: the results must be those of the upstream manager.
//!
//! All are run at once, each in a namespace of its own; each scenario names the scripts that show its behaviour.
//! `E2E_MANAGER=go` runs them with the upstream manager, and `RECORD=1` with it writes the results; `WORKLOADS=<part of
//! a name>` runs some of them, `CONTROLLERS=cronjob-controller` lets upstream's manager run all other controllers. See
//! `workloads/README.md`.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

#[path = "../support/mod.rs"]
mod support;

mod played;
mod sets;
mod setup;

use played::Played;
use support::{On, on_both_servers};

on_both_servers! {
    workloads_leave_behind_what_upstream_leaves
    upstreams_own_roles_are_enough_and_no_status_is_refused
    acceptance_job_028_070_failure_target_comes_first_and_the_server_takes_every_status
    acceptance_job_033_a_status_during_a_back_off_is_accepted
    acceptance_job_051_success_criteria_met_comes_first_and_the_server_takes_both
    acceptance_job_058_the_status_of_a_resumed_job_is_accepted
    acceptance_job_059_what_a_queue_sets_on_a_suspended_job_is_accepted
    acceptance_job_060_a_suspended_job_of_no_completions_is_accepted_as_complete
    acceptance_job_062_a_deleted_job_that_is_suspended_gets_no_condition
    acceptance_job_022_deleted_without_its_pods_they_lose_the_finalizer
    acceptance_job_023_deleted_with_its_pods_no_pod_keeps_the_finalizer
    acceptance_job_067_a_job_made_again_inherits_nothing
    acceptance_cronjob_053_jobs_and_pods_go_with_their_cronjob
    acceptance_ttl_018_a_finalizer_holds_a_job_whose_time_is_over
    acceptance_ttl_019_pods_go_with_a_job_whose_time_is_over
}

async fn workloads_leave_behind_what_upstream_leaves(on: On) {
    let Some(played) = Played::on(on).await else { return };
    let findings = played.findings();
    assert!(findings.is_empty(), "{} workloads:\n{}", findings.len(), findings.join("\n"));
}

async fn upstreams_own_roles_are_enough_and_no_status_is_refused(on: On) {
    let Some(played) = Played::on(on).await else { return };
    assert!(played.refused.is_empty(), "{}", played.refused.join("\n"));
}

async fn acceptance_job_022_deleted_without_its_pods_they_lose_the_finalizer(on: On) {
    Played::shows(on, &["deleted-without-its-pods"]).await;
}

async fn acceptance_job_023_deleted_with_its_pods_no_pod_keeps_the_finalizer(on: On) {
    let both = ["deleted-in-the-background", "deleted-in-the-foreground", "finished-and-deleted-in-the-foreground"];
    Played::shows(on, &both).await;
}

async fn acceptance_job_028_070_failure_target_comes_first_and_the_server_takes_every_status(on: On) {
    Played::shows(on, &["gives-up-at-once", "gives-up-and-waits", "ready"]).await;
}

async fn acceptance_job_033_a_status_during_a_back_off_is_accepted(on: On) {
    Played::shows(on, &["waits-beside-a-ready-pod"]).await;
}

async fn acceptance_job_051_success_criteria_met_comes_first_and_the_server_takes_both(on: On) {
    Played::shows(on, &["the-leader-is-done", "done-while-others-run"]).await;
}

async fn acceptance_job_058_the_status_of_a_resumed_job_is_accepted(on: On) {
    Played::shows(on, &["suspended-and-resumed", "resumed-while-pods-end"]).await;
}

async fn acceptance_job_059_what_a_queue_sets_on_a_suspended_job_is_accepted(on: On) {
    Played::shows(on, &["made-suspended", "admitted"]).await;
}

async fn acceptance_job_060_a_suspended_job_of_no_completions_is_accepted_as_complete(on: On) {
    Played::shows(on, &["suspended-with-nothing-to-do"]).await;
}

async fn acceptance_job_062_a_deleted_job_that_is_suspended_gets_no_condition(on: On) {
    Played::shows(on, &["suspended-and-deleted"]).await;
}

async fn acceptance_job_067_a_job_made_again_inherits_nothing(on: On) {
    Played::shows(on, &["deleted-and-made-again"]).await;
}

async fn acceptance_cronjob_053_jobs_and_pods_go_with_their_cronjob(on: On) {
    Played::shows(on, &["cron-deleted"]).await;
}

async fn acceptance_ttl_018_a_finalizer_holds_a_job_whose_time_is_over(on: On) {
    Played::shows(on, &["held-after-its-time"]).await;
}

async fn acceptance_ttl_019_pods_go_with_a_job_whose_time_is_over(on: On) {
    Played::shows(on, &["gone-after-its-time", "failed-and-gone-after-its-time", "time-to-live-set-later"]).await;
}
