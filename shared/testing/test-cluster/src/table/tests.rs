use serde_json::json;

use super::*;

/// 2026-01-02T03:04:05Z
fn now() -> Timestamp {
    Timestamp::from_second(1_767_323_045).unwrap()
}

fn ago(seconds: i64) -> Value {
    Timestamp::from_second(now().as_second() - seconds).unwrap().to_string().into()
}

/// The cells of a built-in kind.
fn cells_of(group: &str, plural: &str, object: &Value) -> Value {
    let kind = crate::kinds::builtin().iter().find(|it| it.group == group && it.plural == plural).unwrap();
    let printer = printer(kind);
    let cells = (printer.cells)(object, now());
    assert_eq!(cells.len(), printer.columns.len(), "one cell a column");
    cells.into()
}

/// Checks one cell of a built-in kind, by the name of its column.
#[track_caller]
fn check(group: &str, plural: &str, column: &str, object: &Value, wanted: impl Into<Value>) {
    let kind = crate::kinds::builtin().iter().find(|it| it.group == group && it.plural == plural).unwrap();
    let at = printer(kind).columns.iter().position(|it| it.name == column).unwrap();
    assert_eq!(cells_of(group, plural, object)[at], wanted.into(), "{column} of {object}");
}

#[test]
fn ages_have_at_most_two_units() {
    const DAY: i64 = 86_400;
    for (seconds, wanted) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (10_860, "3h1m"),
        (28_799, "7h59m"),
        (28_800, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3600, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (730 * DAY - 1, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (8 * 365 * DAY - 1, "7y364d"),
        (8 * 365 * DAY, "8y"),
        (20 * 365 * DAY + DAY, "20y"),
    ] {
        assert_eq!(ages::since(&ago(seconds), now()), wanted, "{seconds}");
    }
    assert_eq!(ages::since(&Value::Null, now()), "<unknown>");
    let late = "2026-01-02T03:04:06.9Z".into();
    assert_eq!(ages::since(&late, now()), "0s", "rounded towards zero");
}

fn pod(status: Value) -> Value {
    json!({
        "metadata": { "name": "p", "creationTimestamp": ago(61) },
        "spec": { "containers": [{ "name": "c" }, { "name": "d" }, { "name": "e" }], "nodeName": "n" },
        "status": status,
    })
}

fn running(name: &str) -> Value {
    json!({ "name": name, "ready": true, "restartCount": 0, "state": { "running": {} } })
}

fn ended(name: &str, code: i64, reason: &str) -> Value {
    json!({ "name": name, "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": reason } } })
}

fn waits(name: &str, reason: &str) -> Value {
    json!({ "name": name, "ready": false, "restartCount": 0, "state": { "waiting": { "reason": reason } } })
}

#[test]
fn row_of_a_pod() {
    let mut shown = pod(json!({ "phase": "Pending" }));
    let wanted = json!(["p", "0/3", "Pending", "0", "61s", "<none>", "n", "<none>", "<none>"]);
    assert_eq!(cells_of("", "pods", &shown), wanted);
    shown["status"] = json!({
        "phase": "Running", "podIPs": [{ "ip": "10.0.0.1" }, { "ip": "::1" }], "nominatedNodeName": "m",
        "conditions": [{ "type": "g/a", "status": "True" }, { "type": "g/b", "status": "False" }],
        "containerStatuses": [running("c")],
    });
    shown["spec"]["readinessGates"] = json!([{ "conditionType": "g/a" }, { "conditionType": "g/b" }]);
    let wanted = json!(["p", "1/3", "Running", "0", "61s", "10.0.0.1", "n", "m", "1/2"]);
    assert_eq!(cells_of("", "pods", &shown), wanted);
    assert_eq!(pods::row_conditions(&shown), None);
    assert_eq!(pods::row_conditions(&pod(json!({ "phase": "Failed" }))).unwrap()[0]["reason"], "Failed");
}

