//! Protobuf bodies of the kinds that kubectl's own commands create: `kubectl create deployment`, `drain` and similar
//! ones send only protobuf. A body is converted to JSON at the beginning of a request. A kind that is not in the table
//! is not converted, and so is refused like any unknown format. A field that is not in the table is reported in an
//! error and not ignored.

use std::{collections::BTreeMap, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::Failure;

/// The first bytes of every encoded object.
const MAGIC: &[u8] = b"k8s\0";

/// Messages by name: number, name and type of each field.
///
/// `s` text, `i` number, `b` boolean (capital: kept when zero, because it was set), `y` bytes, `t` time, `x` number or
/// text, `q` quantity, `-` ignored, because the server sets it, `0` must be empty. `[..]` is a list, `{..}` a map with
/// text keys.
const MESSAGES: &str = "
ObjectMeta: 1 name s, 2 generateName s, 3 namespace s, 4 selfLink s, 5 uid s, 6 resourceVersion s, 7 generation i, 8 creationTimestamp t, 9 deletionTimestamp t, 10 deletionGracePeriodSeconds I, 11 labels {s}, 12 annotations {s}, 13 ownerReferences [OwnerReference], 14 finalizers [s], 17 managedFields -
OwnerReference: 1 kind s, 3 name s, 4 uid s, 5 apiVersion s, 6 controller B, 7 blockOwnerDeletion B
LabelSelector: 1 matchLabels {s}, 2 matchExpressions [Requirement]
Requirement: 1 key s, 2 operator s, 3 values [s]
DeleteOptions: 1 gracePeriodSeconds I, 2 preconditions Preconditions, 3 orphanDependents B, 4 propagationPolicy s, 5 dryRun [s]
Preconditions: 1 uid s, 2 resourceVersion s
Eviction: 1 metadata ObjectMeta, 2 deleteOptions DeleteOptions
ConfigMap: 1 metadata ObjectMeta, 2 data {s}, 3 binaryData {y}, 4 immutable B
Secret: 1 metadata ObjectMeta, 2 data {y}, 3 type s, 4 stringData {s}, 5 immutable B
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status 0
NamespaceSpec: 1 finalizers [s]
ServiceAccount: 1 metadata ObjectMeta, 2 secrets [ObjectReference], 3 imagePullSecrets [LocalReference], 4 automountServiceAccountToken B
ObjectReference: 1 kind s, 2 namespace s, 3 name s, 4 uid s, 5 apiVersion s, 6 resourceVersion s, 7 fieldPath s
LocalReference: 1 name s
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status 0
ServiceSpec: 1 ports [ServicePort], 2 selector {s}, 3 clusterIP s, 4 type s, 5 externalIPs [s], 7 sessionAffinity s, 8 loadBalancerIP s, 9 loadBalancerSourceRanges [s], 10 externalName s, 11 externalTrafficPolicy s, 12 healthCheckNodePort i, 13 publishNotReadyAddresses b
ServicePort: 1 name s, 2 protocol s, 3 port i, 4 targetPort x, 5 nodePort i, 6 appProtocol s
ResourceQuota: 1 metadata ObjectMeta, 2 spec ResourceQuotaSpec, 3 status 0
ResourceQuotaSpec: 1 hard {q}, 2 scopes [s]
Deployment: 1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status 0
DeploymentSpec: 1 replicas I, 2 selector LabelSelector, 3 template PodTemplate, 4 strategy DeploymentStrategy, 5 minReadySeconds i, 6 revisionHistoryLimit I, 7 paused b, 9 progressDeadlineSeconds I
DeploymentStrategy: 1 type s, 2 rollingUpdate RollingUpdate
RollingUpdate: 1 maxUnavailable x, 2 maxSurge x
PodTemplate: 1 metadata ObjectMeta, 2 spec PodSpec
PodSpec: 2 containers [Container], 3 restartPolicy s, 4 terminationGracePeriodSeconds I, 5 activeDeadlineSeconds I, 6 dnsPolicy s, 7 nodeSelector {s}, 8 serviceAccountName s, 9 serviceAccount s, 10 nodeName s, 11 hostNetwork b, 12 hostPID b, 13 hostIPC b, 14 securityContext Nothing, 16 hostname s, 17 subdomain s, 19 schedulerName s, 20 initContainers [Container], 21 automountServiceAccountToken B, 24 priorityClassName s, 25 priority I
Nothing:
Container: 1 name s, 2 image s, 3 command [s], 4 args [s], 5 workingDir s, 6 ports [ContainerPort], 7 env [EnvVar], 8 resources Resources, 13 terminationMessagePath s, 14 imagePullPolicy s, 16 stdin b, 17 stdinOnce b, 18 tty b, 20 terminationMessagePolicy s, 24 restartPolicy s
ContainerPort: 1 name s, 2 hostPort i, 3 containerPort i, 4 protocol s, 5 hostIP s
EnvVar: 1 name s, 2 value s
Resources: 1 limits {q}, 2 requests {q}
Job: 1 metadata ObjectMeta, 2 spec JobSpec, 3 status 0
JobSpec: 1 parallelism I, 2 completions I, 3 activeDeadlineSeconds I, 4 selector LabelSelector, 5 manualSelector B, 6 template PodTemplate, 7 backoffLimit I, 8 ttlSecondsAfterFinished I, 9 completionMode s, 10 suspend B
CronJob: 1 metadata ObjectMeta, 2 spec CronJobSpec, 3 status 0
CronJobSpec: 1 schedule s, 2 startingDeadlineSeconds I, 3 concurrencyPolicy s, 4 suspend B, 5 jobTemplate JobTemplate, 6 successfulJobsHistoryLimit I, 7 failedJobsHistoryLimit I, 8 timeZone s
JobTemplate: 1 metadata ObjectMeta, 2 spec JobSpec
PodDisruptionBudget: 1 metadata ObjectMeta, 2 spec BudgetSpec, 3 status 0
BudgetSpec: 1 minAvailable x, 2 selector LabelSelector, 3 maxUnavailable x, 4 unhealthyPodEvictionPolicy s
HorizontalPodAutoscaler: 1 metadata ObjectMeta, 2 spec AutoscalerSpec, 3 status 0
AutoscalerSpec: 1 scaleTargetRef ScaleTarget, 2 minReplicas I, 3 maxReplicas i, 4 metrics [MetricSpec]
ScaleTarget: 1 kind s, 2 name s, 3 apiVersion s
MetricSpec: 1 type s, 4 resource ResourceMetric
ResourceMetric: 1 name s, 2 target MetricTarget
MetricTarget: 1 type s, 2 value q, 3 averageValue q, 4 averageUtilization I
PriorityClass: 1 metadata ObjectMeta, 2 value i, 3 globalDefault b, 4 description s, 5 preemptionPolicy s
Role: 1 metadata ObjectMeta, 2 rules [Rule]
ClusterRole: 1 metadata ObjectMeta, 2 rules [Rule], 3 aggregationRule Aggregation
Aggregation: 1 clusterRoleSelectors [LabelSelector]
Rule: 1 verbs [s], 2 apiGroups [s], 3 resources [s], 4 resourceNames [s], 5 nonResourceURLs [s]
RoleBinding: 1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef
ClusterRoleBinding: 1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef
Subject: 1 kind s, 2 apiGroup s, 3 name s, 4 namespace s
RoleRef: 1 apiGroup s, 2 kind s, 3 name s
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec AccessSpec, 3 status 0
AccessSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes PathAttributes
ResourceAttributes: 1 namespace s, 2 verb s, 3 group s, 4 version s, 5 resource s, 6 subresource s, 7 name s
PathAttributes: 1 path s, 2 verb s
";

/// Number, name and type of the fields of a message.
type Message = BTreeMap<u64, (&'static str, &'static str)>;

static TABLE: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let lines = MESSAGES.lines().filter_map(|it| it.split_once(':'));
    lines.map(|(name, fields)| (name, fields.split(',').filter_map(field).collect())).collect()
});

