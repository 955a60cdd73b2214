use super::topics::cases;

cases! { "discovery":
    fn acceptance_api_013_aggregated_discovery_and_its_tag();
    fn acceptance_api_014_legacy_discovery_of_the_core();
    fn acceptance_api_003_a_missing_version_and_a_missing_group_of_discovery();
    fn conformance_aggregated_discovery_needs_its_version();
    fn conformance_aggregated_discovery_is_of_the_roots_alone();
    fn conformance_discovery_takes_any_accept_that_means_json();
    fn conformance_discovery_is_no_table();
    fn conformance_aggregated_batch();
    fn conformance_aggregated_autoscaling_prefers_its_newer_version();
    fn conformance_aggregated_reviews();
    fn conformance_aggregated_groups_that_are_served_whole();
    fn conformance_the_first_groups_and_their_order();
    fn conformance_versions_of_the_core();
    fn conformance_one_group();
    fn conformance_legacy_apps();
    fn conformance_legacy_batch_and_policy();
    fn conformance_legacy_autoscaling_in_both_versions();
    fn conformance_legacy_groups_of_one_kind();
    fn conformance_legacy_groups_of_extensions();
    fn conformance_legacy_rbac_and_reviews();
    fn conformance_legacy_core_kind_by_kind();
    fn conformance_legacy_subresources_with_kinds_of_their_own();
    fn conformance_methods_on_documents();
    fn conformance_health();
    fn conformance_the_version();
    fn conformance_paths_that_are_not_found();
    fn conformance_the_index_of_open_api();
    fn acceptance_api_118_an_api_service_without_a_service();
    fn conformance_the_api_service_of_a_built_in_group();
    fn conformance_the_api_service_of_a_built_in_group_as_a_row();
    fn conformance_an_api_service_under_another_name_is_refused();
}
