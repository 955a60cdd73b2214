use std::{collections::BTreeMap, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};

/// The prefix of the keys of a script.
pub const PREFIX: &str = "fake-nodes.mini-kcm.dev/";

/// The annotation with the completion index of a Job's pod.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The running time of a container whose script has an exit code but no `run-for`.
const SHORT: Duration = Duration::from_secs(1);
/// The kubelet's back-off before the second restart; doubled each time.
const BACKOFF: Duration = Duration::from_secs(10);

/// The behaviour of a pod, from its annotations and labels (annotations win). Each key comes after [`PREFIX`]:
///
/// | key | meaning | when missing |
/// |---|---|---|
/// | `start-after` | how long the creation of a container takes | no time |
/// | `run-for` | how long a container runs before it ends | for ever, or as [`crate::Options::unscripted`] says |
/// | `ready-after` | when a running container becomes ready | at once |
/// | `exit-code` | its exit code | 0 |
/// | `crashes` | how many times it exits with 1 before that | never |
/// | `failing-indexes` | such as `1,3`: the containers of a Job's pod with one of these completion indexes end with 1 | none |
/// | `hang` | `true`: never ready, never ends, ignores SIGTERM | |
/// | `stop-after` | how long it takes to end after SIGTERM, if the grace period allows | no time |
/// | `backoff` | the first back-off of its crash loop | 10s |
/// | `node-lost-after` | the node becomes silent when the pod has been there for this long | never |
/// | `node-back-after` | the silence of the node ends after this | never |
///
/// `<container>.<key>` is for one container. A key without a name is for the main containers only: init containers exit
/// with 0 at once, and sidecars run for ever. With only `exit-code` or `crashes` a run takes one second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// `start-after`
    pub start_after: Duration,
    /// `backoff`
    pub backoff: Duration,
    /// `node-lost-after`
    pub node_lost_after: Option<Duration>,
    /// `node-back-after`
    pub node_back_after: Option<Duration>,
    all: Lines,
    each: BTreeMap<String, Lines>,
    failing_indexes: Vec<u32>,
}

/// The behaviour of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// `None` runs for ever.
    pub run_for: Option<Duration>,
    /// `None` is never ready.
    pub ready_after: Option<Duration>,
    /// The exit code when it ends by itself.
    pub exit_code: i32,
    /// How many times it exits with 1 before.
    pub crashes: u32,
    /// How long it takes to end after SIGTERM; `None` ignores it.
    pub stop_after: Option<Duration>,
}

/// The role of a container in its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Init,
    /// An init container that is always restarted.
    Sidecar,
    Main,
}

/// An invalid line of a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{PREFIX}{key}: {value:?} {problem}")]
pub struct ScriptError {
    /// The key without the prefix.
    pub key: String,
    /// The value.
    pub value: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Lines as written; what is missing is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Lines {
    run_for: Option<Duration>,
    ready_after: Option<Duration>,
    exit_code: Option<i32>,
    crashes: Option<u32>,
    hang: bool,
    stop_after: Option<Duration>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            start_after: Duration::ZERO,
            backoff: BACKOFF,
            node_lost_after: None,
            node_back_after: None,
            all: Lines::default(),
            each: BTreeMap::new(),
            failing_indexes: Vec::new(),
        }
    }
}