fn field(text: &'static str) -> Option<(u64, (&'static str, &'static str))> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    Some((number, (words.next()?, words.next()?)))
}

/// The object as JSON; `None` if it is not such an object, or its kind is not in the table.
///
/// # Errors
/// 501 for a field that is not in the table, 400 for an incomplete message.
pub(crate) fn to_json(body: &[u8]) -> Option<Result<Value, Failure>> {
    let envelope = fields(body.strip_prefix(MAGIC)?).ok()?;
    let bytes = |number: u64| envelope.iter().find(|it| it.0 == number).and_then(|it| it.1.bytes());
    let named = fields(bytes(1)?).ok()?;
    let text = |number: u64| {
        let found = named.iter().find(|it| it.0 == number).and_then(|it| it.1.bytes()).unwrap_or_default();
        String::from_utf8_lossy(found).into_owned()
    };
    let (api_version, kind) = (text(1), text(2));
    let name = *TABLE.get_key_value(kind.as_str())?.0;
    Some(message(name, bytes(2).unwrap_or_default()).map(|mut object| {
        object.insert("apiVersion".into(), api_version.into());
        object.insert("kind".into(), kind.into());
        object.into()
    }))
}

/// A field in its encoded form.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }
}

fn broken() -> Failure {
    Failure::bad_request("unexpected EOF")
}

