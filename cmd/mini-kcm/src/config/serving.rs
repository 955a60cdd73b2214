use std::path::PathBuf;

use serving::{
    AuthenticationOptions, AuthorizationOptions, CertificateSource, ListenOptions, OpenPaths, Options, Policy,
    ProxyHeaders, SniPair,
};

use crate::flags::FlagValues;

/// Upstream's name of the key pair in `--cert-dir`.
const PAIR_NAME: &str = "kube-controller-manager";

/// The options of the serving port.
#[derive(Debug, Clone)]
pub struct Serving {
    /// All options except connections.
    pub options: Options,
    /// `--authentication-kubeconfig`
    pub authentication_kubeconfig: Option<PathBuf>,
    /// `--authorization-kubeconfig`
    pub authorization_kubeconfig: Option<PathBuf>,
}

/// Reads the flags; `None` when no port is served. Warnings for the operator are added to `warnings`.
pub(super) fn read(flags: &mut FlagValues, warnings: &mut Vec<String>) -> Option<Serving> {
    let port = flags.port("secure-port");
    let listen =
        ListenOptions { address: flags.address("bind-address"), port, share_port: flags.bool("permit-port-sharing") };
    let options = Options {
        listen,
        certificate: certificate(flags),
        sni: sni(flags),
        policy: policy(flags, warnings),
        http2: !flags.bool("disable-http2-serving"),
        http2_streams: flags.count("http2-max-streams-per-connection"),
        authentication: authentication(flags),
        authorization: authorization(flags),
    };
    // Wrong values are reported even without a port.
    (port != 0).then(|| Serving {
        options,
        authentication_kubeconfig: flags.path("authentication-kubeconfig"),
        authorization_kubeconfig: flags.path("authorization-kubeconfig"),
    })
}

fn certificate(flags: &mut FlagValues) -> CertificateSource {
    match (flags.path("tls-cert-file"), flags.path("tls-private-key-file"), flags.path("cert-dir")) {
        (Some(certificate), Some(key), _) => CertificateSource::Files { certificate, key },
        (None, None, Some(folder)) => CertificateSource::Folder { folder, name: PAIR_NAME.to_owned() },
        (None, None, None) => CertificateSource::Memory,
        _ => {
            flags.add_error("--tls-cert-file and --tls-private-key-file: one does not go without the other");
            CertificateSource::Memory
        }
    }
}

fn sni(flags: &mut FlagValues) -> Vec<SniPair> {
    let typed: Vec<String> = flags.texts("tls-sni-cert-key").into_iter().map(str::to_owned).collect();
    let parsed: Vec<_> = typed.iter().map(|it| SniPair::parse(it)).collect();
    parsed.into_iter().filter_map(|it| it.map_err(|err| flags.add_error(err)).ok()).collect()
}

fn policy(flags: &mut FlagValues, warnings: &mut Vec<String>) -> Policy {
    let curves: Vec<String> =
        flags.texts("tls-curve-preferences").iter().flat_map(|it| it.split(',')).map(str::to_owned).collect();
    let suites = flags.list("tls-cipher-suites");
    let (policy, diagnostics) = Policy::read(flags.text("tls-min-version"), &suites, &curves);
    diagnostics.errors.into_iter().for_each(|it| flags.add_error(it));
    warnings.extend(diagnostics.warnings);
    policy
}

fn authentication(flags: &mut FlagValues) -> AuthenticationOptions {
    let proxy_headers = ProxyHeaders {
        username: flags.list("requestheader-username-headers"),
        uid: flags.list("requestheader-uid-headers"),
        group: flags.list("requestheader-group-headers"),
        extra_prefix: flags.list("requestheader-extra-headers-prefix"),
    };
    if let Some(name) = proxy_headers.invalid() {
        let error =
            format!("--requestheader-*-headers, --requestheader-extra-headers-prefix: {name:?} is no header's name");
        flags.add_error(error);
    }
    AuthenticationOptions {
        client_authorities: flags.path("client-ca-file"),
        proxy_authorities: flags.path("requestheader-client-ca-file"),
        proxy_names: flags.list("requestheader-allowed-names"),
        proxy_headers,
        skip_lookup: flags.bool("authentication-skip-lookup"),
        tolerate_lookup_failure: flags.bool("authentication-tolerate-lookup-failure"),
        token_ttl: flags.duration("authentication-token-webhook-cache-ttl"),
    }
}

