use super::topics::cases;

cases! { "admission":
    fn acceptance_api_106_classes_of_priority();
    fn conformance_a_priority_that_contradicts_is_forbidden();
    fn conformance_a_class_gives_its_value();
    fn conformance_a_pod_that_tolerates_everything();
    fn conformance_a_pod_that_tolerates_not_ready_without_execution();
    fn conformance_a_pod_that_tolerates_unreachable();
    fn conformance_a_gated_pod_says_so();
    fn conformance_a_pod_of_class_burstable();
    fn conformance_a_pod_of_class_guaranteed();
    fn conformance_a_pod_of_class_best_effort();
    fn conformance_a_pod_on_a_node_is_where_the_node_is();
    fn conformance_claims_are_protected();
}
