use api::{Atom, Job};

/// The Jobs that this controller manages (KEP-4368).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManagedJobs {
    /// Those of the built-in controller: `spec.managedBy` is not set, or has the reserved value.
    BuiltIn,
    /// Those whose `spec.managedBy` has this value. The built-in controller runs beside us.
    Only(Atom),
}

impl ManagedJobs {
    /// `--job-managed-by`; empty for the Jobs of the built-in controller.
    pub(crate) fn from_flag(value: &str) -> Self {
        if value.is_empty() { Self::BuiltIn } else { Self::Only(value.into()) }
    }

    /// True if we manage this Job. Other Jobs and their pods must not be changed. `spec.managedBy` is immutable, so the
    /// answer never changes.
    pub(crate) fn contains(&self, job: &Job) -> bool {
        match self {
            Self::BuiltIn => job.is_managed_by_built_in(),
            Self::Only(value) => job.spec.managed_by.as_ref() == Some(value),
        }
    }

    /// The external controller of this Job; `None` if we manage it or the built-in controller does.
    pub(crate) fn external_controller<'a>(&self, job: &'a Job) -> Option<&'a str> {
        let is_external = !self.contains(job) && !job.is_managed_by_built_in();
        job.spec.managed_by.as_deref().filter(|_| is_external)
    }

    /// True if we remove the finalizer from pods without a Job, or with a Job that is gone or unreadable. Nothing shows
    /// whether such a Job was ours, and the built-in controller removes it from all of them
    /// (`jobcontroller.syncOrphanPod`).
    pub(crate) fn includes_unknown_jobs(&self) -> bool {
        *self == Self::BuiltIn
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::job;

    #[test]
    fn managed_by_selects_the_jobs() {
        let (ours, others, reserved) = ("mini-kcm.dev/job", "example.com/x", "kubernetes.io/job-controller");
        for (flag, managed_by, contained, external) in [
            ("", None, true, None),
            ("", Some(reserved), true, None),
            ("", Some(others), false, Some(others)),
            (ours, None, false, None),
            (ours, Some(reserved), false, None),
            (ours, Some(others), false, Some(others)),
            (ours, Some(ours), true, None),
        ] {
            let (managed, job) = (ManagedJobs::from_flag(flag), job(json!({ "managedBy": managed_by }), json!({})));
            assert_eq!(managed.contains(&job), contained, "{flag} {managed_by:?}");
            assert_eq!(managed.external_controller(&job), external, "{flag} {managed_by:?}");
        }
    }
}