impl Script {
    /// Parses the script of a pod.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn of(pod: &ObjectMeta) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let labels = pod.labels.iter().flatten();
        for (key, value) in labels.chain(pod.annotations.iter().flatten()) {
            if let Some(key) = key.strip_prefix(PREFIX) {
                let error = |problem| ScriptError { key: key.to_owned(), value: value.clone(), problem };
                script.read(key, value).map_err(error)?;
            }
        }
        let index = pod.annotations.iter().flatten().find(|(key, _)| *key == COMPLETION_INDEX);
        // An annotation that is not a number matches no index.
        if index.and_then(|(_, it)| it.parse().ok()).is_some_and(|it| script.failing_indexes.contains(&it)) {
            script.all.exit_code = Some(1);
        }
        Ok(script)
    }

    /// Parses the script of a pod. Without a script, the containers of a pod that is not always restarted exit with 0
    /// after `unscripted`, so that a Job without a script completes.
    pub(crate) fn of_pod(pod: &Pod, unscripted: Option<Duration>) -> Result<Self, ScriptError> {
        let mut script = Self::of(&pod.metadata)?;
        let policy = pod.spec.as_ref().and_then(|it| it.restart_policy.as_deref());
        if script == Self::default() && matches!(policy, Some("Never" | "OnFailure")) {
            script.all.run_for = unscripted;
        }
        Ok(script)
    }

    fn read(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let (lines, key) = match key.split_once('.') {
            Some((container, key)) => (self.each.entry(container.to_owned()).or_default(), key),
            None => (&mut self.all, key),
        };
        match key {
            "run-for" => lines.run_for = Some(duration(value)?),
            "ready-after" => lines.ready_after = Some(duration(value)?),
            "exit-code" => lines.exit_code = Some(value.parse().map_err(|_| "is not an exit code")?),
            "crashes" => lines.crashes = Some(value.parse().map_err(|_| "is not a number")?),
            "hang" => lines.hang = value.parse().map_err(|_| "is neither true nor false")?,
            "stop-after" => lines.stop_after = Some(duration(value)?),
            "failing-indexes" => self.failing_indexes = numbers(value)?,
            "start-after" => self.start_after = duration(value)?,
            "backoff" => self.backoff = duration(value)?,
            "node-lost-after" => self.node_lost_after = Some(duration(value)?),
            "node-back-after" => self.node_back_after = Some(duration(value)?),
            _ => return Err("has an unknown key"),
        }
        Ok(())
    }

    /// The behaviour of one container.
    pub(crate) fn behaviour(&self, container: &str, role: Role) -> Behaviour {
        let nothing = Lines::default();
        let own = self.each.get(container).unwrap_or(&nothing);
        let common = if role == Role::Main { &self.all } else { &nothing };
        let crashes = own.crashes.or(common.crashes);
        let exit_code = own.exit_code.or(common.exit_code);
        let hangs = own.hang || common.hang;
        let ends = crashes.is_some() || exit_code.is_some();
        let default = match role {
            Role::Init => Some(Duration::ZERO),
            Role::Main | Role::Sidecar => ends.then_some(SHORT),
        };
        Behaviour {
            run_for: own.run_for.or(common.run_for).or(default).filter(|_| !hangs),
            ready_after: (!hangs).then(|| own.ready_after.or(common.ready_after).unwrap_or_default()),
            exit_code: exit_code.unwrap_or(0),
            crashes: crashes.unwrap_or(0),
            stop_after: (!hangs).then(|| own.stop_after.or(common.stop_after).unwrap_or_default()),
        }
    }
}