fn authorization(flags: &mut FlagValues) -> AuthorizationOptions {
    let open = OpenPaths::parse(&flags.list("authorization-always-allow-paths")).unwrap_or_else(|err| {
        flags.add_error(err);
        OpenPaths::default()
    });
    AuthorizationOptions {
        open,
        allowed_ttl: flags.duration("authorization-webhook-cache-authorized-ttl"),
        refused_ttl: flags.duration("authorization-webhook-cache-unauthorized-ttl"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Invocation, parse};

    fn read(args: &[&str]) -> Result<(Option<Serving>, Vec<String>), Vec<String>> {
        let Invocation::Run(mut flags) = parse(args.iter().map(|it| (*it).to_owned())) else { panic!("not a run") };
        let mut warnings = Vec::new();
        let serving = super::read(&mut flags, &mut warnings);
        flags.finish().map(|()| (serving, warnings))
    }

    #[test]
    fn defaults_match_upstream() {
        let Serving { options, authentication_kubeconfig, .. } = read(&[]).unwrap().0.unwrap();
        assert_eq!(options.listen, ListenOptions { address: [0, 0, 0, 0].into(), port: 10257, share_port: false });
        assert_eq!(options.certificate, CertificateSource::Memory);
        assert!(options.http2 && authentication_kubeconfig.is_none());
        assert_eq!(options.authentication.token_ttl.as_secs(), 10);
        assert_eq!(options.authentication.proxy_headers.username, ["x-remote-user"]);
        let open = ["/healthz", "/readyz", "/livez"].map(str::to_owned);
        assert_eq!(options.authorization.open, OpenPaths::parse(&open).unwrap());
    }

    #[test]
    fn acceptance_shell_016_port_zero_serves_nothing() {
        assert!(read(&["--secure-port=0"]).unwrap().0.is_none());
    }

    #[test]
    fn arguments_of_kubeadm_are_accepted() {
        let args = "--bind-address=127.0.0.1 --authentication-kubeconfig=/c --authorization-kubeconfig=/c \
            --client-ca-file=/ca.crt --requestheader-client-ca-file=/front.crt";
        let Serving { options, authorization_kubeconfig, .. } =
            read(&args.split_whitespace().collect::<Vec<_>>()).unwrap().0.unwrap();
        assert_eq!(authorization_kubeconfig, Some("/c".into()));
        assert_eq!(options.authentication.client_authorities, Some("/ca.crt".into()));
        assert_eq!(options.authentication.proxy_authorities, Some("/front.crt".into()));
    }

    #[test]
    fn sni_pairs_repeat_and_files_have_priority_over_the_folder() {
        let args =
            "--tls-sni-cert-key=a,b --tls-sni-cert-key=c,d:x --tls-cert-file=e --tls-private-key-file=f --cert-dir=g";
        let (serving, _) = read(&args.split_whitespace().collect::<Vec<_>>()).unwrap();
        let options = serving.unwrap().options;
        assert_eq!(options.sni.len(), 2);
        assert_eq!(options.certificate, CertificateSource::Files { certificate: "e".into(), key: "f".into() });
    }

    #[test]
    fn all_invalid_values_are_reported_with_their_flag() {
        let errors = read(&[
            "--tls-cert-file=e",
            "--tls-min-version=1.3",
            "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",
            "--authorization-always-allow-paths=/a*b",
            "--requestheader-username-headers=a b",
        ])
        .unwrap_err();
        let all = errors.join("\n");
        for flag in [
            "--tls-cert-file",
            "--tls-min-version",
            "--tls-cipher-suites",
            "--authorization-always-allow-paths",
            "--requestheader-",
        ] {
            assert!(all.contains(flag), "{flag} in {all}");
        }
    }
}
