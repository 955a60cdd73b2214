use super::topics::cases;

cases! { "custom":
    fn acceptance_api_115_a_definition_is_established_and_served();
    fn acceptance_api_116_status_of_a_custom_resource();
    fn acceptance_api_117_a_definition_takes_its_instances_along();
    fn conformance_a_definition_under_another_name_is_refused();
    fn conformance_a_definition_without_a_schema_is_refused();
    fn conformance_names_in_use_are_not_accepted();
    fn conformance_a_custom_resource_in_two_versions();
    fn conformance_the_api_service_of_a_definition();
    fn conformance_printer_columns();
    fn conformance_a_custom_resource_without_columns_shows_its_age();
    fn conformance_selectable_fields();
    fn conformance_rules_of_custom_bodies();
    fn conformance_watches_of_instances_end_with_their_definition();
    fn conformance_a_recreated_definition_begins_empty();
    fn conformance_a_definition_as_a_row();
    fn conformance_a_definition_with_two_stored_versions_is_refused();
    fn conformance_a_stored_version_is_remembered();
    fn conformance_the_names_of_a_definition_are_immutable();
}
