//! What was stored of sets and pods. It does not depend on the controller's code.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use serde_json::Value;

use crate::history::{History, is_recent};

/// Every set, pod and revision that ever existed, by uid.
#[derive(Default)]
pub(super) struct Model {
    pub(super) sets: BTreeMap<String, Set>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) revisions: BTreeMap<String, Revision>,
    /// The claims from which the garbage collector has removed a set, each with that set.
    pub(super) orphaned_claims: BTreeSet<(String, String)>,
}

/// One set.
#[derive(Default)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) status: Value,
    pub(super) gone: bool,
    pub(super) deleted_since: Option<Instant>,
    specs: History<Spec>,
    /// Every revision that was the current one.
    pub(super) current_revisions: BTreeSet<String>,
    /// The images while there was no current revision: the first sync decides which one it is.
    pub(super) first_images: BTreeSet<String>,
    /// The ordinals of which a ready pod was deleted for an update, and no pod is ready since.
    pub(super) taken_down: BTreeSet<i64>,
}

/// The fields of a spec that decide.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Spec {
    pub(super) start: i64,
    pub(super) replicas: i64,
    pub(super) partition: i64,
    pub(super) max_unavailable: i64,
    pub(super) is_ordered: bool,
    pub(super) is_on_delete: bool,
    pub(super) replaces_blocked_pods: bool,
    pub(super) image: String,
    pub(super) owns_claims: bool,
    pub(super) deletes_claims_of_scaled_pods: bool,
    pub(super) history_limit: usize,
}

/// One pod.
#[derive(Clone, Default)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) set: Option<String>,
    /// Every set that has owned it: a delayed creation of the next pod may arrive when this one is an orphan already.
    pub(super) owned_by: BTreeSet<String>,
    pub(super) image: String,
    pub(super) revision: String,
    pub(super) is_ready: bool,
    /// When it was stored as ready last, or stopped being ready.
    pub(super) ready_at: Option<Instant>,
    pub(super) has_ended: bool,
    pub(super) deleting: bool,
    pub(super) gone: bool,
}

/// One revision.
#[derive(Clone, Default)]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) set: Option<String>,
    pub(super) image: String,
    pub(super) gone: bool,
}

/// The image of a pod template.
fn image_of(template: &Value) -> String {
    text(&template["spec"]["containers"][0]["image"])
}

impl Revision {
    pub(super) fn of(object: &Value, gone: bool) -> Self {
        Self {
            name: text(&object["metadata"]["name"]),
            set: controller(object),
            image: image_of(&object["data"]["spec"]["template"]),
            gone,
        }
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The uid of the controller.
pub(super) fn controller(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|it| it["controller"] == true).map(|it| text(&it["uid"]))
}

impl Spec {
    pub(super) fn wants(&self, ordinal: i64) -> bool {
        (self.start..self.start + self.replicas).contains(&ordinal)
    }

    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let number = |it: &Value| it.as_i64().unwrap_or_default();
        let rolling = &spec["updateStrategy"]["rollingUpdate"];
        let retention = &spec["persistentVolumeClaimRetentionPolicy"];
        Self {
            start: number(&spec["ordinals"]["start"]),
            replicas: number(&spec["replicas"]),
            partition: number(&rolling["partition"]),
            max_unavailable: rolling["maxUnavailable"].as_i64().unwrap_or(1),
            is_ordered: spec["podManagementPolicy"] != "Parallel",
            is_on_delete: spec["updateStrategy"]["type"] == "OnDelete",
            replaces_blocked_pods: object["metadata"]["annotations"]["mini-kcm.dev/replace-blocked-pods"] == "true",
            image: image_of(&spec["template"]),
            owns_claims: retention["whenDeleted"] == "Delete",
            deletes_claims_of_scaled_pods: retention["whenScaled"] == "Delete",
            history_limit: usize::try_from(number(&spec["revisionHistoryLimit"])).unwrap_or(usize::MAX),
        }
    }
}

impl Set {
    pub(super) fn update_from(&mut self, object: Option<&Value>, now: Instant) {
        let Some(object) = object else {
            self.gone = true;
            self.deleted_since.get_or_insert(now);
            return;
        };
        self.name = text(&object["metadata"]["name"]);
        self.status = object["status"].clone();
        if object["metadata"]["deletionTimestamp"].is_string() {
            self.deleted_since.get_or_insert(now);
        }
        match self.status["currentRevision"].as_str() {
            Some(current) if !current.is_empty() => self.current_revisions.insert(current.to_owned()),
            _ => self.first_images.insert(image_of(&object["spec"]["template"])),
        };
        self.specs.record(Spec::of(object), now);
    }

    /// The specs that a process may use now.
    pub(super) fn recent(&self, now: Instant) -> impl Iterator<Item = &Spec> {
        self.specs.recent(now)
    }
}

impl Pod {
    pub(super) fn update_from(&mut self, object: Option<&Value>, now: Instant) {
        let Some(object) = object else {
            self.gone = true;
            if std::mem::take(&mut self.is_ready) {
                self.ready_at = Some(now);
            }
            return;
        };
        self.name = text(&object["metadata"]["name"]);
        self.set = controller(object);
        self.owned_by.extend(self.set.clone());
        self.image = image_of(object);
        self.revision = text(&object["metadata"]["labels"]["controller-revision-hash"]);
        self.deleting = object["metadata"]["deletionTimestamp"].is_string();
        self.has_ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let was_ready = self.is_ready;
        self.is_ready = object["status"]["phase"] == "Running"
            && conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        if self.is_ready || was_ready {
            self.ready_at = Some(now);
        }
    }

    /// A process whose cache is late may see it as ready.
    pub(super) fn may_seem_ready(&self, now: Instant) -> bool {
        self.is_ready || is_recent(self.ready_at, now)
    }

    pub(super) fn ordinal(&self) -> Option<i64> {
        self.name.rsplit_once('-')?.1.parse().ok()
    }
}

impl Model {
    /// The pods of a set that exist.
    pub(super) fn pods_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |it| !it.gone && it.set.as_deref() == Some(set))
    }

    /// Whether a set has this revision.
    pub(super) fn has_revision(&self, set: &str, name: &str) -> bool {
        self.revisions.values().any(|it| !it.gone && it.name == name && it.set.as_deref() == Some(set))
    }

    /// At the end each set has at most its limit of revisions that are not in use.
    pub(super) fn check_history_limits(&self) -> Result<(), String> {
        for (uid, set) in self.sets.iter().filter(|it| !it.1.gone) {
            let is_in_use = |it: &&Revision| {
                set.status["currentRevision"] == *it.name || self.pods_of(uid).any(|pod| pod.revision == it.name)
            };
            let of_set = self.revisions.values().filter(|it| !it.gone && it.set.as_deref() == Some(uid));
            let unused = of_set.filter(|it| !is_in_use(it)).count();
            let limit = set.specs.last().map_or(0, |it| it.history_limit);
            if unused > limit {
                return Err(format!("{} has {unused} unused revisions, the limit is {limit}", set.name));
            }
        }
        Ok(())
    }
}
