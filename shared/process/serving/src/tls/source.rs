use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::crypto::CryptoProvider;

use super::{
    Policy, SniPair,
    pair::{self, CertPair},
    sni::Certificates,
};
use crate::{ServeError, files::ReloadedFiles};

/// The source of the default certificate, for clients whose server name has no other certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// `--tls-cert-file` and `--tls-private-key-file`.
    Files {
        /// PEM of the certificate chain.
        certificate: PathBuf,
        /// PEM of its key.
        key: PathBuf,
    },
    /// `--cert-dir`: the pair is read from there. If it is missing, it is generated and written there.
    Folder {
        /// The folder; it is created if it is missing.
        folder: PathBuf,
        /// The name of both files, without `.crt` and `.key`.
        name: String,
    },
    /// Generated for this process, in memory only.
    Memory,
}

/// All serving certificates and their files.
pub(crate) struct CertificateSources {
    default: ReloadedPair,
    named: Vec<(Vec<String>, ReloadedPair)>,
}

struct ReloadedPair {
    /// `None` for a pair that is in memory only.
    files: Option<ReloadedFiles<CertPair>>,
    pair: CertPair,
}

impl CertificateSources {
    /// # Errors
    /// If a certificate cannot be used; the message names the flag and the file.
    pub(crate) async fn open(
        source: &CertificateSource,
        named: &[SniPair],
        address: IpAddr,
        policy: &Policy,
    ) -> Result<Self, ServeError> {
        let provider = Arc::new(policy.provider.clone());
        let default = match source {
            CertificateSource::Files { certificate, key } => {
                ReloadedPair::from_files("--tls-cert-file and --tls-private-key-file", certificate, key, &provider)
                    .await?
            }
            CertificateSource::Folder { folder, name } => {
                let (certificate, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
                if !(certificate.exists() && key.exists()) {
                    write(folder, (&certificate, &key), address)?;
                }
                ReloadedPair::from_files("--cert-dir", &certificate, &key, &provider).await?
            }
            CertificateSource::Memory => {
                let generated = pair::self_signed(address).map_err(|err| ServeError::Certificate(err.to_string()))?;
                let pair = pair::read(generated.certificate.as_bytes(), generated.key.as_bytes(), &provider);
                ReloadedPair { files: None, pair: pair.map_err(ServeError::Certificate)? }
            }
        };
        let mut sources = Self { default, named: Vec::new() };
        for SniPair { certificate, key, patterns } in named {
            let source = ReloadedPair::from_files("--tls-sni-cert-key", certificate, key, &provider).await?;
            sources.named.push((patterns.clone(), source));
        }
        Ok(sources)
    }

    pub(crate) fn certificates(&self) -> Certificates {
        let named: Vec<_> = self.named.iter().map(|(patterns, it)| (patterns.clone(), it.pair.clone())).collect();
        Certificates::new(self.default.pair.clone(), &named)
    }

    /// Reads the files again. Returns true if a certificate has changed.
    pub(crate) async fn refresh(&mut self) -> bool {
        let mut changed = self.default.refresh().await;
        for (_, source) in &mut self.named {
            changed |= source.refresh().await;
        }
        changed
    }
}

impl ReloadedPair {
    async fn from_files(
        flag: &'static str,
        certificate: &Path,
        key: &Path,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ServeError> {
        let provider = provider.clone();
        let read = move |contents: &[Vec<u8>]| match contents {
            [certificate, key] => pair::read(certificate, key, &provider),
            _ => Err("two files make a pair".to_owned()),
        };
        let paths = vec![certificate.to_owned(), key.to_owned()];
        let (files, pair) = ReloadedFiles::open(flag, paths, Box::new(read)).await?;
        Ok(Self { files: Some(files), pair })
    }

    async fn refresh(&mut self) -> bool {
        let Some(files) = &mut self.files else { return false };
        let Some(pair) = files.refresh().await else { return false };
        self.pair = pair;
        true
    }
}

/// Generates a pair and writes it to the files. Only the owner can read the key.
fn write(folder: &Path, (certificate, key): (&Path, &Path), address: IpAddr) -> Result<(), ServeError> {
    use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _};

    let generated = pair::self_signed(address).map_err(|err| ServeError::Certificate(err.to_string()))?;
    let failed =
        |path: &Path, err: io::Error| ServeError::File("--cert-dir", path.display().to_string(), err.to_string());
    fs::create_dir_all(folder).map_err(|err| failed(folder, err))?;
    let store = |path: &Path, mode: u32, text: &str| -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())
    };
    store(key, 0o600, &generated.key).map_err(|err| failed(key, err))?;
    store(certificate, 0o644, &generated.certificate).map_err(|err| failed(certificate, err))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    async fn open(source: &CertificateSource) -> Result<CertificateSources, ServeError> {
        CertificateSources::open(source, &[], HERE, &Policy::default()).await
    }

    #[tokio::test]
    async fn pair_in_the_folder_is_generated_once() {
        let folder = tempfile::tempdir().unwrap();
        let source =
            CertificateSource::Folder { folder: folder.path().join("new"), name: "kube-controller-manager".to_owned() };
        let first = open(&source).await.unwrap();
        let again = open(&source).await.unwrap();
        assert_eq!(first.default.pair.cert, again.default.pair.cert);
        let key = folder.path().join("new/kube-controller-manager.key");
        assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn missing_file_is_an_error_with_its_flag() {
        let source = CertificateSource::Files { certificate: "/gone.crt".into(), key: "/gone.key".into() };
        let err = open(&source).await.err().unwrap().to_string();
        assert!(err.contains("--tls-cert-file") && err.contains("/gone.crt"), "{err}");
    }

    #[tokio::test]
    async fn acceptance_shell_018_complete_new_pair_is_loaded_and_half_written_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
        write(folder.path(), (&certificate, &key), HERE).unwrap();
        let mut sources =
            open(&CertificateSource::Files { certificate: certificate.clone(), key: key.clone() }).await.unwrap();
        let first = sources.certificates().default.cert.clone();
        assert!(!sources.refresh().await, "nothing has changed");

        let other = pair::self_signed(HERE).unwrap();
        std::fs::write(&certificate, &other.certificate).unwrap();
        assert!(!sources.refresh().await, "the key still belongs to the old certificate");
        assert_eq!(sources.certificates().default.cert, first);
        std::fs::remove_file(&key).unwrap();
        assert!(!sources.refresh().await, "there is no key at all");
        std::fs::write(&key, &other.key).unwrap();
        assert!(sources.refresh().await);
        assert_ne!(sources.certificates().default.cert, first);
    }
}
