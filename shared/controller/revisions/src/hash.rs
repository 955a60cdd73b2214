//! The names of revisions. Pure.

/// The label of a revision of a StatefulSet with the hash of its data.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The label with the revision of a pod: for a StatefulSet its name, for a DaemonSet its hash. The revisions of
/// DaemonSets have it too.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// The longest part of the parent's name in the name of a revision.
const MAX_PREFIX: usize = 223;

/// The letters and digits of encoded hashes: no vowels, so that no word results (apimachinery's
/// `rand.SafeEncodeString`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of the data of a revision (`history.HashControllerRevision`). The counter of the workload's collisions is
/// part of it, as decimal text.
#[must_use]
pub fn revision_hash(data: &str, collision_count: Option<i32>) -> String {
    let counter = collision_count.map(|it| it.to_string()).unwrap_or_default();
    encode_hash(fnv1(data.bytes().chain(counter.bytes())))
}

/// The hash as decimal digits in the safe alphabet.
#[must_use]
pub fn encode_hash(hash: u32) -> String {
    let encode = |digit: u8| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]);
    hash.to_string().bytes().map(encode).collect()
}

/// `<parent>-<hash>`. The parent's name is cut so that the hash is complete (`history.ControllerRevisionName`).
#[must_use]
pub fn revision_name(parent: &str, hash: &str) -> String {
    // Object names are ASCII, so any cut is at a character boundary.
    format!("{}-{hash}", parent.get(..MAX_PREFIX).unwrap_or(parent))
}

/// FNV-1 with 32 bits, not FNV-1a: the byte is added after the multiplication.
fn fnv1(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(2_166_136_261, |hash: u32, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_common_034_hashes_are_upstreams() {
        let data = r#"{"spec":{"template":{"$patch":"replace"}}}"#;
        for (data, counter, want) in [
            (data, Some(0), "589f85db5b"),
            (data, Some(1), "589f85db5c"),
            (data, None, "5c7586484"),
            ("{}", Some(0), "cccc864bc"),
        ] {
            assert_eq!(revision_hash(data, counter), want, "{data} {counter:?}");
        }
    }

    #[test]
    fn acceptance_common_035_each_counter_gives_another_hash_and_the_same_input_the_same() {
        let hashes = [None, Some(0), Some(1)].map(|it| revision_hash("{}", it));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2], "{hashes:?}");
        assert_eq!(hashes, [None, Some(0), Some(1)].map(|it| revision_hash("{}", it)));
    }

    #[test]
    fn acceptance_common_033_a_long_parent_name_is_cut_and_the_hash_is_complete() {
        let name = revision_name(&"a".repeat(253), "589f85db5b");
        assert_eq!(name.len(), 234);
        assert!(name.ends_with("a-589f85db5b"), "{name}");
        assert_eq!(revision_name("web", "589f85db5b"), "web-589f85db5b");
    }
}