#[test]
fn the_status_of_a_pod() {
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let done = || ended("c", 0, "Completed");
    for (status, wanted) in [
        (json!({ "phase": "Succeeded" }), "Succeeded"),
        (json!({ "phase": "Failed", "reason": "Evicted" }), "Evicted"),
        (
            json!({ "reason": "X", "conditions": [{ "type": "PodScheduled", "reason": "SchedulingGated" }] }),
            "SchedulingGated",
        ),
        (json!({ "containerStatuses": [running("c"), waits("d", "CrashLoopBackOff")] }), "CrashLoopBackOff"),
        (json!({ "containerStatuses": [waits("c", "A"), waits("d", "B")] }), "A"),
        (json!({ "containerStatuses": [ended("c", 3, "")] }), "ExitCode:3"),
        (json!({ "containerStatuses": [ended("c", 3, "Error")], "reason": "X" }), "Error"),
        (json!({ "containerStatuses": [{ "state": { "terminated": { "exitCode": 137, "signal": 9 } } }] }), "Signal:9"),
        (json!({ "containerStatuses": [done(), ended("d", 0, "Completed")] }), "Completed"),
        (json!({ "containerStatuses": [done(), running("d")], "conditions": ready }), "Running"),
        (json!({ "containerStatuses": [done(), running("d"), ended("e", 0, "Completed")] }), "NotReady"),
        (json!({ "containerStatuses": [done(), running("d"), ended("e", 3, "Error")] }), "Error"),
        (json!({ "containerStatuses": [done(), ended("d", 4, "Oops"), ended("e", 3, "Error")] }), "Oops"),
        (json!({ "containerStatuses": [done(), ended("d", 4, ""), running("e")] }), "ExitCode:4"),
    ] {
        check("", "pods", "Status", &pod(status), wanted);
    }
}

#[test]
fn row_of_a_deleting_pod() {
    for (status, wanted) in [
        (json!({ "phase": "Running" }), "Terminating"),
        (json!({ "phase": "Running", "reason": "NodeLost" }), "Unknown"),
        (json!({ "phase": "Succeeded" }), "Succeeded"),
        (json!({ "phase": "Running", "containerStatuses": [waits("c", "A")] }), "Terminating"),
    ] {
        let mut shown = pod(status);
        shown["metadata"]["deletionTimestamp"] = ago(0);
        check("", "pods", "Status", &shown, wanted);
    }
}

#[test]
fn init_containers() {
    let initial = |statuses: Value, conditions: Value| {
        let mut shown = pod(json!({
            "phase": "Pending", "initContainerStatuses": statuses, "conditions": conditions,
            "containerStatuses": [running("c")],
        }));
        shown["spec"]["initContainers"] =
            json!([{ "name": "a" }, { "name": "b", "restartPolicy": "Always" }, { "name": "z" }]);
        shown
    };
    let mut lasting = running("b");
    lasting["started"] = json!(true);
    for (statuses, ready, wanted) in [
        (json!([waits("a", "PodInitializing")]), "0/4", "Init:0/3"),
        (json!([waits("a", "ImagePullBackOff")]), "0/4", "Init:ImagePullBackOff"),
        (json!([ended("a", 2, "Error")]), "0/4", "Init:Error"),
        (json!([ended("a", 2, "")]), "0/4", "Init:ExitCode:2"),
        (json!([ended("a", 0, "Completed"), lasting, waits("z", "")]), "1/4", "Init:2/3"),
        (json!([ended("a", 0, "Completed"), running("b")]), "0/4", "Init:1/3"),
        (json!([ended("a", 0, ""), lasting, ended("z", 0, "")]), "2/4", "Pending"),
    ] {
        let shown = initial(statuses, Value::Null);
        check("", "pods", "Status", &shown, wanted);
        check("", "pods", "Ready", &shown, ready);
    }
    let initialized = json!([{ "type": "Initialized", "status": "True" }]);
    let shown = initial(json!([ended("a", 2, "Error")]), initialized);
    check("", "pods", "Ready", &shown, "1/4");
}