/// Splits a message into fields.
fn fields(mut rest: &[u8]) -> Result<Vec<(u64, Wire<'_>)>, Failure> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = number(&mut rest)?;
        let wire = match tag & 7 {
            0 => Wire::Number(number(&mut rest)?),
            2 => {
                let length = usize::try_from(number(&mut rest)?).map_err(|_| broken())?;
                let (bytes, tail) = rest.split_at_checked(length).ok_or_else(broken)?;
                rest = tail;
                Wire::Bytes(bytes)
            }
            other => return Err(Failure::not_served(&format!("wire type {other} of protobuf"))),
        };
        found.push((tag >> 3, wire));
    }
    Ok(found)
}

/// Seven bits per byte, the lowest first.
fn number(rest: &mut &[u8]) -> Result<u64, Failure> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, tail) = rest.split_first().ok_or_else(broken)?;
        *rest = tail;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken())
}

fn message(name: &str, bytes: &[u8]) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    for (number, wire) in fields(bytes)? {
        let known = TABLE.get(name).and_then(|it| it.get(&number));
        let Some((field, of)) = known else {
            return Err(Failure::not_served(&format!("field {number} of {name} in protobuf")));
        };
        if let Some(inner) = of.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            let list = object.entry(*field).or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.push(value(inner, wire)?.unwrap_or_else(|| "".into()));
            }
        } else if let Some(inner) = of.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
            let (key, value) = entry(inner, wire)?;
            if let Value::Object(map) = object.entry(*field).or_insert_with(|| json!({})) {
                map.insert(key, value);
            }
        } else if let Some(value) = value(of, wire)? {
            object.insert((*field).to_owned(), value);
        }
    }
    Ok(object)
}

/// An entry of a map is a message with key and value.
fn entry(of: &str, wire: Wire<'_>) -> Result<(String, Value), Failure> {
    let (mut key, mut found) = (String::new(), None);
    for (number, wire) in fields(wire.bytes().ok_or_else(broken)?)? {
        match number {
            1 => key = String::from_utf8_lossy(wire.bytes().unwrap_or_default()).into_owned(),
            _ => found = value(of, wire)?,
        }
    }
    Ok((key, found.unwrap_or_else(|| "".into())))
}

