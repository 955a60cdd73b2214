use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde_json::json;
use tempfile::{NamedTempFile, TempDir};

use crate::{Assets, Audit, Identity, Rest, pki::Pki};

/// The address of an API server, real or embedded, with its certificates in a temporary folder, which is removed on
/// drop.
#[derive(Debug)]
pub struct Site {
    port: u16,
    /// The binaries of a real control plane; `None` for the embedded server.
    assets: Option<&'static Assets>,
    /// The file with the authorities that clients trust.
    authorities: PathBuf,
    pki: Pki,
    folder: TempDir,
}

impl Site {
    /// A folder with certificates, for a server that will be started.
    ///
    /// # Errors
    /// If they cannot be created.
    pub fn new(assets: Option<&'static Assets>) -> anyhow::Result<Self> {
        let folder = temporary_folder()?;
        let pki = Pki::create(folder.path().join("pki"))?;
        Ok(Self { port: 0, assets, authorities: pki.file("ca.crt"), pki, folder })
    }

    /// Sets the port of the server.
    pub fn set_port(&mut self, port: u16) {
        self.port = port;
    }

    /// Sets the authority of the server's certificate.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set_authority(&mut self, authority: &str) -> anyhow::Result<()> {
        let both = std::fs::read_to_string(self.pki.file("ca.crt"))? + authority;
        self.authorities = self.pki.file("authorities.crt");
        Ok(std::fs::write(&self.authorities, both)?)
    }

    /// True if the API server is a real one.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.assets.is_some()
    }

    /// The binaries in use.
    ///
    /// # Errors
    /// If the server is the embedded one.
    pub fn assets(&self) -> anyhow::Result<&'static Assets> {
        self.assets.context("the embedded server has no binaries")
    }

    /// The folder of all files; scenarios may add files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The API server's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// One of the files created for this server: `ca.crt`, `server.crt`, `server.key` …
    #[must_use]
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.pki.file(name)
    }

    /// The folder of these files.
    #[must_use]
    pub fn certificates(&self) -> &Path {
        self.pki.folder()
    }

    /// The file with the authorities that clients of this server trust.
    #[must_use]
    pub fn authorities(&self) -> &Path {
        &self.authorities
    }

    /// A kubeconfig with the address of the API server.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig(&self, identity: Identity) -> anyhow::Result<PathBuf> {
        self.kubeconfig_through(identity, self.port)
    }

    /// A kubeconfig with another port, on which a [`crate::Proxy`] or a [`crate::Gateway`] listens.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn kubeconfig_through(&self, identity: Identity, port: u16) -> anyhow::Result<PathBuf> {
        let user = match identity {
            Identity::Admin | Identity::Replica(_) => json!({ "token": identity.token() }),
            Identity::ControllerManager => json!({
                "client-certificate": self.pki.file("controller-manager.crt"),
                "client-key": self.pki.file("controller-manager.key"),
            }),
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "e2e", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority": self.authorities,
            }}],
            "users": [{ "name": "e2e", "user": user }],
            "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "e2e" } }],
            "current-context": "e2e",
        });
        let name = format!("{}-{port}.kubeconfig", identity.user().replace(':', "-"));
        let path = self.folder.path().join(name);
        // Written atomically, because scenarios that share a server may write the same file at once.
        let mut file = NamedTempFile::new_in(&self.folder)?;
        file.write_all(config.to_string().as_bytes())?;
        file.persist(&path)?;
        Ok(path)
    }

    /// A client as admin. It belongs to the runtime in which it was created.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used.
    pub async fn admin(&self) -> anyhow::Result<Rest> {
        Rest::from_kubeconfig(&self.kubeconfig(Identity::Admin)?).await
    }

    /// The audit log from its beginning.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::open(self.audit_log())
    }

    /// The file of the audit log.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }
}

/// In memory if possible, because etcd writes a lot.
fn temporary_folder() -> anyhow::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("mini-kcm-e2e-");
    Ok(builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())?)
}
