use super::topics::cases;

cases! { "basics":
    fn conformance_a_created_object_is_read_as_it_was_answered();
    fn conformance_an_object_that_is_not_there_is_not_found();
    fn conformance_an_object_in_a_missing_namespace_is_not_found();
    fn conformance_a_second_object_of_one_name_is_refused();
    fn conformance_an_object_without_a_name_is_refused();
    fn conformance_a_bad_name_is_refused();
    fn conformance_an_update_replaces_data();
    fn conformance_an_update_with_an_old_version_is_a_conflict();
    fn conformance_an_update_of_a_missing_object_is_not_found();
    fn conformance_an_update_under_another_name_is_refused();
    fn conformance_an_equal_update_keeps_the_version();
    fn conformance_a_removed_object_is_gone();
    fn conformance_removing_what_is_missing_is_not_found();
    fn conformance_a_removed_object_may_come_again_with_another_uid();
    fn conformance_a_body_that_is_no_json_is_refused();
    fn conformance_a_list_tells_what_is_there();
    fn conformance_a_watch_tells_of_changes_in_their_order();
    fn conformance_a_watch_tells_nothing_of_other_namespaces();
    fn conformance_an_unknown_resource_is_a_missing_route();
    fn conformance_an_unknown_method_is_refused();
    fn conformance_a_namespace_carries_its_name_as_a_label();
    fn conformance_many_writers_of_one_version_leave_one_winner();
    fn acceptance_api_034_a_new_template_of_a_daemonset_raises_its_annotation();
    fn acceptance_api_103_a_minimal_pod_is_filled_in();
    fn acceptance_api_104_a_minimal_cronjob_is_filled_in();
    fn acceptance_api_104_a_minimal_replicaset_is_filled_in();
    fn acceptance_api_105_a_minimal_job_is_filled_in();
    fn acceptance_api_106_priority_classes_must_exist_and_give_their_value();
    fn acceptance_api_107_owners_need_a_kind_and_one_controller();
}
