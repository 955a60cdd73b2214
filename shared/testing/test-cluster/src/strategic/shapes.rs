use crate::kinds::Kind;

/// How a strategic merge handles a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Maps are merged member by member, lists are replaced.
    Plain,
    /// A list that is merged element by element, with this member as the key.
    By(&'static str),
    /// A list that is a set of scalars.
    Set,
    /// A map that is replaced.
    Replace,
}

/// The members of a map that have a rule of their own, or contain one. All others are plain.
#[derive(Debug)]
pub(super) struct Shape(&'static [Member]);

#[derive(Debug)]
struct Member {
    field: &'static str,
    rule: Rule,
    /// The map, or the elements of the list.
    inside: &'static Shape,
}

impl Shape {
    /// The shape of a built-in kind. Kinds without a row have only the shape of the metadata.
    pub(super) fn of(kind: &Kind) -> &'static Self {
        let row = KINDS.iter().find(|it| it.0 == kind.kind);
        row.map_or(&OBJECT, |it| it.1)
    }

    pub(super) fn rule(&self, field: &str) -> Rule {
        self.member(field).map_or(Rule::Plain, |it| it.rule)
    }

    pub(super) fn inside(&self, field: &str) -> &'static Self {
        self.member(field).map_or(&NOTHING, |it| it.inside)
    }

    fn member(&self, field: &str) -> Option<&Member> {
        self.0.iter().find(|it| it.field == field)
    }
}

/// Built-in kinds by name. Where two groups have a kind of the same name, they have the same shape.
static KINDS: &[(&str, &Shape)] = &[
    ("APIService", &WITH_CONDITIONS),
    ("CronJob", &CRON_JOB),
    ("DaemonSet", &WORKLOAD),
    ("Deployment", &DEPLOYMENT),
    ("HorizontalPodAutoscaler", &WITH_CONDITIONS),
    ("Job", &WORKLOAD),
    ("Namespace", &WITH_CONDITIONS),
    ("Node", &NODE),
    ("PersistentVolumeClaim", &WITH_CONDITIONS),
    ("Pod", &POD),
    ("PodDisruptionBudget", &BUDGET),
    ("PodTemplate", &POD_TEMPLATE),
    ("ReplicaSet", &WORKLOAD),
    ("ReplicationController", &WORKLOAD),
    ("Service", &SERVICE),
    ("ServiceAccount", &SERVICE_ACCOUNT),
    ("StatefulSet", &WORKLOAD),
];

const fn list(field: &'static str, key: &'static str) -> Member {
    list_of(field, key, &NOTHING)
}

const fn list_of(field: &'static str, key: &'static str, inside: &'static Shape) -> Member {
    Member { field, rule: Rule::By(key), inside }
}

const fn set(field: &'static str) -> Member {
    Member { field, rule: Rule::Set, inside: &NOTHING }
}

const fn map(field: &'static str, inside: &'static Shape) -> Member {
    Member { field, rule: Rule::Plain, inside }
}

const METADATA: Member = map("metadata", &Shape(&[list("ownerReferences", "uid"), set("finalizers")]));
const CONDITIONS: Member = list("conditions", "type");
const STATUS: Member = map("status", &Shape(&[CONDITIONS]));
const TEMPLATE: Member = map("template", &TEMPLATE_SPEC);

static NOTHING: Shape = Shape(&[]);
static OBJECT: Shape = Shape(&[METADATA]);
static WITH_CONDITIONS: Shape = Shape(&[METADATA, STATUS]);
static WORKLOAD: Shape = Shape(&[METADATA, map("spec", &WORKLOAD_SPEC), STATUS]);
static WORKLOAD_SPEC: Shape = Shape(&[TEMPLATE]);
static DEPLOYMENT: Shape = Shape(&[METADATA, map("spec", &Shape(&[TEMPLATE])), STATUS]);
static CRON_JOB: Shape = Shape(&[METADATA, map("spec", &Shape(&[map("jobTemplate", &JOB_TEMPLATE)]))]);
static JOB_TEMPLATE: Shape = Shape(&[METADATA, map("spec", &WORKLOAD_SPEC)]);
static POD_TEMPLATE: Shape = Shape(&[METADATA, TEMPLATE]);
static POD: Shape = Shape(&[METADATA, map("spec", &POD_SPEC), map("status", &POD_STATUS)]);
static NODE: Shape = Shape(&[
    METADATA,
    map("spec", &Shape(&[set("podCIDRs")])),
    map("status", &Shape(&[CONDITIONS, list("addresses", "type")])),
]);
static SERVICE: Shape = Shape(&[METADATA, map("spec", &Shape(&[list("ports", "port")])), STATUS]);
static SERVICE_ACCOUNT: Shape = Shape(&[METADATA, list("secrets", "name")]);
static BUDGET: Shape = Shape(&[
    METADATA,
    map("spec", &Shape(&[Member { field: "selector", rule: Rule::Replace, inside: &NOTHING }])),
    STATUS,
]);

static TEMPLATE_SPEC: Shape = Shape(&[METADATA, map("spec", &POD_SPEC)]);
static POD_SPEC: Shape = Shape(&[
    list_of("containers", "name", &CONTAINER),
    list_of("initContainers", "name", &CONTAINER),
    list_of("ephemeralContainers", "name", &CONTAINER),
    list("imagePullSecrets", "name"),
    list("schedulingGates", "name"),
    list("resourceClaims", "name"),
    list_of("volumes", "name", &VOLUME),
    list("hostAliases", "ip"),
    list("topologySpreadConstraints", "topologyKey"),
]);
static CONTAINER: Shape = Shape(&[
    list("ports", "containerPort"),
    list("env", "name"),
    list("volumeMounts", "mountPath"),
    list("volumeDevices", "devicePath"),
]);
static VOLUME: Shape = Shape(&[map("ephemeral", &Shape(&[map("volumeClaimTemplate", &OBJECT)]))]);
static POD_STATUS: Shape =
    Shape(&[CONDITIONS, list("podIPs", "ip"), list("hostIPs", "ip"), list("resourceClaimStatuses", "name")]);
