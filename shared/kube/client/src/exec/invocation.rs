use kube::config::{ExecConfig, ExecInteractiveMode};
use serde_json::{Value, json};

use crate::ConfigError;

/// The command and its input: the validated plugin of a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    /// `apiVersion` of the input and the output.
    pub(super) version: &'static str,
    /// `KUBERNETES_EXEC_INFO`
    pub(super) exec_info: String,
    /// A hint for users whose plugin is not installed.
    pub(super) hint: String,
}

/// The versions of the protocol that present plugins support.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

impl Invocation {
    /// Validates the plugin of a kubeconfig, as client-go does.
    ///
    /// # Errors
    /// The error names the field.
    pub(super) fn of(exec: &ExecConfig) -> Result<Self, ConfigError> {
        let refused = |field: &'static str, reason: String| ConfigError::Exec { field, reason };
        let missing = |field| refused(field, "is missing".to_owned());
        let command = exec.command.clone().filter(|it| !it.is_empty()).ok_or_else(|| missing("command"))?;
        let requested = exec.api_version.as_deref().filter(|it| !it.is_empty()).ok_or_else(|| missing("apiVersion"))?;
        let version = VERSIONS.into_iter().find(|it| *it == requested).ok_or_else(|| {
            refused("apiVersion", format!("{requested:?} is not supported: {} or {}", VERSIONS[0], VERSIONS[1]))
        })?;
        match exec.interactive_mode {
            Some(ExecInteractiveMode::Always) => {
                let reason = "Always needs a terminal, which a manager has not: Never or IfAvailable".to_owned();
                return Err(refused("interactiveMode", reason));
            }
            None if version == VERSIONS[0] => return Err(missing("interactiveMode")),
            None | Some(ExecInteractiveMode::Never | ExecInteractiveMode::IfAvailable) => {}
        }
        let mut env = Vec::new();
        for variable in exec.env.iter().flatten() {
            let part = |key: &str| variable.get(key).cloned().unwrap_or_default();
            let name = part("name");
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(refused("env", "a variable has no usable name".to_owned()));
            }
            env.push((name, part("value")));
        }
        let args = exec.args.clone().unwrap_or_default();
        let texts = args.iter().chain(env.iter().map(|it| &it.1)).chain([&command]);
        if texts.into_iter().any(|it| it.contains('\0')) {
            return Err(refused("args", "an argument, value or command contains a zero byte".to_owned()));
        }
        let exec_info = exec_info(version, exec)?.to_string();
        Ok(Self { command, args, env, version, exec_info, hint: exec.install_hint.clone().unwrap_or_default() })
    }
}

fn exec_info(version: &str, exec: &ExecConfig) -> Result<Value, ConfigError> {
    let mut spec = json!({ "interactive": false });
    if exec.provide_cluster_info {
        let unknown = |reason: String| ConfigError::Exec { field: "provideClusterInfo", reason };
        let cluster = exec.cluster.as_ref().ok_or_else(|| unknown("the cluster is not known".to_owned()))?;
        spec["cluster"] = serde_json::to_value(cluster).map_err(|err| unknown(err.to_string()))?;
    }
    Ok(json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(yaml: &str) -> Result<Invocation, String> {
        let mut exec: ExecConfig = serde_saphyr::from_str(yaml).unwrap();
        exec.cluster = serde_json::from_value(json!({ "server": "https://s", "config": { "a": 1 } })).unwrap();
        Invocation::of(&exec).map_err(|it| it.to_string())
    }

    #[test]
    fn exec_info_contains_the_cluster_if_requested() {
        let it =
            of("{apiVersion: client.authentication.k8s.io/v1, command: /bin/x, args: [a], interactiveMode: Never, \
                     env: [{name: A, value: b}], provideClusterInfo: true, installHint: get it}")
            .unwrap();
        assert_eq!((it.command.as_str(), it.args.as_slice()), ("/bin/x", &["a".to_owned()][..]));
        assert_eq!(it.env, [("A".to_owned(), "b".to_owned())]);
        assert_eq!(it.hint, "get it");
        let exec_info: Value = serde_json::from_str(&it.exec_info).unwrap();
        let want = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "spec": { "interactive": false, "cluster": { "server": "https://s", "config": { "a": 1 } } },
        });
        assert_eq!(exec_info, want);
        let beta = of("{apiVersion: client.authentication.k8s.io/v1beta1, command: x}").unwrap();
        assert!(!beta.exec_info.contains("cluster") && beta.exec_info.contains("v1beta1"), "{}", beta.exec_info);
    }

    #[test]
    fn errors_name_the_field() {
        for (yaml, field) in [
            ("{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}", "exec.command"),
            ("{command: x, interactiveMode: Never}", "exec.apiVersion"),
            ("{apiVersion: client.authentication.k8s.io/v1alpha1, command: x}", "exec.apiVersion"),
            ("{apiVersion: client.authentication.k8s.io/v1, command: x}", "exec.interactiveMode"),
            ("{apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Always}", "interactiveMode"),
            ("{apiVersion: client.authentication.k8s.io/v1beta1, command: x, env: [{value: CANARY}]}", "exec.env"),
            ("{apiVersion: client.authentication.k8s.io/v1beta1, command: x, args: [\"CANARY\\0\"]}", "exec.args"),
        ] {
            let text = of(yaml).unwrap_err();
            assert!(text.contains(field) && !text.contains("CANARY"), "{field} in {text}");
        }
    }
}