#[test]
fn restarts_of_a_pod() {
    let restarted = |name: &str, count: i64, finished: i64| {
        json!({ "name": name, "restartCount": count, "lastState": { "terminated": { "finishedAt": ago(finished) } },
                "state": { "running": {} } })
    };
    let shown = pod(json!({ "containerStatuses": [restarted("c", 2, 300), restarted("d", 1, 600)] }));
    check("", "pods", "Restarts", &shown, "3 (5m ago)");
    let unknown = pod(json!({ "containerStatuses": [{ "name": "c", "restartCount": 2 }] }));
    check("", "pods", "Restarts", &unknown, "2");
    let mut initial = pod(json!({ "initContainerStatuses": [restarted("a", 4, 120)],
                                  "containerStatuses": [restarted("c", 1, 60)] }));
    initial["spec"]["initContainers"] = json!([{ "name": "a" }]);
    check("", "pods", "Restarts", &initial, "4 (2m ago)");
}

#[test]
fn nodes() {
    let node = |labels: Value, conditions: Value| json!({ "metadata": { "name": "n", "labels": labels }, "status": { "conditions": conditions } });
    let ready = |status: &str| json!([{ "type": "Ready", "status": status }]);
    let bare = node(json!({}), json!([]));
    let wanted = ["n", "Unknown", "<none>", "<unknown>", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"];
    assert_eq!(cells_of("", "nodes", &bare), json!(wanted));
    check("", "nodes", "Status", &node(json!({}), ready("Unknown")), "NotReady");
    let mut cordoned = node(json!({}), ready("True"));
    cordoned["spec"] = json!({ "unschedulable": true });
    check("", "nodes", "Status", &cordoned, "Ready,SchedulingDisabled");
    let labels = json!({
        "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/a": "", "kubernetes.io/role": "a", "x": "y",
    });
    let mut full = node(labels, ready("True"));
    full["status"]["nodeInfo"] = json!({ "kernelVersion": "6.1", "architecture": "arm64", "kubeletVersion": "v1" });
    full["status"]["addresses"] = json!([{ "type": "ExternalIP", "address": "9.9.9.9" },
        { "type": "InternalIP", "address": "1.1.1.1" }, { "type": "InternalIP", "address": "1.1.1.2" }]);
    check("", "nodes", "Roles", &full, "a,worker");
    check("", "nodes", "Kernel-Version", &full, "6.1 (arm64)");
    check("", "nodes", "Internal-IP", &full, "1.1.1.1");
    check("", "nodes", "External-IP", &full, "9.9.9.9");
}

#[test]
fn the_status_of_a_job() {
    let on = |types: &[&str]| json!(types.iter().map(|it| json!({ "type": it, "status": "True" })).collect::<Vec<_>>());
    for (conditions, deleting, wanted) in [
        (on(&["Complete"]), true, "Complete"),
        (on(&["FailureTarget", "Failed"]), false, "Failed"),
        (on(&["Suspended"]), true, "Terminating"),
        (on(&["Suspended"]), false, "Suspended"),
        (on(&["FailureTarget"]), false, "FailureTarget"),
        (on(&["SuccessCriteriaMet"]), false, "SuccessCriteriaMet"),
        (json!([{ "type": "Complete", "status": "False" }]), false, "Running"),
    ] {
        let mut job = json!({ "metadata": { "name": "j" }, "status": { "conditions": conditions } });
        if deleting {
            job["metadata"]["deletionTimestamp"] = ago(0);
        }
        check("batch", "jobs", "Status", &job, wanted);
    }
}

#[test]
fn completions_and_duration_of_a_job() {
    let job = |spec: Value, status: Value| json!({ "metadata": {}, "spec": spec, "status": status });
    for (spec, wanted) in [
        (json!({ "completions": 3, "parallelism": 2 }), "1/3"),
        (json!({ "parallelism": 2 }), "1/1 of 2"),
        (json!({ "parallelism": 1 }), "1/1"),
        (json!({ "parallelism": 0 }), "1/1"),
    ] {
        check("batch", "jobs", "Completions", &job(spec, json!({ "succeeded": 1 })), wanted);
    }
    for (status, wanted) in [
        (json!({}), ""),
        (json!({ "startTime": ago(90) }), "90s"),
        (json!({ "startTime": ago(600), "completionTime": ago(300) }), "5m"),
    ] {
        check("batch", "jobs", "Duration", &job(json!({}), status), wanted);
    }
}

#[test]
fn selectors_are_texts_in_the_order_of_keys() {
    let it = json!({
        "matchLabels": { "b": "1" },
        "matchExpressions": [
            { "key": "a", "operator": "In", "values": ["z", "y"] }, { "key": "d", "operator": "DoesNotExist" },
            { "key": "a", "operator": "Exists" }, { "key": "c", "operator": "NotIn", "values": ["x"] },
        ],
    });
    assert_eq!(selector(&it), "a in (y,z),a,b=1,c notin (x),!d");
    assert_eq!(selector(&json!({})), "<none>");
    assert_eq!(selector(&Value::Null), "<none>");
}

#[test]
fn services() {
    let service = |spec: Value, status: Value| json!({ "metadata": { "name": "s" }, "spec": spec, "status": status });
    let balancer = json!({ "type": "LoadBalancer", "ports": [{ "port": 80, "nodePort": 30080, "protocol": "TCP" }] });
    for (spec, status, ip, external, ports) in [
        (json!({ "type": "ClusterIP", "clusterIP": "None" }), json!({}), "None", "<none>", "<none>"),
        (json!({ "type": "ExternalName", "externalName": "x.y" }), json!({}), "<none>", "x.y", "<none>"),
        (balancer.clone(), json!({}), "<none>", "<pending>", "80:30080/TCP"),
        (
            balancer,
            json!({ "loadBalancer": { "ingress": [{ "ip": "5.5.5.5" }, { "hostname": "h" }, { "ip": "5.5.5.5" }] } }),
            "<none>",
            "5.5.5.5,h",
            "80:30080/TCP",
        ),
        (
            json!({ "type": "ClusterIP", "clusterIP": "10.0.0.1", "externalIPs": ["1.1.1.1", "2.2.2.2"],
                    "ports": [{ "port": 80 }, { "port": 53, "protocol": "UDP" }] }),
            json!({}),
            "10.0.0.1",
            "1.1.1.1,2.2.2.2",
            "80/TCP,53/UDP",
        ),
    ] {
        let shown = service(spec, status);
        check("", "services", "Cluster-IP", &shown, ip);
        check("", "services", "External-IP", &shown, external);
        check("", "services", "Port(s)", &shown, ports);
    }
}

#[test]
fn events() {
    let core = json!({
        "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "name": "p", "fieldPath": "f" }, "type": "Normal",
        "reason": "R", "message": " m\n", "source": { "component": "c", "host": "h" }, "firstTimestamp": ago(600),
        "lastTimestamp": ago(300), "count": 4,
    });
    let wanted = json!(["5m", "Normal", "R", "pod/p", "f", "c, h", "m", "10m", 4, "e"]);
    assert_eq!(cells_of("", "events", &core), wanted);
    let series = json!({
        "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod" }, "message": "m", "eventTime": ago(600),
        "reportingComponent": "rc", "reportingInstance": "ri", "series": { "count": 7, "lastObservedTime": ago(120) },
    });
    let wanted = json!(["2m", "", "", "pod", "", "rc, ri", "m", "10m", 7, "e"]);
    assert_eq!(cells_of("", "events", &series), wanted);
    let bare = json!({ "metadata": { "name": "e" } });
    let wanted = json!(["<unknown>", "", "", "", "", "", "", "<unknown>", 1, "e"]);
    assert_eq!(cells_of("", "events", &bare), wanted);
}

