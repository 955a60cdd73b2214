use super::topics::cases;

cases! { "namespaces":
    fn acceptance_api_098_a_new_namespace();
    fn conformance_a_namespace_with_finalizers_of_its_own();
    fn acceptance_api_099_a_deleted_namespace_is_terminating();
    fn acceptance_api_099_namespaces_that_stay();
    fn acceptance_api_100_nothing_new_in_a_terminating_namespace();
    fn conformance_no_kind_may_be_created_in_a_terminating_namespace();
    fn acceptance_api_101_finalize_removes_a_terminating_namespace();
    fn conformance_what_is_left_of_a_removed_namespace_can_be_deleted();
    fn acceptance_api_102_the_phase_of_an_active_namespace();
    fn conformance_the_phase_of_a_terminating_namespace();
    fn conformance_finalizers_of_a_terminating_namespace_one_by_one();
    fn conformance_finalize_of_an_active_namespace();
    fn conformance_finalize_with_a_bad_finalizer();
    fn conformance_finalizers_in_metadata_hold_a_namespace();
    fn conformance_finalize_drops_finalizers_of_metadata_that_are_not_sent();
    fn conformance_methods_of_finalize();
    fn conformance_a_namespace_deleted_with_a_policy();
    fn conformance_a_namespace_deleted_as_orphan();
    fn conformance_preconditions_of_a_namespace();
    fn conformance_a_namespace_deletion_tried_only();
    fn conformance_a_namespace_with_grace();
    fn conformance_what_a_watch_sees_of_a_namespace();
    fn conformance_status_of_a_namespace_takes_metadata();
    fn conformance_a_namespace_may_come_again();
    fn conformance_creating_a_terminating_namespace_again();
    fn conformance_names_of_namespaces();
}
