//! Watch frames of pods as an API server sends them: about 9 kB each, mostly managedFields.

use std::fs;

/// The resident bytes of this process; 0 if the system does not report them.
pub(crate) fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|it| it.parse::<usize>().ok()).unwrap_or_default() * 4_096
}

/// Pods as in a large cluster: each has one of 400 owners, one of 1,000 nodes and one of 50 namespaces.
pub(crate) struct Pods {
    frame: String,
}

impl Pods {
    pub(crate) fn new() -> Self {
        Self { frame: String::new() }
    }

    /// The `ADDED` frame of pod `n`. It depends only on `n`.
    pub(crate) fn frame(&mut self, n: usize) -> &[u8] {
        self.frame.clear();
        self.frame.push_str(r#"{"type":"ADDED","object":"#);
        pod(&mut self.frame, n);
        self.frame.push('}');
        self.frame.as_bytes()
    }

    /// A page with the pods `from..to`.
    #[allow(dead_code, reason = "only one of the users needs pages")]
    pub(crate) fn page(&mut self, from: usize, to: usize) -> &[u8] {
        self.frame.clear();
        self.frame.push_str(r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":["#);
        for n in from..to {
            if n > from {
                self.frame.push(',');
            }
            pod(&mut self.frame, n);
        }
        self.frame.push_str("]}");
        self.frame.as_bytes()
    }
}

fn uid(kind: usize, n: usize) -> String {
    // The quality of the hash does not matter. The result must be unique and look random.
    let mixed = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ ((kind as u64) << 60);
    format!("{:08x}-{:04x}-4{:03x}-8{:03x}-{n:012x}", mixed >> 32, mixed >> 16 & 0xffff, mixed & 0xfff, n & 0xfff)
}

fn pod(out: &mut String, n: usize) {
    let (owner, node) = (n % 400, n * 7 % 1_000);
    let namespace = owner % 50;
    let time =
        |shift: usize| format!("2026-03-{:02}T{:02}:{:02}:{:02}Z", 1 + n % 28, n / 28 % 24, n / 60 % 60, shift % 60);
    let suffix = format!("{:05x}", n.wrapping_mul(48_271) % 0xf_ffff);
    out.push_str(&format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"workload-{owner:03}-7c9f8d6b5c-{suffix}-{n}","generateName":"workload-{owner:03}-7c9f8d6b5c-","namespace":"team-namespace-{namespace:02}","uid":"{uid}","resourceVersion":"{version}","generation":1,"creationTimestamp":"{created}","labels":{{"app.kubernetes.io/name":"workload-{owner:03}","app.kubernetes.io/instance":"workload-{owner:03}-prod","app.kubernetes.io/component":"backend-server","app.kubernetes.io/managed-by":"Helm","pod-template-hash":"7c9f8d6b5c","team":"team-{namespace:02}"}},"annotations":{{"cni.projectcalico.org/containerID":"{uid}{uid}","cni.projectcalico.org/podIP":"10.{a}.{b}.{c}/32","kubectl.kubernetes.io/restartedAt":"{created}","prometheus.io/scrape":"true","prometheus.io/port":"8080"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"workload-{owner:03}-7c9f8d6b5c","uid":"{owner_uid}","controller":true,"blockOwnerDeletion":true}}],"managedFields":["#,
        uid = uid(1, n),
        version = 1_000_000 + n * 3,
        created = time(0),
        owner_uid = uid(2, owner),
        a = n % 256,
        b = n / 256 % 256,
        c = n / 7 % 256,
    ));
    managed_fields(out, &time(1));
    out.push_str(&format!(r#"]}},"spec":{{"volumes":[{{"name":"config","configMap":{{"name":"workload-{owner:03}-config","defaultMode":420}}}},{{"name":"kube-api-access-{suffix}","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}}],"defaultMode":420}}}}],"initContainers":[{{"name":"init-config","image":"registry.example.com/tools/init:1.4.2","command":["sh","-c","cp -r /defaults/. /config/"],"resources":{{}},"volumeMounts":[{{"name":"config","mountPath":"/config"}}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}],"containers":["#
    ));
    for (at, name) in ["server", "log-shipper"].into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&format!(r#"{{"name":"{name}","image":"registry.example.com/team-{namespace:02}/{name}:2.17.{owner}","args":["--listen=:8080","--log-level=info"],"ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},{{"name":"DATABASE_URL","valueFrom":{{"secretKeyRef":{{"name":"db","key":"url"}}}}}},{{"name":"REGION","value":"eu-central-1"}}],"resources":{{"limits":{{"cpu":"1","memory":"1Gi"}},"requests":{{"cpu":"250m","memory":"512Mi"}}}},"livenessProbe":{{"httpGet":{{"path":"/healthz","port":"http","scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"securityContext":{{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}"#
        ));
    }
    out.push_str(&format!(r#"],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-{node:04}.eu-central-1.compute.internal","securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"phase":"Running","conditions":["#
    ));
    for (at, type_) in
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].into_iter().enumerate()
    {
        let comma = if at > 0 { "," } else { "" };
        out.push_str(&format!(r#"{comma}{{"type":"{type_}","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"{}"}}"#,
            time(at)
        ));
    }
    out.push_str(&format!(r#"],"hostIP":"10.0.{a}.{b}","podIP":"10.1.{a}.{b}","podIPs":[{{"ip":"10.1.{a}.{b}"}}],"startTime":"{start}","initContainerStatuses":[{{"name":"init-config","state":{{"terminated":{{"exitCode":0,"reason":"Completed","startedAt":"{start}","finishedAt":"{start}","containerID":"containerd://{id}{id}"}}}},"lastState":{{}},"ready":true,"restartCount":0,"image":"registry.example.com/tools/init:1.4.2","imageID":"registry.example.com/tools/init@sha256:{id}{id}","containerID":"containerd://{id}{id}"}}],"containerStatuses":["#,
        a = n % 256,
        b = n / 256,
        start = time(2),
        id = uid(3, n),
    ));
    for (at, name) in ["log-shipper", "server"].into_iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        out.push_str(&format!(r#"{comma}{{"name":"{name}","state":{{"running":{{"startedAt":"{start}"}}}},"lastState":{{}},"ready":true,"restartCount":{restarts},"image":"registry.example.com/{name}:2.17","imageID":"registry.example.com/{name}@sha256:{id}{id}","containerID":"containerd://{id}{id}","started":true,"allocatedResources":{{"cpu":"250m","memory":"512Mi"}},"resources":{{"limits":{{"cpu":"1","memory":"1Gi"}},"requests":{{"cpu":"250m","memory":"512Mi"}}}}}}"#,
            start = time(at + 3),
            restarts = n % 3,
            id = uid(4 + at, n),
        ));
    }
    out.push_str(r#"],"qosClass":"Burstable","observedGeneration":1}}"#);
}

