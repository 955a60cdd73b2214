use super::topics::cases;

cases! { "events":
    fn acceptance_api_110_one_event_in_two_groups();
    fn acceptance_api_111_what_may_change_of_an_event();
    fn conformance_an_event_of_the_newer_group_in_the_older();
    fn conformance_an_event_without_action_is_refused();
    fn conformance_an_event_without_reason_is_refused();
    fn conformance_an_event_without_reporting_controller_is_refused();
    fn conformance_an_event_without_reporting_instance_is_refused();
    fn conformance_an_event_without_type_is_refused();
    fn conformance_an_event_without_event_time_is_refused();
    fn conformance_fields_of_old_events_stay_unset();
    fn conformance_a_series_has_two_events_at_least();
    fn conformance_only_the_series_of_an_event_changes();
    fn conformance_a_core_event_may_change_altogether();
    fn conformance_events_are_created_by_put();
    fn conformance_events_are_selected_by_what_they_are_about();
    fn conformance_a_deleted_event_is_gone_from_both();
}
