use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use api::uri;
use http::Method;
use serde_json::{Value, json};

use crate::{Process, Rest, eventually, free_port, report};

/// Long enough for a machine that compiles at the same time.
const START: Duration = Duration::from_secs(60);

/// The programs of Debian's package `prometheus`.
#[derive(Debug, Clone)]
pub struct Programs {
    prometheus: PathBuf,
    promtool: PathBuf,
}

/// The program in `PROMETHEUS` or in the path, with `promtool` in the same folder; or `None` after printing that
/// `scenario` does not run.
///
/// # Panics
/// If there is none and `MINI_KCM_E2E` is `required`.
#[must_use]
pub fn prometheus_or_skip(scenario: &str) -> Option<Programs> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::var_os("PROMETHEUS").map(PathBuf::from);
    let found = named.or_else(|| std::env::split_paths(&path).map(|it| it.join("prometheus")).find(|it| it.is_file()));
    let programs = found.map(|prometheus| Programs { promtool: prometheus.with_file_name("promtool"), prometheus });
    if programs.is_none() {
        let required = std::env::var("MINI_KCM_E2E").is_ok_and(|it| it == "required");
        assert!(!required, "{scenario}: MINI_KCM_E2E=required, but there is no prometheus");
        report(&format!("NOT RUN with a real Prometheus: {scenario}: no prometheus in PROMETHEUS or PATH"));
    }
    programs
}

impl Programs {
    /// The findings of `promtool check metrics` for a page; empty if there are none.
    ///
    /// # Errors
    /// If it does not run, or the page is invalid.
    pub fn check(&self, page: &str) -> anyhow::Result<String> {
        let mut command = Command::new(&self.promtool);
        command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.promtool.display()))?;
        child.stdin.take().context("no stdin")?.write_all(page.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
        // Exit code 3 means that there are findings.
        ensure!(matches!(output.status.code(), Some(0 | 3)), "promtool: {} {said}", output.status);
        Ok(said)
    }
}

/// The target of Prometheus, and its token.
#[derive(Debug)]
pub struct Scrape<'a> {
    /// A manager's port.
    pub port: u16,
    /// The token of a ServiceAccount.
    pub token: &'a str,
    /// The file with alerting rules.
    pub rules: &'a Path,
}

/// A real Prometheus on loopback; stopped on drop.
pub struct Prometheus {
    process: Process,
    rest: Rest,
}

impl Prometheus {
    /// Starts it, with all its files in `folder`, and waits until it is ready. It scrapes every second: `/metrics` as
    /// job `kube-controller-manager`, `/metrics/slis` as `kube-controller-manager-slis`.
    ///
    /// # Errors
    /// If it does not start; the message has its log.
    pub async fn start(programs: &Programs, folder: &Path, scrape: Scrape<'_>) -> anyhow::Result<Self> {
        let Scrape { port, token, rules } = scrape;
        let (config, token_file) = (folder.join("prometheus.yml"), folder.join("prometheus-token"));
        std::fs::write(&token_file, token)?;
        let job = |name: &str, path: &str| {
            json!({
                "job_name": name, "metrics_path": path, "scheme": "https",
                "authorization": { "credentials_file": token_file },
                "tls_config": { "insecure_skip_verify": true },
                "static_configs": [{ "targets": [format!("127.0.0.1:{port}")], "labels": { "cluster": "e2e" } }],
            })
        };
        // JSON is valid YAML.
        let settings = json!({
            "global": { "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": [
                job("kube-controller-manager", "/metrics"),
                job("kube-controller-manager-slis", "/metrics/slis"),
            ],
        });
        std::fs::write(&config, settings.to_string())?;
        let listen = free_port()?;
        let mut command = Command::new(&programs.prometheus);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{listen}"));
        let mut process = Process::start("prometheus", &mut command, folder.join("prometheus.log"))?;
        let rest = Rest::plain(listen)?;
        eventually("Prometheus to be ready", START, async || {
            if let Some(status) = process.status()? {
                return Ok(Some(Err(anyhow::anyhow!("ended with {status}: {}", process.log()?))));
            }
            let answer = rest.send(Method::GET, "/-/ready", None).await?;
            ensure!(answer.code == 200, "{} {}", answer.code, answer.text);
            Ok(Some(Ok(())))
        })
        .await??;
        Ok(Self { process, rest })
    }

    /// The present values of a query, one for each series.
    ///
    /// # Errors
    /// If Prometheus refuses the query.
    pub async fn query(&self, query: &str) -> anyhow::Result<Vec<f64>> {
        let data = self.data(&format!("/api/v1/query?query={}", uri::value(query))).await?;
        let series = data["result"].as_array().context("no vector")?;
        let values = series.iter().map(|it| it["value"][1].as_str().and_then(|it| it.parse().ok()));
        values.collect::<Option<_>>().with_context(|| data.to_string())
    }

    /// All alerting rules: name, health and state.
    ///
    /// # Errors
    /// If Prometheus does not return them.
    pub async fn alerts(&self) -> anyhow::Result<Vec<[String; 3]>> {
        let data = self.data("/api/v1/rules?type=alert").await?;
        let groups = data["groups"].as_array().context("no groups")?;
        let rules = groups.iter().flat_map(|it| it["rules"].as_array().into_iter().flatten());
        let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
        Ok(rules.map(|it| ["name", "health", "state"].map(|name| text(it, name))).collect())
    }

    /// Prints the end of its log.
    pub fn show_log(&self) {
        self.process.show_log();
    }

    async fn data(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.rest.send(Method::GET, path, None).await?;
        let mut answer = match answer.code {
            200 => answer.json(),
            code => bail!("Prometheus {path}: {code} {}", answer.text),
        };
        Ok(answer["data"].take())
    }
}
