use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context, bail};

use crate::{Process, Signal, eventually};

/// A running playground; killed on drop.
#[derive(Debug)]
pub struct Playground {
    process: Process,
}

impl Playground {
    /// Starts it. Its output goes to `log`; its temporary folder is in the same folder and so is removed with the
    /// test's.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn start(flags: &[&str], log: PathBuf) -> anyhow::Result<Self> {
        let mut command = Command::new(binary()?);
        command.args(flags).envs(log.parent().map(|it| ("TMPDIR", it)));
        Ok(Self { process: Process::start("playground", &mut command, log)? })
    }

    /// Its output so far.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn output(&self) -> anyhow::Result<String> {
        self.process.log()
    }

    /// Waits until its output contains `words`.
    ///
    /// # Errors
    /// If it exits before, or the time is over.
    pub async fn wait_for_output(&mut self, words: &str, within: Duration) -> anyhow::Result<()> {
        eventually(&format!("the playground to print {words:?}"), within, async || {
            let output = self.process.log()?;
            if output.contains(words) {
                return Ok(Some(Ok(())));
            }
            if let Some(status) = self.process.status()? {
                return Ok(Some(Err(anyhow::anyhow!("it ended with {status}:\n{output}"))));
            }
            bail!("its output is:\n{output}")
        })
        .await?
    }

    /// Sends the signal of Ctrl-C.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn interrupt(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::INT)
    }

    /// Waits for its exit.
    ///
    /// # Errors
    /// If it still runs after `within`; the message has its output.
    pub async fn exit(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let ended = self.process.exit(within).await;
        ended.with_context(|| self.process.log().unwrap_or_default())
    }
}

/// `PLAYGROUND`, or the result of a development build with cargo, once for each run of a test binary.
fn binary() -> anyhow::Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| match std::env::var_os("PLAYGROUND") {
        Some(path) => Ok(PathBuf::from(path)),
        None => {
            crate::manager::cargo_build("playground", crate::manager::Build::Debug).map_err(|err| format!("{err:#}"))
        }
    });
    match found {
        Ok(path) => Ok(path),
        Err(why) => bail!("no playground: {why}"),
    }
}
