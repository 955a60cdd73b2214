use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

use crate::{InClusterError, in_cluster, kubeconfig};

/// Why no connection to the API server can be configured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The kubeconfig, or a file that it references, cannot be used.
    #[error("--kubeconfig {}: {reason}", path.display())]
    Kubeconfig {
        /// The value of the flag.
        path: PathBuf,
        /// The field, and what is wrong with it. It contains no value of the file.
        reason: String,
    },
    /// The address is not the address of a server.
    #[error("--master {server:?}: {reason}")]
    Master {
        /// The value of the flag, as [`redacted`] returns it.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// No flag was given, and the process does not run in a pod.
    #[error(
        "neither --kubeconfig nor --master was given, and the in-cluster configuration (KUBERNETES_SERVICE_HOST, \
         KUBERNETES_SERVICE_PORT and /var/run/secrets/kubernetes.io/serviceaccount) cannot be used: {0}"
    )]
    InCluster(#[source] InClusterError),
    /// The address of the server, as [`redacted`] returns it, is not complete.
    #[error("server {0:?} is no http or https address with a host")]
    Server(String),
    /// The proxy for this host cannot be used.
    #[error("proxy-url {0:?}: only http, https and socks5 proxies are supported")]
    Proxy(String),
    /// A certificate, a key or a certificate authority cannot be used.
    #[error("client credentials: {0}")]
    Tls(String),
    /// The user to impersonate cannot be sent.
    #[error("client credentials: {0}")]
    Credentials(#[source] Box<kube::Error>),
    /// An auth provider, with the message of client-go. client-go supports none any more except OIDC, which a
    /// controller manager has never supported.
    #[error("client credentials: user.auth-provider: no Auth Provider found for name {0:?}")]
    Provider(String),
    /// The token or password contains bytes that are not allowed in a header.
    #[error(
        "client credentials: the token or password cannot be sent: it has a line break or another control character"
    )]
    Unsendable,
    /// The token file cannot be read.
    #[error("client credentials: token file {}: {source}", path.display())]
    TokenFile {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The description of the exec plugin is not complete.
    #[error("client credentials: user.exec.{field}: {reason}")]
    Exec {
        /// The field of `exec`.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// `tls-server-name`, or the host, is not a name that a certificate can contain.
    #[error("TLS server name {0:?} is not valid")]
    ServerName(String),
}

impl ConfigError {
    /// True if there is no configuration because this is no pod; false if the configuration of a pod is broken.
    #[must_use]
    pub fn is_no_pod(&self) -> bool {
        matches!(self, Self::InCluster(InClusterError::NoPod(_)))
    }
}

/// Loads the configuration from the flags: from a kubeconfig, from a server address, from both (the address wins), or
/// otherwise from the pod.
///
/// # Errors
/// The error names the flag and the file, or what was tried without flags.
pub fn load(kubeconfig: Option<&Path>, master: Option<&str>) -> Result<kube::Config, ConfigError> {
    let mut config = match (kubeconfig, master) {
        (Some(path), master) => from_kubeconfig(path, master)?,
        (None, Some(master)) => kube::Config::new(parse_server(master, "http")?),
        (None, None) => in_cluster::load().map_err(ConfigError::InCluster)?,
    };
    if config.proxy_url.is_none() {
        config.proxy_url = ProxyVariables::read().proxy_for(&config.cluster_url);
    }
    Ok(config)
}

fn from_kubeconfig(path: &Path, master: Option<&str>) -> Result<kube::Config, ConfigError> {
    let mut file = kubeconfig::read(path)?;
    if let Some(master) = master {
        let scheme = if needs_tls(&file) { "https" } else { "http" };
        let server = parse_server(master, scheme)?.to_string();
        for cluster in file.clusters.iter_mut().filter_map(|it| it.cluster.as_mut()) {
            cluster.server = Some(server.clone());
        }
    }
    let authority = current_authority(&file);
    // Kube adds the proxy of the environment and ignores NO_PROXY, so the proxy of the file is kept separately.
    let proxy = current_cluster(&file).and_then(|it| it.proxy_url.clone()).filter(|it| !it.is_empty());
    let mut config = kubeconfig::resolve(path, file)?;
    if proxy.is_none() {
        config.proxy_url = None;
    }
    config.root_cert_file = authority;
    Ok(config)
}

/// The cluster of the current context.
fn current_cluster(file: &Kubeconfig) -> Option<&kube::config::Cluster> {
    let context = file.contexts.iter().find(|it| Some(&it.name) == file.current_context.as_ref())?.context.as_ref()?;
    file.clusters.iter().find(|it| it.name == context.cluster)?.cluster.as_ref()
}

/// The file of the certificate authority, so that it can be read again after a renewal.
fn current_authority(file: &Kubeconfig) -> Option<PathBuf> {
    let cluster = current_cluster(file)?;
    let inline = cluster.certificate_authority_data.is_some();
    cluster.certificate_authority.as_ref().filter(|_| !inline).map(PathBuf::from)
}

/// True if a server without a scheme means TLS, by the rule of client-go.
fn needs_tls(file: &Kubeconfig) -> bool {
    current_cluster(file).is_some_and(|it| {
        it.certificate_authority.is_some()
            || it.certificate_authority_data.is_some()
            || it.insecure_skip_tls_verify == Some(true)
    }) || file
        .auth_infos
        .iter()
        .filter_map(|it| it.auth_info.as_ref())
        .any(|it| it.client_certificate.is_some() || it.client_certificate_data.is_some())
}

/// Parses an address as users write it: `host`, `host:port` or a URL.
fn parse_server(master: &str, scheme: &str) -> Result<Uri, ConfigError> {
    let refused = |reason: String| ConfigError::Master { server: redacted(master), reason };
    let complete = if master.contains("://") { master.to_owned() } else { format!("{scheme}://{master}") };
    let uri: Uri = complete.parse().map_err(|err: http::uri::InvalidUri| refused(err.to_string()))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|it| !it.is_empty()) => Ok(uri),
        _ => Err(refused("no http or https address with a host".to_owned())),
    }
}

