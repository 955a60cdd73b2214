use std::{
    fs::File,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::Context;
use clock::Clock;

pub use rustix::process::Signal;

use crate::{eventually, report};

/// How many lines of a log are printed when a scenario fails.
const TAIL_LINES: usize = 60;

/// A child process that does not outlive ours, with its log in a file.
///
/// Dropping it kills the child. If our own process is killed, a guard process kills the child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
    _guard: Guard,
}

impl Process {
    /// Starts `command`; stdout and stderr go to `log`.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(name: &str, command: &mut Command, log: PathBuf) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("log {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}: {command:?}"))?;
        let guard = Guard::new("kill -9 \"$1\"", &child.id().to_string()).inspect_err(|_| {
            // It does not matter if it has exited already.
            let _ = child.kill();
        })?;
        Ok(Self { name: name.to_owned(), child, log, ended: None, _guard: guard })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. Has no effect after the process has exited.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if self.status()?.is_none() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)?;
        }
        Ok(())
    }

    /// The exit status, if the process has exited.
    ///
    /// # Errors
    /// If the status cannot be read.
    pub fn status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Waits for the exit of the process.
    ///
    /// # Errors
    /// If it still runs after `within`.
    pub async fn exit(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} to exit", self.name);
        eventually(&what, within, async || self.status()).await
    }

    /// Kills the process and waits for its exit.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if self.status()?.is_none() {
            self.child.kill()?;
            self.ended = Some(self.child.wait()?);
        }
        Ok(())
    }

    /// Everything it has logged so far.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    /// Prints the end of the log.
    pub fn show_log(&self) {
        show_tail(&self.name, &self.log);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If the child cannot be killed, nothing else can be done.
        let _ = self.kill();
    }
}

/// Prints the end of a log to the real stderr.
fn show_tail(name: &str, log: &Path) {
    let Ok(bytes) = std::fs::read(log) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    report(&format!("---- the last lines of {name} ({})", log.display()));
    for line in &lines[from..] {
        report(line);
    }
    report(&format!("---- end of {name}"));
}

/// Runs a shell script when our process has ended in any way, because the pipe to the shell's stdin closes then.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    pub(crate) fn new(script: &str, argument: &str) -> anyhow::Result<Self> {
        let script = format!("trap '' INT TERM HUP; read -r _; {script}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "guard", argument]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot start sh")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed, so that the script does not run: the owner has cleaned up itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The host name in lower case: with kubeadm the name of the node, and the first part of a Go manager's identity. Empty
/// if the kernel does not show it.
#[must_use]
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_ascii_lowercase()
}

/// A free loopback port. It is below the ports of outgoing connections (`ip_local_port_range`), and each call returns
/// another one, so nothing in this process takes it before it is used.
///
/// # Errors
/// If there is none.
pub fn free_port() -> anyhow::Result<u16> {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Another process begins elsewhere.
    let begin = std::process::id().wrapping_mul(64);
    for _ in 0..COUNT {
        let offset = begin.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port from {FIRST} on is free")
}

/// Waits until something accepts connections on a loopback port; `alive` is called meanwhile.
pub(crate) async fn wait_until_listening(
    port: u16,
    within: Duration,
    mut alive: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let clock = Clock::system();
    let deadline = clock.now() + within;
    while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        alive()?;
        anyhow::ensure!(clock.now() < deadline, "nothing listens on port {port} after {within:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn process_returns_its_exit_code_and_keeps_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo to stdout; echo to stderr >&2; exit 3"]);
        let mut process = Process::start("sh", &mut command, folder.path().join("log")).unwrap();
        let status = process.exit(Duration::from_secs(10)).await.unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(process.log().unwrap(), "to stdout\nto stderr\n");
    }

    #[tokio::test]
    async fn dropped_process_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start("sleep", Command::new("sleep").arg("1000"), folder.path().join("log")).unwrap();
        let pid = process.pid();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[tokio::test]
    async fn guard_runs_when_its_owner_is_killed_and_not_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (left, dropped) = (folder.path().join("left"), folder.path().join("dropped"));
        let mut guard = Guard::new("touch \"$1\"", left.to_str().unwrap()).unwrap();
        drop(guard.0.stdin.take());
        guard.0.wait().unwrap();
        drop(Guard::new("touch \"$1\"", dropped.to_str().unwrap()).unwrap());
        assert!(left.exists() && !dropped.exists());
    }
}
