use clock::Timestamp;
use serde_json::Value;

use super::{AGE, Column, NAME, Printer, age, cells, name, or, scalar, text, text_at, wide};
use crate::meta;

pub(super) fn printer(plural: &str) -> Option<Printer> {
    Some(match plural {
        "persistentvolumeclaims" => Printer { columns: CLAIM, cells: claim },
        "persistentvolumes" => Printer { columns: VOLUME, cells: volume },
        "storageclasses" => Printer { columns: CLASS, cells: class },
        _ => return None,
    })
}

const UNSET: &str = "<unset>";

const CLAIM: &[Column] = &[
    NAME,
    text("Status"),
    text("Volume"),
    text("Capacity"),
    text("Access Modes"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    AGE,
    wide("VolumeMode"),
];

fn claim(it: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !text_at(it, "spec.volumeName").is_empty();
    let capacity = if bound { scalar(meta::at(it, "status.capacity.storage")) } else { String::new() };
    let modes = if bound { modes(&it["status"]) } else { String::new() };
    cells![
        name(it),
        phase(it),
        text_at(it, "spec.volumeName"),
        capacity,
        modes,
        class_of(it),
        or(text_at(it, "spec.volumeAttributesClassName"), UNSET),
        age(it, now),
        or(text_at(it, "spec.volumeMode"), UNSET),
    ]
}

const VOLUME: &[Column] = &[
    NAME,
    text("Capacity"),
    text("Access Modes"),
    text("Reclaim Policy"),
    text("Status"),
    text("Claim"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Reason"),
    AGE,
    wide("VolumeMode"),
];

fn volume(it: &Value, now: Timestamp) -> Vec<Value> {
    let claim = &it["spec"]["claimRef"];
    let claim = match claim.is_object() {
        true => format!("{}/{}", text_at(claim, "namespace"), text_at(claim, "name")),
        false => String::new(),
    };
    cells![
        name(it),
        scalar(meta::at(it, "spec.capacity.storage")),
        modes(&it["spec"]),
        text_at(it, "spec.persistentVolumeReclaimPolicy"),
        phase(it),
        claim,
        class_of(it),
        or(text_at(it, "spec.volumeAttributesClassName"), UNSET),
        text_at(it, "status.reason"),
        age(it, now),
        or(text_at(it, "spec.volumeMode"), UNSET),
    ]
}

fn phase(it: &Value) -> &str {
    if meta::is_deleting(it) { "Terminating" } else { text_at(it, "status.phase") }
}

/// The class from the old annotation, otherwise from its field.
fn class_of(it: &Value) -> &str {
    let annotation = it["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    annotation.unwrap_or_else(|| text_at(it, "spec.storageClassName"))
}

/// Access modes in short form, in a fixed order.
fn modes(parent: &Value) -> String {
    let given = meta::texts(parent, "accessModes");
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let short: Vec<&str> = known.iter().filter(|it| given.contains(&it.0)).map(|it| it.1).collect();
    short.join(",")
}

const CLASS: &[Column] =
    &[NAME, text("Provisioner"), text("ReclaimPolicy"), text("VolumeBindingMode"), text("AllowVolumeExpansion"), AGE];

fn class(it: &Value, now: Timestamp) -> Vec<Value> {
    let is_default = it["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
    let name = format!("{}{}", meta::name(it), if is_default { " (default)" } else { "" });
    cells![
        name,
        text_at(it, "provisioner"),
        or(text_at(it, "reclaimPolicy"), "Delete"),
        or(text_at(it, "volumeBindingMode"), "Immediate"),
        it["allowVolumeExpansion"] == true,
        age(it, now),
    ]
}
