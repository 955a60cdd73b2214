//! Events about sets that make no progress.

use harness::{NAMESPACE, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{SEC, World, claim_templates};

#[tokio::test(start_paused = true)]
async fn a_blocked_rollout_is_reported_once_and_counted_until_it_continues() {
    let (world, manager) = World::running(json!({})).await;
    world.set_image("two");
    world.kubelet(1).await;
    pass(SEC).await;
    // The new pod never becomes ready.
    pass(500 * SEC).await;
    let events = || async { world.events().await.into_iter().filter(|it| it.contains("Blocked")).collect::<Vec<_>>() };
    assert_eq!(events().await, [""; 0]);
    pass(200 * SEC).await;
    let blocked = events().await;
    assert_eq!(blocked.len(), 1, "{blocked:?}");
    assert!(blocked[0].starts_with("Warning Blocked: waiting for Pod web-2 (no node), not ready since"));
    let series = "mini_kcm_statefulset_blocked_since_timestamp_seconds{";
    assert_eq!(manager.metric_lines(series).len(), 1);
    pass(2_000 * SEC).await;
    assert_eq!(events().await.len(), 1);
    world.kubelet(10).await;
    assert_eq!(manager.metric_lines(series).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reverted_rollout_heals_itself_if_the_user_allows_it() {
    for allowed in [false, true] {
        let (world, _manager) = World::running(json!({})).await;
        if allowed {
            world.cluster.update("statefulsets.apps", NAMESPACE, "web", |it| {
                it["metadata"]["annotations"] = json!({ "mini-kcm.dev/replace-blocked-pods": "true" });
            });
        }
        world.set_image("broken");
        pass(SEC).await;
        world.remove_terminating_pods();
        pass(SEC).await;
        assert_eq!(world.image("web-2"), "broken");
        world.set_image("one");
        pass(70 * SEC).await;
        assert_eq!(world.call_count("delete pods web-2"), if allowed { 2 } else { 1 });
        world.remove_terminating_pods();
        pass(SEC).await;
        assert_eq!(world.image("web-2"), if allowed { "one" } else { "broken" });
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_prevents_a_creation_is_reported_once() {
    let world = World::new();
    world.fail_requests(|line, _| {
        (line == "create pods").then(|| Interception::status(403, "Forbidden", "exceeded quota: q, requested: pods=1"))
    });
    let manager = world.start().await;
    world.set(json!({}));
    pass(60 * SEC).await;
    let series = "mini_kcm_statefulset_blocked_since_timestamp_seconds{";
    assert_eq!(manager.metric_lines(series).len(), 1);
    let events = world.events().await;
    let quota: Vec<_> = events.iter().filter(|it| it.contains("QuotaExceeded")).collect();
    assert_eq!(quota, ["Warning QuotaExceeded: Pod web-0 is not created, because a quota is exceeded"]);
}

#[tokio::test(start_paused = true)]
async fn claims_that_differ_from_the_template_are_reported() {
    let (world, _manager) = World::running(json!({ "volumeClaimTemplates": claim_templates() })).await;
    world.cluster.update("persistentvolumeclaims", NAMESPACE, "data-web-1", |it| {
        it["spec"]["resources"]["requests"]["storage"] = json!("5Gi");
    });
    pass(SEC).await;
    let events = world.events().await;
    let message = "Warning ClaimsDiffer: volumeClaimTemplates are not applied to 1 existing claims that differ: \
                   data-web-1 has storage 5Gi, the template 1Gi";
    assert!(events.contains(&message.to_owned()), "{events:?}");
}
