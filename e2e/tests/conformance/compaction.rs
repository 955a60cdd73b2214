use super::topics::cases;

cases! { "compaction":
    fn acceptance_api_049_lists_of_the_compacted_past();
    fn acceptance_api_060_a_watch_from_before_the_history_expires();
    fn conformance_an_expired_watch_of_events();
    fn conformance_a_streamed_list_starts_from_any_compacted_version();
    fn conformance_a_list_not_older_than_a_compacted_version();
    fn conformance_an_expired_watch_of_tables_and_of_metadata();
    fn conformance_an_expired_token_of_a_selection();
}
