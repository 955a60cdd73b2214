use serde_json::{Value, json};

use super::*;

const T: i64 = 1_767_323_045;

const JOB: &str = r#"{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"j","namespace":"ns","uid":"U-1",
    "resourceVersion":"7","generation":3,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"x":"y"},
    "managedFields":[{"manager":"kubectl"}],"ownerReferences":[{"uid":"c-1","kind":"CronJob","controller":true}]},
    "spec":{"parallelism":2,"completions":5,"completionMode":"Indexed","backoffLimit":4,"backoffLimitPerIndex":1,
      "maxFailedIndexes":3,"suspend":true,"activeDeadlineSeconds":60,"managedBy":"kubernetes.io/job-controller",
      "ttlSecondsAfterFinished":9,"podReplacementPolicy":"Failed","manualSelector":false,
      "selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"U-1"}},
      "podFailurePolicy":{"rules":[
        {"action":"FailJob","onExitCodes":{"containerName":"a","operator":"In","values":[1,2]},"onPodConditions":null},
        {"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]}]},
      "successPolicy":{"rules":[{"succeededIndexes":"0-2","succeededCount":1}]},
      "template":{"metadata":{"labels":{"a":"1.0"}},"spec":{"restartPolicy":"Never","newField":1.50}}},
    "status":{"startTime":"2026-01-02T03:04:06Z","active":1,"ready":0,"terminating":2,"succeeded":3,"failed":4,
      "completedIndexes":"0-2","failedIndexes":"4","newStatus":{"deep":[1.50]},
      "uncountedTerminatedPods":{"succeeded":["p-1"],"failed":["p-2"],"lost":["p-3"]},
      "conditions":[{"type":"Suspended","status":"False","reason":"JobResumed","message":"Job resumed",
        "lastProbeTime":"2026-01-02T03:04:07Z","lastTransitionTime":"2026-01-02T03:04:08Z","seen":3}]}}"#;

fn decode(text: &str) -> Job {
    Job::decode_object(text.as_bytes()).unwrap()
}

fn with_conditions(conditions: Value) -> Job {
    decode(&json!({ "metadata": { "name": "j" }, "status": { "conditions": conditions } }).to_string())
}

#[test]
fn job_has_the_fields_that_controllers_read() {
    let job = decode(JOB);
    assert_eq!((&*job.meta.name, job.creation, job.generation), ("j", Some(T), 3));
    assert_eq!(job.meta().controller().unwrap().uid, Uid::new("c-1"));
    let JobSpec { pod_failure_policy, success_policy, template, selector, .. } = &job.spec;
    assert_eq!(
        pod_failure_policy.as_deref().unwrap(),
        [
            PodFailureRule {
                action: PodFailureAction::FailJob,
                on_exit_codes: Some(ExitCodes {
                    container: Some("a".into()),
                    operator: ExitCodeOperator::In,
                    values: [1, 2].into(),
                }),
                on_pod_conditions: Box::default(),
            },
            PodFailureRule {
                action: PodFailureAction::Ignore,
                on_exit_codes: None,
                on_pod_conditions: [("DisruptionTarget".into(), ConditionStatus::True)].into(),
            },
        ]
    );
    assert_eq!(success_policy.as_deref().unwrap(), [SuccessRule { indexes: Some("0-2".into()), count: Some(1) }]);
    assert_eq!(&**template, r#"{"metadata":{"labels":{"a":"1.0"}},"spec":{"restartPolicy":"Never","newField":1.50}}"#);
    assert!(selector.is_some());
    let spec = &job.spec;
    assert_eq!((spec.parallelism, spec.completions, spec.completion_mode.as_str()), (2, Some(5), "Indexed"));
    assert_eq!((spec.backoff_limit, spec.backoff_limit_per_index, spec.max_failed_indexes), (4, Some(1), Some(3)));
    assert_eq!((spec.suspend, spec.active_deadline, spec.ttl_after_finished), (true, Some(60), Some(9)));
    assert_eq!((&spec.restart_policy, spec.manual_selector), (&RestartPolicy::Never, false));
    assert_eq!(spec.pod_replacement_policy, PodReplacementPolicy::Failed);

    let status = &job.status;
    assert_eq!((status.start, status.completion, status.active, status.ready), (Some(T + 1), None, 1, Some(0)));
    assert_eq!((status.terminating, status.succeeded, status.failed), (Some(2), 3, 4));
    assert_eq!((&*status.completed_indexes, status.failed_indexes.as_deref()), ("0-2", Some("4")));
    let uncounted = status.uncounted.as_ref().unwrap();
    assert_eq!((&*uncounted.succeeded, &*uncounted.failed), (&[Uid::new("p-1")][..], &[Uid::new("p-2")][..]));
    let suspended = job.condition("Suspended").unwrap();
    assert_eq!((suspended.last_probe, suspended.last_transition), (Some(T + 2), Some(T + 3)));
    assert!(!status.is_condition_true("Suspended") && !job.is_finished());
}

#[test]
fn status_is_written_with_all_fields_that_were_read() {
    let job = decode(JOB);
    let came: Value = serde_json::from_str(JOB).unwrap();
    assert_eq!(serde_json::to_value(&job.status).unwrap(), came["status"]);
    let raw = job.raw_metadata().get();
    assert!(raw.contains(r#""labels":{"x":"y"}"#) && !raw.contains("managedFields"), "{raw}");

    let mut status = job.status.clone();
    status.conditions.push(JobCondition::new("Failed", ConditionStatus::True, "R", "m", T));
    status.uncounted = Some(UncountedPods::default());
    (status.active, status.succeeded, status.failed, status.start) = (0, 0, 0, None);
    (status.ready, status.failed_indexes, status.completed_indexes) = (None, Some("".into()), "".into());
    assert_eq!(
        serde_json::to_value(&status).unwrap(),
        json!({ "terminating": 2, "failedIndexes": "", "newStatus": { "deep": [1.5] }, "uncountedTerminatedPods": {},
            "conditions": [
                came["status"]["conditions"][0],
                { "type": "Failed", "status": "True", "reason": "R", "message": "m",
                  "lastProbeTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z" },
            ] })
    );
    assert_ne!(status, job.status);
}

#[test]
fn absent_fields_have_the_servers_default() {
    for text in [
        r#"{"metadata":{"name":"j"}}"#,
        r#"{"metadata":{"name":"j"},"spec":null,"status":null}"#,
        r#"{"metadata":{"name":"j"},"spec":{"parallelism":null,"completions":null,"completionMode":null,"selector":null,
            "backoffLimit":null,"podFailurePolicy":null,"successPolicy":null,"template":null,"managedBy":null},
            "status":{"conditions":null,"startTime":null,"active":null,"ready":null,"uncountedTerminatedPods":null,
            "completedIndexes":null,"failedIndexes":null}}"#,
        r#"{"metadata":{"name":"j"},"spec":{"template":{"spec":null}}}"#,
    ] {
        let Job { mut spec, status, .. } = decode(text);
        spec.template = Box::default();
        assert_eq!((spec, status), (JobSpec::default(), JobStatus::default()), "{text}");
    }
    let spec = JobSpec::default();
    assert_eq!((spec.parallelism, spec.completions, spec.backoff_limit), (1, None, 6));
    assert_eq!(spec.completion_mode, CompletionMode::NonIndexed);
    assert_eq!(spec.pod_replacement_policy, PodReplacementPolicy::TerminatingOrFailed);
    let with = |spec: &str| decode(&format!(r#"{{"metadata":{{"name":"j"}},"spec":{spec}}}"#)).spec;
    assert_eq!(with(r#"{"backoffLimitPerIndex":1}"#).backoff_limit, i32::MAX);
    let policy = with(r#"{"podFailurePolicy":{"rules":[]}}"#).pod_replacement_policy;
    assert_eq!(policy, PodReplacementPolicy::Failed);
}

#[test]
fn a_job_ends_by_complete_or_failed_and_nothing_else() {
    let at = "2026-01-02T03:04:05Z";
    for (name, conditions, want) in [
        ("none", json!([]), None),
        ("complete", json!([{ "type": "Complete", "status": "True", "lastTransitionTime": at }]), Some(Some(T))),
        ("failed", json!([{ "type": "Failed", "status": "True", "lastTransitionTime": at }]), Some(Some(T))),
        ("without a time", json!([{ "type": "Failed", "status": "True" }]), Some(None)),
        ("not true", json!([{ "type": "Complete", "status": "False", "lastTransitionTime": at }]), None),
        ("about to fail", json!([{ "type": "FailureTarget", "status": "True", "lastTransitionTime": at }]), None),
        ("about to succeed", json!([{ "type": "SuccessCriteriaMet", "status": "True" }]), None),
    ] {
        let job = with_conditions(conditions);
        assert_eq!(job.is_finished(), want.is_some(), "{name}");
        assert_eq!(job.finished_at(), want.flatten(), "{name}");
    }
}

#[test]
fn only_the_reserved_manager_or_none_is_ours() {
    for (managed_by, want) in
        [("null", true), (r#""kubernetes.io/job-controller""#, true), (r#""example.com/x""#, false)]
    {
        let job = decode(&format!(r#"{{"metadata":{{"name":"j"}},"spec":{{"managedBy":{managed_by}}}}}"#));
        assert_eq!(job.is_managed_by_built_in(), want, "{managed_by}");
    }
}

#[test]
fn jobs_are_found_by_uid_by_owner_and_by_a_selector_of_the_user() {
    let keys = |job: &Job| {
        let mut keys = Vec::new();
        job.index(&mut |key| keys.push(key));
        keys
    };
    let job = decode(JOB);
    assert_eq!(keys(&job), [JobIndex::Owner(Uid::new("c-1")), JobIndex::Uid(Uid::new("U-1"))]);
    for selector in [
        r#"{"matchLabels":{"batch.kubernetes.io/controller-uid":"U-2"}}"#,
        r#"{"matchLabels":{"batch.kubernetes.io/controller-uid":"U-1","app":"x"}}"#,
        r#"{"matchLabels":{"batch.kubernetes.io/controller-uid":"U-1"},"matchExpressions":[{"key":"a","operator":"Exists"}]}"#,
        r#"{"matchLabels":{"app":"U-1"}}"#,
        "null",
    ] {
        let by_user = JOB.replace(r#"{"matchLabels":{"batch.kubernetes.io/controller-uid":"U-1"}}"#, selector);
        assert!(keys(&decode(&by_user)).contains(&JobIndex::Manual("ns".into())), "{selector}");
    }
    let legacy = JOB.replace("batch.kubernetes.io/controller-uid", "controller-uid");
    assert!(decode(&legacy).has_generated_selector());
}

#[test]
fn decoding_error_names_the_field() {
    for (from, to, field) in [
        (r#""parallelism":2"#, r#""parallelism":"2""#, "spec.parallelism: "),
        (r#""restartPolicy":"Never""#, r#""restartPolicy":1"#, "template.spec.restartPolicy: "),
        (r#""startTime":"2026-01-02T03:04:06Z""#, r#""startTime":"now""#, "status.startTime: "),
        (r#""seen":3"#, r#""reason":3"#, "status.conditions[0].reason: "),
        (r#"["p-1"]"#, "[1]", "status.uncountedTerminatedPods.succeeded[0]: "),
    ] {
        let why = Job::decode_object(JOB.replace(from, to).as_bytes()).unwrap_err().to_string();
        assert!(why.contains(field), "{why}");
    }
}