fn numbers(text: &str) -> Result<Vec<u32>, &'static str> {
    text.split(',').map(|it| it.trim().parse().map_err(|_| "is not a list of indexes such as 1,3")).collect()
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    let parsed: SignedDuration = text.parse().map_err(|_| "is not a duration such as 1m30s")?;
    parsed.try_into().map_err(|_| "is a duration below zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOR_EVER: Behaviour = Behaviour {
        run_for: None,
        ready_after: Some(Duration::ZERO),
        exit_code: 0,
        crashes: 0,
        stop_after: Some(Duration::ZERO),
    };
    const SECOND: Duration = Duration::from_secs(1);

    fn script(lines: &[(&str, &str)]) -> Result<Script, ScriptError> {
        let annotations = lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        Script::of(&ObjectMeta { annotations: Some(annotations.collect()), ..ObjectMeta::default() })
    }

    #[test]
    fn container_follows_its_script() {
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Role, Behaviour);
        let rows: [Row<'_>; 9] = [
            ("without a script", &[], Role::Main, FOR_EVER),
            ("init containers end at once", &[], Role::Init, Behaviour { run_for: Some(Duration::ZERO), ..FOR_EVER }),
            ("sidecars run for ever", &[("run-for", "1s")], Role::Sidecar, FOR_EVER),
            ("a length", &[("run-for", "1s")], Role::Main, Behaviour { run_for: Some(SECOND), ..FOR_EVER }),
            (
                "an exit code alone is a short run",
                &[("exit-code", "3")],
                Role::Main,
                Behaviour { run_for: Some(SECOND), exit_code: 3, ..FOR_EVER },
            ),
            (
                "crashes",
                &[("crashes", "2"), ("run-for", "500ms")],
                Role::Main,
                Behaviour { run_for: Some(SECOND / 2), crashes: 2, ..FOR_EVER },
            ),
            (
                "hang overrides all other lines",
                &[("hang", "true"), ("run-for", "1s"), ("stop-after", "1s")],
                Role::Main,
                Behaviour { ready_after: None, stop_after: None, ..FOR_EVER },
            ),
            (
                "its own line wins",
                &[("main.ready-after", "1s"), ("ready-after", "9s")],
                Role::Main,
                Behaviour { ready_after: Some(SECOND), ..FOR_EVER },
            ),
            (
                "init containers have lines of their own",
                &[("main.exit-code", "1"), ("exit-code", "9")],
                Role::Init,
                Behaviour { run_for: Some(Duration::ZERO), exit_code: 1, ..FOR_EVER },
            ),
        ];
        for (name, lines, role, want) in rows {
            assert_eq!(script(lines).unwrap().behaviour("main", role), want, "{name}");
        }
    }

    #[test]
    fn pod_without_script_ends_unless_always_restarted() {
        let run_for = |policy: &str, lines: &[&str], unscripted| {
            let annotations = lines.iter().map(|key| (format!("{PREFIX}{key}"), "1s".to_owned())).collect();
            let mut pod = Pod::default();
            pod.metadata.annotations = Some(annotations);
            pod.spec.get_or_insert_default().restart_policy = Some(policy.to_owned());
            Script::of_pod(&pod, unscripted).unwrap().behaviour("main", Role::Main).run_for
        };
        let three = Some(SECOND * 3);
        for (policy, lines, unscripted, want) in [
            ("Never", &[][..], three, three),
            ("OnFailure", &[], three, three),
            ("Always", &[], three, None),
            ("Never", &[], None, None),
            ("Never", &["run-for"], three, Some(SECOND)),
            ("Never", &["start-after"], three, None),
        ] {
            assert_eq!(run_for(policy, lines, unscripted), want, "{policy} {lines:?} {unscripted:?}");
        }
        assert_eq!(Script::of_pod(&Pod::default(), three).unwrap(), Script::default());
    }

    #[test]
    fn only_pods_of_failing_indexes_fail() {
        let exit_code = |index: Option<&str>| {
            let lines = [("failing-indexes", "1, 3"), ("run-for", "1s"), ("well.exit-code", "0")];
            let lines = lines.map(|(key, value)| (format!("{PREFIX}{key}"), value.to_owned()));
            let index = index.map(|it| (COMPLETION_INDEX.to_owned(), it.to_owned()));
            let annotations = lines.into_iter().chain(index).collect();
            let script = Script::of(&ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() }).unwrap();
            assert_eq!(script.behaviour("well", Role::Main).exit_code, 0, "its own line wins");
            script.behaviour("main", Role::Main).exit_code
        };
        let of = [None, Some("0"), Some("1"), Some("2"), Some("3"), Some("13")].map(exit_code);
        assert_eq!(of, [0, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn invalid_line_is_named() {
        for (key, value) in [
            ("run-for", "soon"),
            ("failing-indexes", "1-3"),
            ("run-for", "-1s"),
            ("exit-code", "x"),
            ("main.runs", "1s"),
        ] {
            let text = script(&[(key, value)]).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{PREFIX}{key}: {value:?} ")), "{text}");
        }
    }

    #[test]
    fn annotations_win_over_labels() {
        let one = |value: &str| Some(BTreeMap::from([(format!("{PREFIX}backoff"), value.to_owned())]));
        let both = ObjectMeta { labels: one("1s"), annotations: one("2s"), ..ObjectMeta::default() };
        assert_eq!(Script::of(&both).unwrap().backoff, SECOND * 2);
        let label = ObjectMeta { labels: one("1s"), ..ObjectMeta::default() };
        assert_eq!(Script::of(&label).unwrap().backoff, SECOND);
    }
}