/// An address without user and password, for messages. They are also removed if there is no scheme, or if they contain
/// a slash. From a text that is not an address, everything up to its last `@` is removed.
#[must_use]
pub fn redacted(address: &str) -> String {
    let is_scheme_letter = |it: char| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.');
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(is_scheme_letter) => (&address[..scheme.len() + 3], rest),
        _ => ("", address),
    };
    rest.rsplit_once('@').map_or_else(|| address.to_owned(), |(_, open)| format!("{scheme}CLASSIFIED@{open}"))
}

/// The proxy variables of the environment, with the rules of Go: chosen by the scheme of the server, never for
/// localhost.
#[derive(Default)]
struct ProxyVariables {
    https: String,
    http: String,
    no: String,
}

impl ProxyVariables {
    fn read() -> Self {
        let first = |names: [&str; 2]| {
            names.iter().filter_map(|it| std::env::var(it).ok()).find(|it| !it.is_empty()).unwrap_or_default()
        };
        Self {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["HTTP_PROXY", "http_proxy"]),
            no: first(["NO_PROXY", "no_proxy"]),
        }
    }

    fn proxy_for(&self, server: &Uri) -> Option<Uri> {
        let host = server.host()?.trim_matches(['[', ']']);
        let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback());
        let proxy = if server.scheme_str() == Some("https") { &self.https } else { &self.http };
        if is_loopback || proxy.is_empty() {
            return None;
        }
        let proxy = if proxy.contains("://") { proxy.clone() } else { format!("http://{proxy}") };
        Matcher::builder().all(proxy.clone()).no(self.no.clone()).build().intercept(server)?;
        proxy.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443/prefix', certificate-authority: ca.crt}}]