fn managed_fields(out: &mut String, time: &str) {
    out.push_str(&format!(r#"{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"{time}","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:annotations":{{".":{{}},"f:prometheus.io/port":{{}},"f:prometheus.io/scrape":{{}}}},"f:generateName":{{}},"f:labels":{{".":{{}},"f:app.kubernetes.io/component":{{}},"f:app.kubernetes.io/instance":{{}},"f:app.kubernetes.io/name":{{}},"f:pod-template-hash":{{}},"f:team":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"x\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"#));
    for (at, name) in ["server", "log-shipper"].into_iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        out.push_str(&format!(r#"{comma}"k:{{\"name\":\"{name}\"}}":{{".":{{}},"f:args":{{}},"f:env":{{".":{{}},"k:{{\"name\":\"DATABASE_URL\"}}":{{".":{{}},"f:name":{{}},"f:valueFrom":{{".":{{}},"f:secretKeyRef":{{}}}}}},"k:{{\"name\":\"POD_NAME\"}}":{{".":{{}},"f:name":{{}},"f:valueFrom":{{".":{{}},"f:fieldRef":{{}}}}}}}},"f:image":{{}},"f:imagePullPolicy":{{}},"f:livenessProbe":{{".":{{}},"f:failureThreshold":{{}},"f:httpGet":{{".":{{}},"f:path":{{}},"f:port":{{}},"f:scheme":{{}}}},"f:periodSeconds":{{}},"f:successThreshold":{{}},"f:timeoutSeconds":{{}}}},"f:name":{{}},"f:ports":{{".":{{}},"k:{{\"containerPort\":8080,\"protocol\":\"TCP\"}}":{{".":{{}},"f:containerPort":{{}},"f:name":{{}},"f:protocol":{{}}}}}},"f:resources":{{".":{{}},"f:limits":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}},"f:requests":{{".":{{}},"f:cpu":{{}},"f:memory":{{}}}}}},"f:securityContext":{{}},"f:terminationMessagePath":{{}},"f:terminationMessagePolicy":{{}}}}"#));
    }
    out.push_str(&format!(r#"}},"f:dnsPolicy":{{}},"f:enableServiceLinks":{{}},"f:restartPolicy":{{}},"f:schedulerName":{{}},"f:securityContext":{{}},"f:terminationGracePeriodSeconds":{{}},"f:volumes":{{".":{{}},"k:{{\"name\":\"config\"}}":{{".":{{}},"f:configMap":{{".":{{}},"f:defaultMode":{{}},"f:name":{{}}}},"f:name":{{}}}}}}}}}}}},{{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"{time}","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{"k:{{\"type\":\"ContainersReady\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}},"k:{{\"type\":\"Initialized\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}},"k:{{\"type\":\"Ready\"}}":{{".":{{}},"f:lastProbeTime":{{}},"f:lastTransitionTime":{{}},"f:status":{{}},"f:type":{{}}}}}},"f:containerStatuses":{{}},"f:hostIP":{{}},"f:initContainerStatuses":{{}},"f:phase":{{}},"f:podIP":{{}},"f:podIPs":{{".":{{}},"k:{{\"ip\":\"10.1.0.0\"}}":{{".":{{}},"f:ip":{{}}}}}},"f:startTime":{{}}}}}},"subresource":"status"}}"#));
}
