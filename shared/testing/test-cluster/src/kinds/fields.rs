//! Field selectors other than name and namespace: label, path in the stored form, value when it is missing.

pub(super) type Fields = &'static [(&'static str, &'static str, &'static str)];

pub(super) const EVENT: Fields = &[
    ("involvedObject.kind", "involvedObject.kind", ""),
    ("involvedObject.namespace", "involvedObject.namespace", ""),
    ("involvedObject.name", "involvedObject.name", ""),
    ("involvedObject.uid", "involvedObject.uid", ""),
    ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    ("involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
    ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingComponent", "reportingComponent", ""),
    // If the source is empty, the reporter is used.
    ("source", "source.component|reportingComponent", ""),
    ("type", "type", ""),
];

/// The same for `events.k8s.io`.
pub(super) const EVENT_VIEW: Fields = &[
    ("regarding.kind", "involvedObject.kind", ""),
    ("regarding.namespace", "involvedObject.namespace", ""),
    ("regarding.name", "involvedObject.name", ""),
    ("regarding.uid", "involvedObject.uid", ""),
    ("regarding.apiVersion", "involvedObject.apiVersion", ""),
    ("regarding.resourceVersion", "involvedObject.resourceVersion", ""),
    ("regarding.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingController", "reportingComponent", ""),
    ("type", "type", ""),
];

pub(super) const POD: Fields = &[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", ""),
    ("spec.schedulerName", "spec.schedulerName", ""),
    ("spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", ""),
    ("status.podIP", "status.podIP", ""),
    // A real server accepts this label, but it never has a value.
    ("status.podIPs", "", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
];

pub(super) const NODE: Fields = &[("spec.unschedulable", "spec.unschedulable", "false")];
pub(super) const NAMESPACE: Fields = &[("status.phase", "status.phase", "")];
pub(super) const JOB: Fields = &[("status.successful", "status.succeeded", "0")];
pub(super) const SECRET: Fields = &[("type", "type", "")];
pub(super) const REPLICATION_CONTROLLER: Fields = &[("status.replicas", "status.replicas", "0")];
pub(super) const SERVICE: Fields = &[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")];