#[test]
fn targets_of_an_autoscaler() {
    let resource = |target: Value| json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
    let measured = |current: Value| json!({ "type": "Resource", "resource": { "name": "cpu", "current": current } });
    let other = |of: &str, field: &str, target: Value| json!({ "type": of, field: { "target": target } });
    let percent = json!({ "averageUtilization": 80 });
    for (metrics, current, wanted) in [
        (json!([]), json!([]), "<none>"),
        (json!([resource(percent.clone())]), json!([]), "cpu: <unknown>/80%"),
        (json!([resource(percent)]), json!([measured(json!({ "averageUtilization": 12 }))]), "cpu: 12%/80%"),
        (
            json!([resource(json!({ "averageValue": "1" }))]),
            json!([measured(json!({ "averageValue": "500m" }))]),
            "cpu: 500m/1",
        ),
        (
            json!([
                other("Pods", "pods", json!({ "averageValue": "5" })),
                other("Object", "object", json!({ "value": "9" })),
                other("External", "external", json!({ "averageValue": "7" }))
            ]),
            json!([]),
            "<unknown>/5, <unknown>/9 + 1 more...",
        ),
        (json!([other("External", "external", json!({ "averageValue": "7" }))]), json!([]), "<unknown>/7 (avg)"),
    ] {
        let shown = json!({ "spec": { "metrics": metrics }, "status": { "currentMetrics": current } });
        check("autoscaling", "horizontalpodautoscalers", "Targets", &shown, wanted);
    }
}

