use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use http::Method;

use crate::{Identity, Process, Rest, Signal, Site, assets::GO_MANAGER, eventually, free_port};

/// Long enough for the upstream manager on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Which manager to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Our own binary.
    Ours,
    /// `kube-controller-manager` from the assets.
    Go,
}

impl Flavour {
    /// The one in `E2E_MANAGER`: `go`, or ours by default.
    #[must_use]
    pub fn from_environment() -> Self {
        if std::env::var("E2E_MANAGER").is_ok_and(|it| it == "go") { Self::Go } else { Self::Ours }
    }
}

/// The parameters of a manager.
#[derive(Debug, Clone)]
pub struct Launch {
    flavour: Flavour,
    program: PathBuf,
    folder: PathBuf,
    flags: BTreeMap<String, String>,
}

impl Launch {
    /// Only the namespace controller, as admin, serving on a free port, with a lease of its own.
    ///
    /// # Errors
    /// If there is no such manager.
    pub fn new(site: &Site, flavour: Flavour) -> anyhow::Result<Self> {
        static LEASES: AtomicUsize = AtomicUsize::new(0);
        let number = LEASES.fetch_add(1, Ordering::Relaxed);
        let program = match flavour {
            Flavour::Ours if site.is_real() => binary(Build::Release)?.to_owned(),
            Flavour::Ours => binary(Build::Debug)?.to_owned(),
            Flavour::Go => site.assets()?.binary(GO_MANAGER).context("no kube-controller-manager")?,
        };
        let mut flags = BTreeMap::new();
        if flavour == Flavour::Go {
            flags.insert("cert-dir".to_owned(), site.folder().join(format!("go-{number}")).display().to_string());
            flags.insert("use-service-account-credentials".to_owned(), "false".to_owned());
        }
        if flavour == Flavour::Ours {
            // Scenarios hand a Lease from one flavour to the other, and no pod shows which controllers these run.
            flags.insert("partial-takeover".to_owned(), "true".to_owned());
        }
        let launch = Self { flavour, program, folder: site.folder().to_owned(), flags };
        Ok(launch
            .kubeconfig(&site.kubeconfig(Identity::Admin)?)
            .flag("controllers", "namespace-controller")
            .flag("bind-address", "127.0.0.1")
            // Most scenarios do not test authorization.
            .flag("authorization-always-allow-paths", "/*")
            .flag("leader-elect-resource-name", &format!("e2e-{number}"))
            .flag("v", "2"))
    }

    /// As kubeadm starts it: with its own user, and each controller with its account and upstream's own role. `lock` is
    /// the name of its Lease, whose times are long: a server that does not answer for seconds must not end the term.
    ///
    /// # Errors
    /// If there is no such manager.
    pub fn as_kubeadm(site: &Site, flavour: Flavour, controllers: &str, lock: &str) -> anyhow::Result<Self> {
        Ok(Self::new(site, flavour)?
            .kubeconfig(&site.kubeconfig(Identity::ControllerManager)?)
            .flag("use-service-account-credentials", "true")
            .flag("controllers", controllers)
            .flag("leader-elect-resource-name", lock)
            .flag("kube-api-qps", "200")
            .flag("kube-api-burst", "400")
            .lease(60_000, 50_000, 2_000))
    }

    /// Sets short times of the Lease, for managers that follow each other.
    #[must_use]
    pub fn short_lease(self) -> Self {
        self.lease(8_000, 6_000, 1_000)
    }

    /// Sets a flag (given without dashes), replacing its earlier value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Uses another kubeconfig.
    #[must_use]
    pub fn kubeconfig(self, path: &Path) -> Self {
        self.flag("kubeconfig", &path.display().to_string())
    }

    /// Lease duration, renew deadline and retry period, in milliseconds.
    #[must_use]
    pub fn lease(self, duration: u32, deadline: u32, retry: u32) -> Self {
        self.flag("leader-elect-lease-duration", &format!("{duration}ms"))
            .flag("leader-elect-renew-deadline", &format!("{deadline}ms"))
            .flag("leader-elect-retry-period", &format!("{retry}ms"))
    }

    /// Starts it without waiting.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut self) -> anyhow::Result<Manager> {
        static LOGS: AtomicUsize = AtomicUsize::new(0);
        let port = match self.flags.get("secure-port") {
            Some(port) => port.parse()?,
            None => free_port()?,
        };
        self.flags.insert("secure-port".to_owned(), port.to_string());
        let name = match self.flavour {
            Flavour::Ours => "mini-kcm",
            Flavour::Go => GO_MANAGER,
        };
        let log = self.folder.join(format!("{name}-{}.log", LOGS.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(&self.program);
        command.args(self.flags.iter().map(|(name, value)| format!("--{name}={value}")));
        let process = Process::start(name, &mut command, log)?;
        Ok(Manager { process, port, flavour: self.flavour })
    }

    /// Starts it and waits until `/healthz` returns ok.
    ///
    /// # Errors
    /// If it exits instead.
    pub async fn started(self) -> anyhow::Result<Manager> {
        let mut manager = self.start()?;
        manager.wait_until_healthy().await?;
        Ok(manager)
    }

    /// Starts it as a standby; then the leader stops in the middle of its work.
    ///
    /// # Errors
    /// If it does not start, or the leader does not stop within `within`.
    pub async fn take_over_from(self, leader: &mut Manager, within: Duration) -> anyhow::Result<Manager> {
        let successor = self.started().await?;
        leader.signal(Signal::TERM)?;
        leader.exit(within).await?;
        Ok(successor)
    }
}

/// A running manager. It is killed on drop, and its log is printed when a scenario fails.
#[derive(Debug)]
pub struct Manager {
    process: Process,
    port: u16,
    flavour: Flavour,
}

impl Manager {
    /// Which manager it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The port on which it serves.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client for its own endpoints.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn endpoints(&self) -> anyhow::Result<Rest> {
        Rest::unverified(self.port)
    }

