use super::*;
use crate::{ContainerState, TaintEffect, TolerationOperator};

fn decode(text: &str) -> Pod {
    Pod::decode_object(text.as_bytes()).unwrap()
}

#[test]
fn pod_has_the_fields_that_controllers_read() {
    let pod = decode(
        r#"{"metadata":{"name":"p","namespace":"ns","generation":4,"creationTimestamp":"2026-01-02T03:04:05Z",
            "deletionTimestamp":"2026-01-02T03:05:05Z","deletionGracePeriodSeconds":30,"labels":{"app":"x"},
            "annotations":{"batch.kubernetes.io/job-completion-index":"3","kubectl.kubernetes.io/last-applied":"{}"}},
          "spec":{"nodeName":"n1","terminationGracePeriodSeconds":30,
            "tolerations":[{"operator":"Exists"},
              {"key":"k","value":"v","effect":"NoExecute","tolerationSeconds":300}],
            "initContainers":[{"name":"setup"},{"name":"proxy","restartPolicy":"Always"}],
            "volumes":[{"name":"tmp","emptyDir":{}},{"name":"data","persistentVolumeClaim":{"claimName":"data-p"}}]},
          "status":{"phase":"Failed","reason":"Evicted","startTime":"2026-01-02T03:04:06Z",
            "conditions":[{"type":"Ready","status":"False","lastProbeTime":null,
              "lastTransitionTime":"2026-01-02T03:04:07Z","message":"not kept"}],
            "initContainerStatuses":[{"name":"setup","restartCount":1,
                "state":{"terminated":{"exitCode":0,"finishedAt":"2026-01-02T03:04:08Z"}}},
              {"name":"proxy","restartCount":2,"state":{"running":{"startedAt":"2026-01-02T03:04:09Z"}}}],
            "containerStatuses":[{"name":"main","restartCount":5,"ready":false,
                "state":{"terminated":{"exitCode":137,"reason":"OOMKilled","finishedAt":"2026-01-02T03:04:10Z"}}},
              {"name":"idle","state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}"#,
    );
    const T: i64 = 1_767_323_045;
    assert_eq!((pod.creation, pod.meta.deletion, pod.start), (Some(T), Some(T + 60), Some(T + 1)));
    assert_eq!((pod.generation, pod.deletion_grace, pod.termination_grace), (4, Some(30), Some(30)));
    assert_eq!(pod.labels.get("app"), Some("x"));
    let annotations: Vec<_> = pod.annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
    assert_eq!(annotations, [("batch.kubernetes.io/job-completion-index", "3")]);
    assert_eq!((&*pod.node, &*pod.target_node, &pod.phase, &*pod.reason), ("n1", "", &PodPhase::Failed, "Evicted"));
    assert_eq!(*pod.claims, [ClaimVolume { volume: "data".into(), claim: "data-p".into() }]);

    let [any, timed] = &*pod.tolerations else { panic!("{:?}", pod.tolerations) };
    assert_eq!((&any.operator, &any.effect, any.seconds), (&TolerationOperator::Exists, &None, None));
    assert_eq!((&timed.operator, &timed.effect), (&TolerationOperator::Equal, &Some(TaintEffect::NoExecute)));
    assert_eq!((&*timed.key, &*timed.value, timed.seconds), ("k", "v", Some(300)));

    let ready = pod.condition("Ready").unwrap();
    assert_eq!((&ready.status, ready.last_transition), (&ConditionStatus::False, Some(T + 2)));

    let status = |name: &str, role, restarts, state| ContainerStatus { name: name.into(), role, restarts, state };
    let ended = |exit_code, reason: &str, finished| ContainerState::Terminated {
        exit_code,
        reason: reason.into(),
        finished: Some(finished),
    };
    assert_eq!(
        *pod.containers,
        [
            status("main", ContainerRole::Regular, 5, ended(137, "OOMKilled", T + 5)),
            status("idle", ContainerRole::Regular, 0, ContainerState::Waiting { reason: "ImagePullBackOff".into() }),
            status("setup", ContainerRole::Init, 1, ended(0, "", T + 3)),
            status("proxy", ContainerRole::Sidecar, 2, ContainerState::Running { started: Some(T + 4) }),
        ]
    );
}

#[test]
fn node_of_a_daemon_pod_comes_from_its_affinity() {
    let target = |terms: &str| {
        let affinity = format!(
            r#"{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":{terms}}}}}}}"#
        );
        decode(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"affinity":{affinity}}}}}"#)).target_node
    };
    let field = |key: &str, operator: &str, values: &str| {
        format!(r#"{{"matchFields":[{{"key":"{key}","operator":"{operator}","values":{values}}}]}}"#)
    };
    for (name, terms, want) in [
        ("one name", format!("[{}]", field("metadata.name", "In", r#"["n7"]"#)), "n7"),
        ("in a later term", format!("[{{}},{}]", field("metadata.name", "In", r#"["n7"]"#)), "n7"),
        ("two names", format!("[{}]", field("metadata.name", "In", r#"["n7","n8"]"#)), ""),
        ("no name", format!("[{}]", field("metadata.name", "In", "null")), ""),
        ("another operator", format!("[{}]", field("metadata.name", "NotIn", r#"["n7"]"#)), ""),
        ("another field", format!("[{}]", field("spec.x", "In", r#"["n7"]"#)), ""),
        ("no terms", "null".to_owned(), ""),
    ] {
        assert_eq!(&*target(&terms), want, "{name}");
    }
}

#[test]
fn null_and_absent_are_the_same() {
    let bare = decode(r#"{"metadata":{"name":"p","namespace":"ns"}}"#);
    for nulls in [
        r#"{"metadata":{"name":"p","namespace":"ns","uid":null,"labels":null,"annotations":null,"generation":null,
            "creationTimestamp":null,"deletionTimestamp":null,"deletionGracePeriodSeconds":null,"finalizers":null,
            "ownerReferences":null,"resourceVersion":null,"managedFields":null},"spec":null,"status":null}"#,
        r#"{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":null,"affinity":null,"tolerations":null,
            "volumes":null,"initContainers":null,"terminationGracePeriodSeconds":null},"status":{"phase":null,
            "reason":null,"startTime":null,"conditions":null,"containerStatuses":null,"initContainerStatuses":null}}"#,
        r#"{"metadata":{"name":"p","namespace":"ns"},"spec":{"affinity":{"nodeAffinity":null}}}"#,
    ] {
        assert_eq!(decode(nulls), bare);
    }
}

#[test]
fn pods_are_found_by_controller_and_namespace() {
    let keys = |text: &str| {
        let mut keys = Vec::new();
        decode(text).index(&mut |key| keys.push(key));
        keys
    };
    let owned = r#"{"metadata":{"name":"p","namespace":"ns","ownerReferences":[{"uid":"u0"},{"uid":"u1","controller":true}]},
        "spec":{"nodeName":"n1"}}"#;
    assert_eq!(keys(owned), [PodIndex::Owner(Uid::new("u1")), PodIndex::Namespace("ns".into())]);
    let orphan = r#"{"metadata":{"name":"p","namespace":"ns","ownerReferences":[{"uid":"u0"}]}}"#;
    assert_eq!(keys(orphan), [PodIndex::Orphans("ns".into()), PodIndex::Namespace("ns".into())]);
}

#[test]
fn too_long_grace_period_is_the_maximum() {
    let grace = |seconds: i64| {
        let text = format!(
            r#"{{"metadata":{{"name":"p","deletionGracePeriodSeconds":{seconds}}},
                "spec":{{"terminationGracePeriodSeconds":{seconds}}}}}"#
        );
        let pod = decode(&text);
        (pod.deletion_grace, pod.termination_grace)
    };
    assert_eq!(grace(30), (Some(30), Some(30)));
    assert_eq!(grace(i64::MAX), (Some(i32::MAX), Some(i32::MAX)));
    assert_eq!(grace(-1), (Some(-1), Some(-1)));
}