/// A value; `None` where JSON omits it.
fn value(of: &str, wire: Wire<'_>) -> Result<Option<Value>, Failure> {
    let value = match (of, wire) {
        ("-", _) => None,
        ("0", Wire::Bytes(bytes)) if is_blank(bytes) => None,
        ("0", _) => return Err(Failure::not_served("a status in protobuf")),
        ("s", Wire::Bytes(bytes)) => {
            Some(String::from_utf8_lossy(bytes).into_owned()).filter(|it| !it.is_empty()).map(Value::from)
        }
        // Negative numbers are encoded as two's complement.
        ("i", Wire::Number(number)) => Some(number.cast_signed()).filter(|it| *it != 0).map(Value::from),
        ("I", Wire::Number(number)) => Some(number.cast_signed().into()),
        ("b", Wire::Number(number)) => Some(Value::from(true)).filter(|_| number != 0),
        ("B", Wire::Number(number)) => Some((number != 0).into()),
        ("y", Wire::Bytes(bytes)) => Some(STANDARD.encode(bytes).into()),
        ("q", Wire::Bytes(bytes)) => text_of(bytes, 1)?,
        ("x", Wire::Bytes(bytes)) => int_or_text(bytes)?,
        ("t", Wire::Bytes(bytes)) => time(bytes)?,
        (name, Wire::Bytes(bytes)) if TABLE.contains_key(name) => Some(message(name, bytes)?.into()),
        _ => return Err(broken()),
    };
    Ok(value)
}

/// True for a message without content: only zeros, and messages without content.
fn is_blank(bytes: &[u8]) -> bool {
    let says_nothing = |wire: &Wire<'_>| match wire {
        Wire::Number(number) => *number == 0,
        Wire::Bytes(bytes) => is_blank(bytes),
    };
    fields(bytes).is_ok_and(|it| it.iter().all(|(_, wire)| says_nothing(wire)))
}

fn text_of(bytes: &[u8], number: u64) -> Result<Option<Value>, Failure> {
    let found = fields(bytes)?.into_iter().find(|it| it.0 == number).and_then(|it| it.1.bytes());
    Ok(found.map(|it| String::from_utf8_lossy(it).into_owned().into()))
}

fn number_of(bytes: &[u8], number: u64) -> Result<i64, Failure> {
    let found = fields(bytes)?.into_iter().find(|it| it.0 == number);
    Ok(match found {
        Some((_, Wire::Number(number))) => number.cast_signed(),
        _ => 0,
    })
}

/// A number, or a text such as a percentage.
fn int_or_text(bytes: &[u8]) -> Result<Option<Value>, Failure> {
    if number_of(bytes, 1)? == 0 { Ok(Some(number_of(bytes, 2)?.into())) } else { text_of(bytes, 3) }
}

fn time(bytes: &[u8]) -> Result<Option<Value>, Failure> {
    let seconds = number_of(bytes, 1)?;
    let time = clock::Timestamp::from_second(seconds).map_err(|_| broken())?;
    Ok((seconds != 0).then(|| crate::meta::stamp(time).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ConfigMap as kubectl 1.36 sends it.
    const MAP: &[u8] = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1c\x0a\x12\x0a\x02zz\x12\0\x1a\0\x22\0*\x002\08\0B\0\x12\x06\x0a\x01a\x12\x01b\x1a\0\x22\0";

    #[test]
    fn object_becomes_json() {
        let read = to_json(MAP).unwrap().unwrap();
        let wanted =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "zz" }, "data": { "a": "b" } });
        assert_eq!(read, wanted);
    }

    #[test]
    fn unknown_fields_are_reported() {
        assert!(to_json(b"{}").is_none(), "not protobuf");
        let other = [b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Xxxxxxxxx".as_slice(), &MAP[21..]].concat();
        assert!(to_json(&other).is_none(), "the kind is not in the table");
        let unknown = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x78\x01";
        let failure = to_json(unknown).unwrap().unwrap_err().into_status();
        assert!(failure["message"].as_str().unwrap().contains("field 15 of ConfigMap"), "{failure}");
        assert_eq!(to_json(&MAP[..30]).map(|it| it.is_err()), None, "an incomplete envelope is not an object");
        let broken = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x0a\x09";
        assert_eq!(to_json(broken).unwrap().unwrap_err().into_status()["code"], 400);
    }

    #[test]
    fn every_type_of_the_table_is_known() {
        for (message, fields) in TABLE.iter() {
            for (field, of) in fields.values() {
                let inner = of.trim_matches(['[', ']', '{', '}']);
                let known = matches!(inner, "s" | "i" | "I" | "b" | "B" | "y" | "t" | "x" | "q" | "-" | "0");
                assert!(known || TABLE.contains_key(inner), "{message}.{field}: {of}");
            }
        }
    }
}