users: [{name: u, user: {tokenFile: token}}]
";

    fn write_kubeconfig(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, text).unwrap();
        let authority = rcgen::generate_simple_self_signed(vec!["kubernetes".to_owned()]).unwrap();
        std::fs::write(folder.path().join("ca.crt"), authority.cert.pem()).unwrap();
        (folder, path)
    }

    #[test]
    fn acceptance_shell_015_without_kubeconfig_outside_a_cluster_is_an_error_that_names_what_was_tried() {
        let err = load(None, None).unwrap_err();
        assert!(matches!(err, ConfigError::InCluster(_)), "{err}");
        let text = err.to_string();
        for word in ["--kubeconfig", "--master", "KUBERNETES_SERVICE_HOST", "/var/run/secrets"] {
            assert!(text.contains(word), "{word} is not in: {text}");
        }
    }

    #[test]
    fn relative_paths_are_relative_to_the_file() {
        let (folder, path) = write_kubeconfig(KUBECONFIG);
        let config = load(Some(&path), None).unwrap();
        assert_eq!(config.cluster_url, "https://10.0.0.1:6443/prefix");
        assert_eq!(config.root_cert_file.as_deref(), Some(&*folder.path().join("ca.crt")));
        let token = folder.path().join("token").display().to_string();
        assert_eq!(config.auth_info.token_file.as_deref(), Some(&*token));
    }

    #[test]
    fn server_of_the_flag_replaces_only_that_of_the_kubeconfig() {
        let (_folder, path) = write_kubeconfig(KUBECONFIG);
        let config = load(Some(&path), Some("example:7443")).unwrap();
        assert_eq!(config.cluster_url, "https://example:7443/", "TLS, because the cluster has an authority");
        assert!(config.root_cert.is_some());
        let alone = load(None, Some("127.0.0.1:8080")).unwrap();
        assert_eq!(alone.cluster_url, "http://127.0.0.1:8080/");
    }

    #[test]
    fn errors_name_the_flag_and_the_file() {
        let (folder, path) = write_kubeconfig("clusters: {");
        let cases = [
            (load(Some(&folder.path().join("gone")), None), "gone"),
            (load(Some(&path), None), "--kubeconfig"),
            (load(None, Some("ftp://somewhere")), "--master \"ftp://somewhere\""),
            (load(None, Some("http://")), "--master"),
        ];
        for (result, word) in cases {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(word), "{word} is not in: {text}");
        }
    }

    #[test]
    fn errors_contain_no_password_of_an_address() {
        for (address, shown) in [
            ("https://host:6443", "https://host:6443"),
            ("host:6443", "host:6443"),
            ("", ""),
            ("https://user:canary@host:6443/path", "https://CLASSIFIED@host:6443/path"),
            ("user:canary@host:6443", "CLASSIFIED@host:6443"),
            ("https://user:can/ary@host", "https://CLASSIFIED@host"),
            ("https://user:can@ry@host", "https://CLASSIFIED@host"),
            ("user:can://ary@host", "CLASSIFIED@host"),
        ] {
            assert_eq!(redacted(address), shown, "{address}");
        }
        for master in ["ftp://user:canary@host", "user:canary@", "user:can ary@host:6443"] {
            let text = load(None, Some(master)).unwrap_err().to_string();
            assert!(text.contains("--master") && !text.contains("ary"), "{text}");
        }
    }

    #[test]
    fn proxy_of_the_environment_is_used_as_in_go() {
        let environment = |no: &str| ProxyVariables {
            https: "http://user:pass@proxy:3128".to_owned(),
            http: String::new(),
            no: no.to_owned(),
        };
        let cases = [
            ("a server is reached through it", "https://10.0.0.1:6443", "", true),
            ("NO_PROXY names the server", "https://10.0.0.1:6443", "10.0.0.0/8", false),
            ("NO_PROXY names another host", "https://10.0.0.1:6443", "example.com", true),
            ("plain http has its own variable", "http://10.0.0.1:8080", "", false),
            ("a loopback address has no proxy", "https://127.0.0.1:6443", "", false),
            ("localhost has no proxy", "https://localhost:6443", "", false),
        ];
        for (name, server, no, proxied) in cases {
            let proxy = environment(no).proxy_for(&server.parse().unwrap());
            assert_eq!(proxy.is_some(), proxied, "{name}");
        }
    }

    #[test]
    fn broken_configuration_of_a_pod_is_not_taken_for_no_pod() {
        let missing = InClusterError::NoPod("KUBERNETES_SERVICE_HOST");
        let broken =
            InClusterError::Token { path: PathBuf::from("token"), source: std::io::ErrorKind::NotFound.into() };
        for (err, want) in [(missing, true), (broken, false)] {
            assert_eq!(ConfigError::InCluster(err).is_no_pod(), want);
        }
        assert!(!ConfigError::Server(String::new()).is_no_pod());
    }
}
