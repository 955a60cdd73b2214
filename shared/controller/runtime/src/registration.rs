use std::{collections::BTreeMap, time::Duration};

use crate::{Builder, Profile};

/// What the manager needs to know of a controller. The list of `--controllers`, flags, rights and documents follow from
/// it.
#[derive(Debug, Clone, Copy)]
pub struct Registration {
    /// The canonical name. Its meaning never changes.
    pub name: &'static str,
    /// An older name that still works; empty without one.
    pub alias: &'static str,
    /// Its ServiceAccount in kube-system under `--use-service-account-credentials`, and always the name of its client.
    /// Upstream's role for it is `system:controller:<account>`.
    pub service_account: &'static str,
    /// Its permissions and its marks on objects.
    pub profile: Profile,
    /// Whether `*` includes it.
    pub default: ByDefault,
    /// Its flags.
    pub flags: &'static [ControllerFlag],
    /// The feature gates that it reads.
    pub gates: &'static [&'static str],
    /// Declares it to its builder.
    pub start: fn(&mut Builder, &Settings),
}

/// When a controller runs without an entry of its own in `--controllers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByDefault {
    /// With `*`.
    On,
    /// Only when named.
    Off,
    /// With `*`, if these feature gates are on.
    Gated(&'static [&'static str]),
    /// With a signing key, whatever `--controllers` contains.
    WithKey,
    /// Never: a stub that upstream removed in 1.37.
    Removed,
}

/// A flag of a controller.
#[derive(Debug, Clone, Copy)]
pub struct ControllerFlag {
    /// The title of its section in the help.
    pub section: &'static str,
    /// The name without dashes.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: FlagKind,
    /// The default as text.
    pub default: &'static str,
    /// One line for the help.
    pub help: &'static str,
    /// kube-controller-manager has it too.
    pub is_upstream: bool,
}

/// The kind of the value of a controller's flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagKind {
    /// A number of workers, at least one.
    Workers,
    /// A number, at least zero.
    Count,
    /// A number; upstream accepts negative ones too.
    Integer,
    /// A 32-bit float.
    Float,
    /// Go's duration.
    Duration,
    /// Any text.
    Text,
}

/// The values of a controller's flags and feature gates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    flags: BTreeMap<&'static str, FlagValue>,
    gates: BTreeMap<&'static str, bool>,
}

/// The value of a flag.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagValue {
    /// Workers and counts.
    Number(u32),
    /// An integer.
    Integer(i32),
    /// A float, never NaN.
    Float(f64),
    /// A duration.
    Duration(Duration),
    /// A text.
    Text(String),
}

impl Settings {
    /// Sets the value of a flag.
    pub fn set_flag(&mut self, flag: &'static str, value: FlagValue) {
        self.flags.insert(flag, value);
    }

    /// Sets whether a feature gate is on.
    pub fn set_gate(&mut self, gate: &'static str, is_on: bool) {
        self.gates.insert(gate, is_on);
    }

    /// The number of workers, at least one.
    #[must_use]
    pub fn workers(&self, flag: &str) -> usize {
        self.count(flag).max(1) as usize
    }

    /// The number of a flag of the kind workers or count.
    #[must_use]
    pub fn count(&self, flag: &str) -> u32 {
        match self.flags.get(flag) {
            Some(FlagValue::Number(number)) => *number,
            other => undeclared(flag, other),
        }
    }

    /// The number of a flag of the kind integer.
    #[must_use]
    pub fn integer(&self, flag: &str) -> i32 {
        match self.flags.get(flag) {
            Some(FlagValue::Integer(number)) => *number,
            other => undeclared(flag, other),
        }
    }

    /// The number of a flag of the kind float.
    #[must_use]
    pub fn float(&self, flag: &str) -> f64 {
        match self.flags.get(flag) {
            Some(FlagValue::Float(number)) => *number,
            other => undeclared(flag, other),
        }
    }

    /// The duration of a flag.
    #[must_use]
    pub fn duration(&self, flag: &str) -> Duration {
        match self.flags.get(flag) {
            Some(FlagValue::Duration(duration)) => *duration,
            other => undeclared(flag, other),
        }
    }

    /// The text of a flag of the kind text.
    #[must_use]
    pub fn text(&self, flag: &str) -> &str {
        match self.flags.get(flag) {
            Some(FlagValue::Text(text)) => text,
            other => undeclared(flag, other),
        }
    }

    /// Whether a feature gate is on.
    #[must_use]
    pub fn is_enabled(&self, gate: &str) -> bool {
        self.gates.get(gate).copied().unwrap_or_else(|| undeclared(gate, None))
    }
}

/// Called when a controller reads a flag or gate that its registration does not declare. Every test that starts the
/// controller fails then.
fn undeclared<T: Default>(name: &str, found: Option<&FlagValue>) -> T {
    debug_assert!(false, "{name} is not declared with this kind: {found:?}");
    T::default()
}
