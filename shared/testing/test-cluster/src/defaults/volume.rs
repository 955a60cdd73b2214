//! Volumes of pods, PersistentVolumeClaims and PersistentVolumes.

use serde_json::{Value, json};

use super::{each, or, part, pod, within};
use crate::meta;

/// Readable by all, writable by the owner: 0644.
const MODE: i64 = 420;

/// A volume of a pod.
pub(super) fn of_pod(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|it| it.iter().any(|it| it.0 != "name" && !it.1.is_null()));
    if !has_source {
        meta::as_map(volume).insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        within(volume, source, |it| or(it, "defaultMode", MODE));
    }
    within(volume, "downwardAPI", |it| each(it, "items", pod::field_of));
    within(volume, "projected", |it| {
        each(it, "sources", |it| {
            within(it, "serviceAccountToken", |it| or(it, "expirationSeconds", 3600));
            within(it, "downwardAPI", |it| each(it, "items", pod::field_of));
        });
    });
    within(volume, "hostPath", |it| or(it, "type", ""));
    within(volume, "iscsi", |it| or(it, "iscsiInterface", "default"));
    within(volume, "ephemeral", |it| {
        within(it, "volumeClaimTemplate", |it| or(part(it, "spec"), "volumeMode", "Filesystem"));
    });
}

/// A claim, also in the template of a StatefulSet.
pub(super) fn claim(object: &mut Value) {
    or(part(object, "spec"), "volumeMode", "Filesystem");
    or(part(object, "status"), "phase", "Pending");
}

/// A PersistentVolume.
pub(super) fn volume(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "volumeMode", "Filesystem");
    or(spec, "persistentVolumeReclaimPolicy", "Retain");
    within(spec, "hostPath", |it| or(it, "type", ""));
    within(spec, "iscsi", |it| or(it, "iscsiInterface", "default"));
    or(part(object, "status"), "phase", "Pending");
}
