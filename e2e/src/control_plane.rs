use std::{ops::Deref, path::Path, process::Command, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::{
    Assets, Process, Site, eventually, free_port,
    process::{Guard, wait_until_listening},
};

/// Long enough for a machine that compiles at the same time.
const START: Duration = Duration::from_secs(60);

/// Another process may take the port before the server starts, so the start is repeated.
const ATTEMPTS: u32 = 3;

const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
"omitStages": ["RequestReceived", "ResponseStarted"], "rules": [
{"level": "Request", "verbs": ["create", "update", "patch"], "resources": [
  {"group": "coordination.k8s.io", "resources": ["leases"]},
  {"group": "", "resources": ["namespaces/status", "namespaces/finalize"]}]},
{"level": "Metadata"}]}"#;

/// The parameters of a control plane.
#[derive(Debug, Default)]
pub struct Options {
    /// Additional flags of kube-apiserver.
    pub apiserver_flags: Vec<String>,
    /// Writes an audit log: metadata of every call, and the bodies of writes to Leases and to the status and finalizers
    /// of namespaces.
    pub audit: bool,
}

/// The identity of a client of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The scenario itself, with a token.
    Admin,
    /// One of several replicas, each with its own token and name (0 to 3), so that the audit log distinguishes them.
    Replica(u8),
    /// As in kubeadm's controller-manager.conf: a client certificate.
    ControllerManager,
}

/// The names of [`Identity::Replica`].
const REPLICAS: [&str; 4] = ["replica-0", "replica-1", "replica-2", "replica-3"];

impl Identity {
    /// The user name in the audit log.
    #[must_use]
    pub fn user(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Replica(number) => REPLICAS[usize::from(number) % REPLICAS.len()],
            Self::ControllerManager => crate::pki::CONTROLLER_MANAGER,
        }
    }

    /// The token.
    #[must_use]
    pub fn token(self) -> String {
        format!("token-of-{}", self.user())
    }

    /// The user of a token, for a server that accepts every token.
    #[must_use]
    pub fn user_of(token: &str) -> &str {
        token.strip_prefix("token-of-").unwrap_or_default()
    }
}

/// A real etcd and a real kube-apiserver on loopback, with a temporary folder. Dropping it stops and removes them.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: the processes before the folder that they write to.
    apiserver: Option<Process>,
    _etcd: Process,
    etcd_port: u16,
    options: Options,
    assets: &'static Assets,
    _guard: Guard,
    site: Site,
}

impl Deref for ControlPlane {
    type Target = Site;
    fn deref(&self) -> &Site {
        &self.site
    }
}

impl ControlPlane {
    /// Starts both and waits until the API server is ready.
    ///
    /// # Errors
    /// If one of them does not start; the message has the end of its log.
    pub async fn start(assets: &'static Assets, options: Options) -> anyhow::Result<Self> {
        let mut site = Site::new(Some(assets))?;
        // Removes the folder if our process is killed, after the guards of the processes have stopped them.
        let guard = Guard::new("sleep 1; rm -rf -- \"$1\"", &site.folder().display().to_string())?;
        let (etcd, etcd_port) = start_etcd(assets, site.folder()).await?;
        site.set_port(free_port()?);
        let mut plane = Self { apiserver: None, _etcd: etcd, etcd_port, options, assets, _guard: guard, site };
        plane.write_files()?;
        for attempt in 1.. {
            match plane.start_apiserver().await {
                Err(err) if attempt < ATTEMPTS && format!("{err:#}").contains("address already in use") => {
                    plane.site.set_port(free_port()?);
                }
                started => {
                    started?;
                    break;
                }
            }
        }
        Ok(plane)
    }

