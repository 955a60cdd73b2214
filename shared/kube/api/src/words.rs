//! The string constants of the API as enums that keep unknown values.

/// Declares an enum of API constants. An unknown value of a newer server decodes as `Other` and is written back
/// unchanged, so that each `match` must handle it.
macro_rules! words {
    ($(#[$about:meta])* $name:ident {
        $($(#[$meaning:meta])* $variant:ident = $text:literal $(| $also:literal)*),+ $(,)?
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$meaning])* $variant,)+
            /// A value that this version does not define; empty if none was given.
            Other($crate::Atom),
        }

        impl $name {
            /// The value in the API.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($text $(| $also)* => Self::$variant,)+
                    other => Self::Other(other.into()),
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from("")
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;
                impl serde::de::Visitor<'_> for Word {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a word")
                    }
                    fn visit_str<E>(self, word: &str) -> Result<$name, E> {
                        Ok($name::from(word))
                    }
                }
                deserializer.deserialize_str(Word)
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use serde::{Serialize, de::DeserializeOwned};

    use crate::{ConditionStatus, NamespacePhase, PodPhase, TaintEffect, TolerationOperator};

    /// Decodes each of `words`. `known` returns whether the value is defined.
    fn check<T: Serialize + DeserializeOwned>(known: fn(&T) -> bool, words: &[&str]) {
        for &word in words {
            let text = format!("{word:?}");
            let decoded: T = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&decoded).unwrap(), text);
            assert_eq!(known(&decoded), !["Newer", ""].contains(&word), "{text}");
        }
    }

    #[test]
    fn unknown_enum_values_are_kept() {
        let phases = ["Pending", "Running", "Succeeded", "Failed", "Unknown", "Newer", ""];
        check(|it| !matches!(it, PodPhase::Other(_)), &phases);
        check(|it| !matches!(it, ConditionStatus::Other(_)), &["True", "False", "Unknown", "Newer", ""]);
        check(|it| !matches!(it, TaintEffect::Other(_)), &["NoSchedule", "PreferNoSchedule", "NoExecute", "Newer", ""]);
        check(|it| !matches!(it, TolerationOperator::Other(_)), &["Equal", "Exists", "Lt", "Gt", "Newer"]);
        check(|it| !matches!(it, NamespacePhase::Other(_)), &["Active", "Terminating", "Newer", ""]);
        assert_eq!(TolerationOperator::default(), TolerationOperator::Equal);
    }
}
