//! Volumes of pods, PersistentVolumeClaims and PersistentVolumes.

use serde_json::{Value, json};

use super::{ensure_map, pod, set_default, visit_list, visit_map};
use crate::meta;

/// Readable by all, writable by the owner: 0644.
const MODE: i64 = 420;

/// A volume of a pod.
pub(super) fn fill_pod_volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|it| it.iter().any(|it| it.0 != "name" && !it.1.is_null()));
    if !has_source {
        meta::as_map(volume).insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        visit_map(volume, source, |it| set_default(it, "defaultMode", MODE));
    }
    visit_map(volume, "downwardAPI", |it| visit_list(it, "items", pod::fill_field_ref));
    visit_map(volume, "projected", |it| {
        visit_list(it, "sources", |it| {
            visit_map(it, "serviceAccountToken", |it| set_default(it, "expirationSeconds", 3600));
            visit_map(it, "downwardAPI", |it| visit_list(it, "items", pod::fill_field_ref));
        });
    });
    visit_map(volume, "hostPath", |it| set_default(it, "type", ""));
    visit_map(volume, "iscsi", |it| set_default(it, "iscsiInterface", "default"));
    visit_map(volume, "ephemeral", |it| {
        visit_map(it, "volumeClaimTemplate", |it| set_default(ensure_map(it, "spec"), "volumeMode", "Filesystem"));
    });
}

/// A claim, also in the template of a StatefulSet.
pub(super) fn fill_claim(object: &mut Value) {
    set_default(ensure_map(object, "spec"), "volumeMode", "Filesystem");
    set_default(ensure_map(object, "status"), "phase", "Pending");
}

/// A PersistentVolume.
pub(super) fn fill_volume(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "volumeMode", "Filesystem");
    set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
    visit_map(spec, "hostPath", |it| set_default(it, "type", ""));
    visit_map(spec, "iscsi", |it| set_default(it, "iscsiInterface", "default"));
    set_default(ensure_map(object, "status"), "phase", "Pending");
}
