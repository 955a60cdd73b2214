//! The in-cluster configuration, read as in client-go (`rest.InClusterConfig`).
//!
//! The implementation of kube is not used: it fails without the `namespace` file or without a certificate authority.

use std::{
    env::VarError,
    io,
    net::Ipv6Addr,
    path::{Path, PathBuf},
};

use http::uri::InvalidUri;

use crate::{ConfigError, pools::credentials};

const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Why the in-cluster configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InClusterError {
    /// A variable that every pod has is not set.
    #[error("{0} is not set")]
    NoPod(&'static str),
    /// The token cannot be read.
    #[error("token file {}: {source}", path.display())]
    Token {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Neither the certificate authority of the pod nor those of the system can be used.
    #[error("certificate authority {}: {reason}; the system's authorities cannot be used either: {system}", path.display())]
    Authority {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        reason: String,
        /// The error of the system's authorities.
        system: String,
    },
    /// Host and port do not form an address.
    #[error("{HOST} and {PORT}: {0}")]
    Address(#[source] InvalidUri),
}

/// The configuration of this pod.
///
/// # Errors
/// When this is no pod, its token cannot be read, or there is no certificate authority to trust.
pub(crate) fn load() -> Result<kube::Config, InClusterError> {
    read(std::env::var, Path::new(FOLDER), |config| credentials::build(config).map(drop))
}

fn read(
    variable: impl Fn(&'static str) -> Result<String, VarError>,
    folder: &Path,
    try_authority: impl Fn(&kube::Config) -> Result<(), ConfigError>,
) -> Result<kube::Config, InClusterError> {
    let value = |name| variable(name).ok().filter(|it| !it.is_empty()).ok_or(InClusterError::NoPod(name));
    let (host, port) = (value(HOST)?, value(PORT)?);
    let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
    let server = format!("https://{host}:{port}").parse().map_err(InClusterError::Address)?;
    let token = folder.join("token");
    std::fs::read(&token).map_err(|source| InClusterError::Token { path: token.clone(), source })?;
    let mut config = kube::Config::new(server);
    config.auth_info.token_file = Some(token.display().to_string());
    let path = folder.join("ca.crt");
    config.root_cert_file = Some(path.clone());
    if let Err(err) = try_authority(&config) {
        config.root_cert_file = None;
        try_authority(&config).map_err(|system| InClusterError::Authority {
            path: path.clone(),
            reason: err.to_string(),
            system: system.to_string(),
        })?;
        tracing::warn!(%err, "Cannot use the authority {}: the system's authorities are trusted", path.display());
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        variable: impl Fn(&'static str) -> Result<String, VarError>,
        folder: &Path,
    ) -> Result<kube::Config, InClusterError> {
        super::read(variable, folder, |config| credentials::build(config).map(drop))
    }

    fn pod(name: &str) -> Result<String, VarError> {
        Ok(if name == HOST { "10.0.0.1" } else { "6443" }.to_owned())
    }

    #[test]
    fn pod_without_a_namespace_file_has_a_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let [token, authority] = ["token", "ca.crt"].map(|it| folder.path().join(it));
        std::fs::write(&token, "t").unwrap();
        let certificate = rcgen::generate_simple_self_signed(vec!["kubernetes".to_owned()]).unwrap().cert;
        std::fs::write(&authority, certificate.pem()).unwrap();
        let config = read(pod, folder.path()).unwrap();
        assert_eq!(config.cluster_url, "https://10.0.0.1:6443/");
        assert_eq!(config.auth_info.token_file, Some(token.display().to_string()));
        assert_eq!(config.root_cert_file, Some(authority));
    }

    #[test]
    fn pod_without_a_usable_authority_trusts_the_systems() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "t").unwrap();
        assert_eq!(read(pod, folder.path()).unwrap().root_cert_file, None, "no file");
        std::fs::write(folder.path().join("ca.crt"), "no certificate").unwrap();
        assert_eq!(read(pod, folder.path()).unwrap().root_cert_file, None, "no PEM");
    }

    #[test]
    fn pod_without_any_usable_authority_names_its_own() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "t").unwrap();
        let no_roots = |config: &kube::Config| match config.root_cert_file {
            Some(_) => credentials::build(config).map(drop),
            None => Err(ConfigError::Tls("no roots".to_owned())),
        };
        let err = super::read(pod, folder.path(), no_roots).unwrap_err();
        assert!(matches!(err, InClusterError::Authority { .. }), "{err}");
        let (text, path) = (err.to_string(), folder.path().join("ca.crt"));
        assert!(text.contains(&*path.to_string_lossy()) && text.contains("no roots"), "{text}");
    }

    #[test]
    fn pod_without_a_token_is_broken_and_a_process_without_the_variables_is_no_pod() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(pod, folder.path()), Err(InClusterError::Token { .. })));
        for (missing, value) in [(HOST, Err(VarError::NotPresent)), (PORT, Ok(String::new()))] {
            let some = |name| if name == missing { value.clone() } else { pod(name) };
            assert!(matches!(read(some, folder.path()), Err(InClusterError::NoPod(name)) if name == missing));
        }
    }

    #[test]
    fn address_of_ipv6_gets_brackets() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "t").unwrap();
        let six = |name| if name == HOST { Ok("fd00::1".to_owned()) } else { pod(name) };
        assert_eq!(read(six, folder.path()).unwrap().cluster_url, "https://[fd00::1]:6443/");
    }
}
