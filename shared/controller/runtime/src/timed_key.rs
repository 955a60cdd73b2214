use std::fmt;

use api::ObjectKey;

/// A key in the queue of a controller that acts on objects at a certain time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TimedKey<K = ObjectKey> {
    /// An object.
    Object(K),
    /// The check for a jump of the wall clock, which concerns all objects.
    Clock,
}

impl<K: fmt::Display> fmt::Display for TimedKey<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(key) => key.fmt(f),
            Self::Clock => f.write_str("the clock"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_objects_and_the_clock_display_differently() {
        assert_eq!(
            [TimedKey::Object(ObjectKey::new("n", "c")), TimedKey::Clock].map(|it| it.to_string()),
            ["n/c", "the clock"]
        );
    }
}
