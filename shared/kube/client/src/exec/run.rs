use std::{io::ErrorKind, process::Stdio, time::Duration};

use tokio::{io::AsyncReadExt, process::Command};

use super::invocation::Invocation;

/// Longer than any plugin needs to request a credential.
const TIMEOUT: Duration = Duration::from_secs(60);
/// No credential is this large.
const MAX_OUTPUT: u64 = 1 << 20;

/// The failure of a plugin, for metrics and messages.
#[derive(Debug)]
pub(super) struct PluginFailure {
    pub(super) status: &'static str,
    pub(super) code: i32,
    pub(super) why: String,
}

/// Runs the plugin and returns its standard output. Its standard error is ours, as in client-go.
pub(super) async fn run(invocation: &Invocation) -> Result<Vec<u8>, PluginFailure> {
    let internal = |why: String| PluginFailure { status: "client_internal_error", code: 1, why };
    let mut child = Command::new(&invocation.command)
        .args(&invocation.args)
        .envs(invocation.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", &invocation.exec_info)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|err| start_failure(invocation, &err))?;
    let Some(stdout) = child.stdout.take() else { return Err(internal("has no output".to_owned())) };
    let output = async {
        let mut written = Vec::new();
        let read = stdout.take(MAX_OUTPUT + 1).read_to_end(&mut written).await;
        if written.len() as u64 > MAX_OUTPUT {
            return Err(internal(format!("wrote more than {MAX_OUTPUT} bytes")));
        }
        read.map_err(|err| internal(err.to_string()))?;
        let status = child.wait().await.map_err(|err| internal(err.to_string()))?;
        if status.success() {
            return Ok(written);
        }
        let code = status.code().unwrap_or(-1);
        Err(PluginFailure { status: "plugin_execution_error", code, why: format!("ended with {status}") })
    };
    match tokio::time::timeout(TIMEOUT, output).await {
        Ok(output) => output,
        Err(_) => Err(internal(format!("did not end within {TIMEOUT:?}"))),
    }
}

fn start_failure(invocation: &Invocation, err: &std::io::Error) -> PluginFailure {
    let status = match err.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied => "plugin_not_found_error",
        _ => "client_internal_error",
    };
    let hint = if invocation.hint.is_empty() { String::new() } else { format!(" ({})", invocation.hint.trim()) };
    PluginFailure { status, code: 1, why: format!("cannot be started: {err}{hint}") }
}
