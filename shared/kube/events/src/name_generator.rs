use clock::Timestamp;
use fastrand::Rng;

/// Names Events as upstream does: `<object name>.<hex of unix nanoseconds>`, or a random name if that is not valid.
pub(crate) struct NameGenerator {
    rng: Rng,
    /// The last number used, so that two Events of one object at the same instant have different names.
    last: i128,
}

impl NameGenerator {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, last: i128::MIN }
    }

    pub(crate) fn next_name(&mut self, object: &str, now: Timestamp) -> String {
        self.last = now.as_nanosecond().max(self.last.saturating_add(1));
        let name = format!("{object}.{:x}", self.last);
        if is_subdomain(&name) { name } else { self.random() }
    }

    /// A random (version 4) UUID.
    fn random(&mut self) -> String {
        let mut bits = self.rng.u128(..);
        bits = bits & !(0xf << 76) | (0x4 << 76);
        bits = bits & !(0x3 << 62) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// RFC 1123: at most 253 bytes; labels of lower-case letters, digits and inner dashes, separated by dots.
fn is_subdomain(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-');
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_the_object_and_the_time_or_is_random_if_that_is_not_valid() {
        let now = Timestamp::from_nanosecond(0x17a0_0000_0000_0001).unwrap();
        let name = |object: &str| NameGenerator::new(Rng::with_seed(1)).next_name(object, now);
        assert_eq!(name("node-1.example"), "node-1.example.17a0000000000001");
        for odd in ["", "system:node", "Upper", "-a", "a-", "a..b", &"a".repeat(250)] {
            let name = name(odd);
            let parts: Vec<usize> = name.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{odd}: {name}");
            assert_eq!(&name[14..15], "4", "{name}");
            assert!(is_subdomain(&name));
        }
    }

    #[test]
    fn two_names_at_one_instant_differ() {
        let mut names = NameGenerator::new(Rng::with_seed(1));
        let now = Timestamp::from_nanosecond(0x10).unwrap();
        assert_eq!([names.next_name("a", now), names.next_name("a", now)], ["a.10", "a.11"]);
    }
}
