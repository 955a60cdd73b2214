//! The names of pods.
//!
//! A name follows from the node and from the pods that are known there. So a creation that is decided twice, from one
//! state of the cache or after an unknown outcome, names the same pod, and the server refuses the second one.

use api::{MetaRef, Uid};

/// The letters and digits of names (apimachinery's `rand`): no vowels, so that no word results.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The number of letters and digits after the name of the set. Two of ten thousand nodes get one name with a probability of 10^-7.
const SUFFIX: usize = 10;

/// The longest name of a pod, so that it is also a valid host name.
const MAX_NAME: usize = 63;

/// The name of the next pod of a set on a node. `known` are the uids of the pods that are there, also of those that have
/// ended, and of other pods that have names of this set.
pub(crate) fn pod_name(set: MetaRef<'_>, node: &str, known: &[&Uid]) -> String {
    let mut known: Vec<String> = known.iter().map(ToString::to_string).collect();
    known.sort_unstable();
    let uid = set.uid.to_string();
    let hash = hash([uid.as_str(), node].into_iter().chain(known.iter().map(String::as_str)));
    let (mut rest, mut name) = (hash, format!("{}-", set.name));
    // Names of objects are ASCII.
    name.truncate(MAX_NAME - SUFFIX);
    for _ in 0..SUFFIX {
        let digit = usize::try_from(rest % 27).unwrap_or_default();
        name.push(char::from(ALPHABET[digit]));
        rest /= 27;
    }
    name
}

/// FNV-1a with 64 bits of the parts, each ended by a zero, and the finalizer of MurmurHash3, because only the low bits
/// of FNV change with the last byte.
fn hash<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = parts.flat_map(|it| it.bytes().chain([0]));
    let mut hash = bytes
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use api::Meta;

    use super::*;

    fn name(set: &str, node: &str, known: &[&str]) -> String {
        name_of(set, "set-uid", node, known)
    }

    fn name_of(set: &str, uid: &str, node: &str, known: &[&str]) -> String {
        let meta = Meta { name: set.into(), uid: Uid::new(uid), ..Meta::default() };
        let known: Vec<Uid> = known.iter().map(|it| Uid::new(it)).collect();
        pod_name(meta.as_ref(), node, &known.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_name_depends_on_the_node_and_on_the_pods_there() {
        let first = name("ds", "n1", &[]);
        assert!(first.starts_with("ds-") && first.len() == 13, "{first}");
        assert_eq!(name("ds", "n1", &[]), first);
        let others = [name("ds", "n2", &[]), name("ds", "n1", &["a"]), name("ds", "n1", &["a", "b"])];
        assert!(others.iter().all(|it| *it != first));
        assert_eq!(name("ds", "n1", &["a", "b"]), name("ds", "n1", &["b", "a"]));
        assert_ne!(name_of("ds", "other", "n1", &[]), first, "a successor of the same name");
    }

    #[test]
    fn the_names_of_many_nodes_differ() {
        let names: HashSet<String> = (0..20_000).map(|it| name("ds", &format!("node-{it}"), &[])).collect();
        assert_eq!(names.len(), 20_000);
    }

    #[test]
    fn a_name_is_a_host_name() {
        assert_eq!(name(&"x".repeat(253), "n1", &[]).len(), 63);
    }
}
