use std::{io::ErrorKind, process::Stdio, time::Duration};

use tokio::{io::AsyncReadExt, process::Command};

use super::invocation::Invocation;

/// Longer than any plugin needs for its authority.
const PATIENCE: Duration = Duration::from_secs(60);
/// No credential is this large.
const LARGEST: u64 = 1 << 20;

/// The failure of a plugin, for metrics and messages.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) status: &'static str,
    pub(super) code: i32,
    pub(super) why: String,
}

/// Runs the plugin and returns its standard output. Its standard error is ours, as in client-go.
pub(super) async fn run(invocation: &Invocation) -> Result<Vec<u8>, Failed> {
    let internal = |why: String| Failed { status: "client_internal_error", code: 1, why };
    let mut child = Command::new(&invocation.command)
        .args(&invocation.args)
        .envs(invocation.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", &invocation.question)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|err| not_started(invocation, &err))?;
    let Some(stdout) = child.stdout.take() else { return Err(internal("has no output".to_owned())) };
    let answered = async {
        let mut written = Vec::new();
        let read = stdout.take(LARGEST + 1).read_to_end(&mut written).await;
        if written.len() as u64 > LARGEST {
            return Err(internal(format!("wrote more than {LARGEST} bytes")));
        }
        read.map_err(|err| internal(err.to_string()))?;
        let status = child.wait().await.map_err(|err| internal(err.to_string()))?;
        if status.success() {
            return Ok(written);
        }
        let code = status.code().unwrap_or(-1);
        Err(Failed { status: "plugin_execution_error", code, why: format!("ended with {status}") })
    };
    match tokio::time::timeout(PATIENCE, answered).await {
        Ok(answered) => answered,
        Err(_) => Err(internal(format!("did not end within {PATIENCE:?}"))),
    }
}

fn not_started(invocation: &Invocation, err: &std::io::Error) -> Failed {
    let status = match err.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied => "plugin_not_found_error",
        _ => "client_internal_error",
    };
    let hint = if invocation.hint.is_empty() { String::new() } else { format!(" ({})", invocation.hint.trim()) };
    Failed { status, code: 1, why: format!("cannot be started: {err}{hint}") }
}
