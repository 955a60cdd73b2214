//! The hash of a pod template (`controller.ComputeHash`).

use serde_json::Value;

use crate::rules::dump;

/// FNV-1a with 32 bits of the template as Go prints it, and of the number of collisions. It equals upstream's, so that a
/// ReplicaSet has the same name whichever manager creates it. Nothing depends on that: a ReplicaSet is found by its
/// template.
pub(crate) fn template_hash(template: &Value, collision_count: Option<i32>) -> u32 {
    let counter = collision_count.map(|it| (u64::from(it.unsigned_abs())).to_le_bytes());
    fnv1a(dump::pod_template(template).bytes().chain(counter.into_iter().flatten()))
}

fn fnv1a(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Templates as an API server of 1.36.2 returns them. The hashes are those of Go's `ComputeHash` of that version. In
    /// `full` every field of every type is set.
    const TEMPLATES: &str = include_str!("dump/templates.json");

    #[test]
    fn hashes_are_those_of_the_upstream_manager() {
        let templates: Value = serde_json::from_str(TEMPLATES).unwrap();
        for (name, collisions, want) in [
            ("plain", None, "6c5f67b5f7"),
            ("plain", Some(1), "6f4479b5f6"),
            ("rich", None, "7fcd99bcb8"),
            ("quantities", None, "b445cd45"),
            ("full", None, "7869f9b7c8"),
            ("full", Some(3), "8545d76b6f"),
            ("large", None, "695cdb97f7"),
            ("markup", None, "749f46cf67"),
            ("copied", None, "595bb88f6f"),
        ] {
            assert_eq!(encoded(template_hash(&templates[name], collisions)), want, "{name}");
        }
    }

    /// The hash as in names.
    fn encoded(hash: u32) -> String {
        let encode = |digit: char| "456789bcdf".chars().nth(digit.to_digit(10).unwrap() as usize).unwrap();
        hash.to_string().chars().map(encode).collect()
    }

    #[test]
    fn the_counter_changes_the_hash_and_the_hash_is_stable() {
        let template = json!({ "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let hashes = [None, Some(0), Some(1)].map(|it| template_hash(&template, it));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
        assert_eq!(hashes, [None, Some(0), Some(1)].map(|it| template_hash(&template, it)));
        assert_eq!(fnv1a("a".bytes()), 3_826_002_220);
    }
}