    /// Kills the API server; etcd continues.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn stop_apiserver(&mut self) -> anyhow::Result<()> {
        self.apiserver.take().map_or(Ok(()), |mut it| it.kill())
    }

    /// Starts the API server (again) on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start; the message has the end of its log.
    pub async fn start_apiserver(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(self.assets.folder().join("kube-apiserver"));
        command.args(self.apiserver_flags());
        let log = self.site.folder().join("kube-apiserver.log");
        let process = self.apiserver.insert(Process::start("kube-apiserver", &mut command, log)?);
        wait_until_listening(self.site.port(), START, || check_running(process)).await?;
        let admin = self.site.admin().await?;
        let Some(process) = &mut self.apiserver else { bail!("no API server") };
        let ready = eventually("the API server to be ready", START, async || {
            if let Err(ended) = check_running(process) {
                return Ok(Some(Err(ended)));
            }
            let answer = admin.send(http::Method::GET, "/readyz", None).await?;
            anyhow::ensure!(answer.code == 200, "{}", answer.text);
            // Scenarios need these two namespaces, which the API server creates last.
            let (default, system) = ("/api/v1/namespaces/default", "/api/v1/namespaces/kube-system");
            Ok((admin.find(default).await?.is_some() && admin.find(system).await?.is_some()).then_some(Ok(())))
        });
        ready.await.flatten().inspect_err(|_| {
            if let Some(process) = &self.apiserver {
                process.show_log();
            }
        })
    }

    /// Compacts the whole history of etcd, so that clients with an older version get a 410.
    ///
    /// # Errors
    /// If etcd refuses.
    pub async fn compact(&self) -> anyhow::Result<()> {
        // `AA==` is a key of one zero byte, which does not exist.
        let answer = self.etcd("/v3/kv/range", &json!({ "key": "AA==" })).await?;
        let revision = answer["header"]["revision"].as_str().context("the response of etcd has no revision")?;
        self.etcd("/v3/kv/compaction", &json!({ "revision": revision, "physical": true })).await?;
        Ok(())
    }

    /// One call to etcd's JSON gateway.
    async fn etcd(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let socket = tokio::net::TcpStream::connect(("127.0.0.1", self.etcd_port)).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let request = Request::post(path)
            .header(header::HOST, "127.0.0.1")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        // The sender is dropped with the response, which ends the connection.
        let exchange = async move {
            let answer = sender.send_request(request).await?;
            let code = answer.status();
            anyhow::Ok((code, answer.into_body().collect().await?.to_bytes()))
        };
        let (exchange, _) = futures::join!(exchange, async {
            // An error of the connection also ends the exchange, which reports it.
            let _ = connection.await;
        });
        let (code, bytes) = exchange?;
        anyhow::ensure!(code.is_success(), "etcd {path}: {code} {}", String::from_utf8_lossy(&bytes));
        Ok(serde_json::from_slice(&bytes)?)
    }

    fn write_files(&self) -> anyhow::Result<()> {
        let mut tokens = String::new();
        let users = (0..REPLICAS.len()).filter_map(|it| u8::try_from(it).ok()).map(Identity::Replica);
        for identity in std::iter::once(Identity::Admin).chain(users) {
            let user = identity.user();
            tokens += &format!("{},{user},{user},system:masters\n", identity.token());
        }
        std::fs::write(self.site.folder().join("tokens.csv"), tokens)?;
        std::fs::write(self.site.folder().join("audit-policy.json"), AUDIT_POLICY)?;
        Ok(())
    }

    fn apiserver_flags(&self) -> Vec<String> {
        let file = |name: &str| self.site.folder().join(name).display().to_string();
        let pki = |name: &str| self.site.certificate(name).display().to_string();
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.site.port()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={}", pki("server.crt")),
            format!("--tls-private-key-file={}", pki("server.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            // Published in the ConfigMap extension-apiserver-authentication for servers that delegate authentication,
            // as in kubeadm.
            format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
            format!("--requestheader-allowed-names={}", crate::pki::FRONT_PROXY),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("sa.pub")),
            format!("--service-account-signing-key-file={}", pki("sa.key")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
            "--allow-privileged".to_owned(),
            // No controller creates service accounts here, and pods must not wait for them.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ];
        if self.options.audit {
            flags.push(format!("--audit-policy-file={}", file("audit-policy.json")));
            flags.push(format!("--audit-log-path={}", self.site.audit_log().display()));
            // In megabytes. The default of 100 is reached after eight minutes of load, and one file is read.
            flags.push("--audit-log-maxsize=4000".to_owned());
        }
        flags.extend(self.options.apiserver_flags.iter().cloned());
        flags
    }
}

async fn start_etcd(assets: &Assets, folder: &Path) -> anyhow::Result<(Process, u16)> {
    for attempt in 1.. {
        let (client, peer) = (free_port()?, free_port()?);
        let mut command = Command::new(assets.folder().join("etcd"));
        command.arg("--data-dir").arg(folder.join(format!("etcd-{attempt}")));
        command.arg(format!("--listen-client-urls=http://127.0.0.1:{client}"));
        command.arg(format!("--advertise-client-urls=http://127.0.0.1:{client}"));
        command.arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"));
        // No data has to survive a crash of the machine.
        command.args(["--unsafe-no-fsync", "--log-level=error"]);
        let mut process = Process::start("etcd", &mut command, folder.join("etcd.log"))?;
        match wait_until_listening(client, START, || check_running(&mut process)).await {
            Ok(()) => return Ok((process, client)),
            Err(err) if attempt >= ATTEMPTS => return Err(err),
            Err(_) => {}
        }
    }
    bail!("no attempt to start etcd")
}

fn check_running(process: &mut Process) -> anyhow::Result<()> {
    if let Some(status) = process.status()? {
        let log = process.log()?;
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        bail!("ended with {status}: {}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}