#[test]
fn rows_of_small_kinds() {
    let rows = [
        ("", "configmaps", json!({ "data": { "a": "1" }, "binaryData": { "b": "" } }), json!(["x", 2, "90s"])),
        ("", "secrets", json!({ "type": "Opaque", "data": { "a": "" } }), json!(["x", "Opaque", 1, "90s"])),
        ("", "namespaces", json!({ "status": { "phase": "Active" } }), json!(["x", "Active", "90s"])),
        ("", "serviceaccounts", json!({}), json!(["x", "90s"])),
        ("", "limitranges", json!({}), json!(["x", ago(90)])),
        (
            "",
            "resourcequotas",
            json!({ "status": { "hard": { "limits.cpu": "2", "pods": "5" }, "used": { "pods": "1" } } }),
            json!(["x", "pods: 1/5", "limits.cpu: 0/2", "90s"]),
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({ "spec": { "volumeName": "v", "volumeMode": "Block", "storageClassName": "c" },
                    "status": { "phase": "Bound", "capacity": { "storage": "2Gi" },
                                "accessModes": ["ReadWriteMany", "ReadWriteOnce"] } }),
            json!(["x", "Bound", "v", "2Gi", "RWO,RWX", "c", "<unset>", "90s", "Block"]),
        ),
        (
            "",
            "endpoints",
            json!({ "subsets": [{ "addresses": [{ "ip": "1.1.1.1" }, { "ip": "::1" }], "ports": [{ "port": 1 }, { "port": 2 }] }] }),
            json!(["x", "1.1.1.1:1,[::1]:1,1.1.1.1:2 + 1 more...", "90s"]),
        ),
        ("apps", "statefulsets", json!({ "spec": { "replicas": 2 } }), json!(["x", "0/2", "90s", "", ""])),
        ("apps", "controllerrevisions", json!({ "revision": 4 }), json!(["x", "<none>", 4, "90s"])),
        (
            "policy",
            "poddisruptionbudgets",
            json!({ "spec": { "maxUnavailable": "30%" } }),
            json!(["x", "N/A", "30%", 0, "90s"]),
        ),
        ("coordination.k8s.io", "leases", json!({ "spec": { "holderIdentity": "me" } }), json!(["x", "me", "90s"])),
        (
            "discovery.k8s.io",
            "endpointslices",
            json!({ "addressType": "IPv4", "ports": [{ "port": 80 }, { "name": "n" }, {}] }),
            json!(["x", "IPv4", "80,n,*", "<unset>", "90s"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({ "roleRef": { "kind": "Role", "name": "r" }, "subjects": [{ "kind": "User", "name": "u" },
                { "kind": "ServiceAccount", "name": "s", "namespace": "n" }, { "kind": "User", "name": "v" }] }),
            json!(["x", "Role/r", "90s", "u, v", "", "n/s"]),
        ),
        (
            "apiregistration.k8s.io",
            "apiservices",
            json!({ "spec": { "service": { "namespace": "n", "name": "s" } },
                    "status": { "conditions": [{ "type": "Available", "status": "False", "reason": "Why" }] } }),
            json!(["x", "n/s", "False (Why)", "90s"]),
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({ "value": 7 }),
            json!(["x", 7, false, "90s", "PreemptLowerPriority"]),
        ),
        (
            "storage.k8s.io",
            "storageclasses",
            json!({ "provisioner": "p" }),
            json!(["x", "p", "Delete", "Immediate", false, "90s"]),
        ),
    ];
    for (group, plural, mut object, wanted) in rows {
        object["metadata"] = json!({ "name": "x", "creationTimestamp": ago(90) });
        assert_eq!(cells_of(group, plural, &object), wanted, "{plural}");
    }
}
