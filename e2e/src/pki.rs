use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};

/// Keys and certificates of one control plane, as files.
#[derive(Debug)]
pub(crate) struct Pki {
    folder: PathBuf,
}

/// The user in kubeadm's controller-manager.conf.
pub(crate) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The name in kubeadm's certificate of the API server as a front proxy.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

impl Pki {
    /// Creates the files in `folder`: an authority, a serving certificate for loopback, a client certificate for the
    /// controller manager, a separate authority for front proxies with a client certificate, and the key that signs
    /// service-account tokens.
    pub(crate) fn create(folder: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let pki = Self { folder };
        let authority = pki.authority("ca.crt", "e2e")?;
        let proxies = pki.authority("front-proxy-ca.crt", "e2e-front-proxy")?;
        pki.issue(&proxies, "front-proxy-client", FRONT_PROXY, Vec::new())?;

        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned);
        pki.issue(&authority, "server", "kube-apiserver", names.to_vec())?;
        pki.issue(&authority, "controller-manager", CONTROLLER_MANAGER, Vec::new())?;
        let tokens = KeyPair::generate()?;
        pki.write("sa.key", &tokens.serialize_pem())?;
        pki.write("sa.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn authority(&self, file: &str, name: &str) -> anyhow::Result<Issuer<'static, KeyPair>> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = common_name(name);
        self.write(file, &params.self_signed(&key)?.pem())?;
        Ok(Issuer::new(params, key))
    }

    fn issue(&self, authority: &Issuer<'_, KeyPair>, file: &str, name: &str, hosts: Vec<String>) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = common_name(name);
        params.use_authority_key_identifier_extension = true;
        self.write(&format!("{file}.crt"), &params.signed_by(&key, authority)?.pem())?;
        self.write(&format!("{file}.key"), &key.serialize_pem())
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.file(name), text)?)
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