    /// The sum of a metric over all series whose labels contain all these words; `None` if there are none.
    ///
    /// # Errors
    /// If the page of metrics cannot be read.
    pub async fn metric(&self, family: &str, words: &[&str]) -> anyhow::Result<Option<f64>> {
        let page = self.endpoints()?.send(Method::GET, "/metrics", None).await?;
        anyhow::ensure!(page.code == 200, "{} {}", page.code, page.text);
        let of_family = |line: &&str| line.strip_prefix(family).is_some_and(|it| it.starts_with(['{', ' ']));
        let lines = page.text.lines().filter(of_family).filter(|line| words.iter().all(|it| line.contains(it)));
        let values: Vec<f64> = lines.filter_map(|it| it.rsplit_once(' ')?.1.parse().ok()).collect();
        Ok((!values.is_empty()).then(|| values.iter().sum()))
    }

    /// Waits until `/healthz` returns ok.
    ///
    /// # Errors
    /// If it exits instead.
    pub async fn wait_until_healthy(&mut self) -> anyhow::Result<()> {
        self.wait_until_ok("/healthz").await
    }

    /// Waits until an endpoint returns ok.
    ///
    /// # Errors
    /// If the process exits instead, or the time is over.
    pub async fn wait_until_ok(&mut self, path: &str) -> anyhow::Result<()> {
        let endpoints = self.endpoints()?;
        eventually(&format!("the manager's {path}"), START, async || {
            if let Some(status) = self.process.status()? {
                return Ok(Some(Err(anyhow::anyhow!("the manager ended with {status}:\n{}", self.process.log()?))));
            }
            let answer = endpoints.send(Method::GET, path, None).await?;
            anyhow::ensure!(answer.code == 200, "{} {}", answer.code, answer.text);
            Ok(Some(Ok(())))
        })
        .await?
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        self.process.signal(signal)
    }

    /// Its exit status, if it has exited.
    ///
    /// # Errors
    /// If the status cannot be read.
    pub fn status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.process.status()
    }

    /// Waits for its exit and returns the exit code; `None` after a fatal signal.
    ///
    /// # Errors
    /// If it still runs after `within`.
    pub async fn exit(&mut self, within: Duration) -> anyhow::Result<Option<i32>> {
        Ok(self.process.exit(within).await?.code())
    }

    /// Everything it has logged so far.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        self.process.log()
    }

    /// Prints the end of its log.
    pub fn show_log(&self) {
        self.process.show_log();
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_log();
        }
    }
}

/// How our binary is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// Builds within a minute or two: for scenarios that measure nothing, and for a machine without a real control
    /// plane.
    Debug,
    /// As it is released: for measurements on a real API server.
    Release,
}

/// The path of our binary: `MINI_KCM`, or `MINI_KCM_RELEASE` for measurements, or the result of a cargo build, once for
/// each run of a test binary.
///
/// # Errors
/// If it does not build; the message has the output of the compiler.
pub fn binary(build: Build) -> anyhow::Result<&'static Path> {
    static DEBUG: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static RELEASE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let given = || std::env::var_os("MINI_KCM");
    let (once, given) = match build {
        Build::Debug => (&DEBUG, given()),
        Build::Release => (&RELEASE, std::env::var_os("MINI_KCM_RELEASE").or_else(given)),
    };
    let found = once.get_or_init(|| match given {
        Some(path) => Ok(PathBuf::from(path)),
        None => cargo_build("mini-kcm", build).map_err(|err| format!("{err:#}")),
    });
    match found {
        Ok(path) => Ok(path),
        Err(why) => bail!("no mini-kcm: {why}"),
    }
}

/// Builds a package and returns the path of its program.
///
/// In the development profile everything is built together, with the same features as for `cargo test --workspace`. So
/// nothing is built twice.
pub(crate) fn cargo_build(package: &str, build: Build) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--message-format=json-render-diagnostics"]).args(match build {
        Build::Debug => vec!["--workspace", "--bins", "--tests"],
        Build::Release => vec!["--release", "-p", package],
    });
    // Cargo sets these for a test. ring's build script is run again when one of them changes, and then every crate that
    // uses TLS would be built again.
    let of_test =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "OUT_DIR";
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_test)) {
        command.env_remove(name);
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo build: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    // One JSON document per line. A test of the program's own code is an executable of the same name.
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = messages.filter(|it| it["target"]["name"] == package && it["profile"]["test"] == false);
    let program = programs.find_map(|it| it["executable"].as_str().map(PathBuf::from));
    program.context("cargo build reported no executable")
}
