//! Go's names for TLS versions, cipher suites and curves, mapped to those of rustls.

use rustls::{
    CipherSuite, SupportedCipherSuite, SupportedProtocolVersion,
    crypto::{CryptoProvider, SupportedKxGroup, ring},
    version::{TLS12, TLS13},
};

/// The TLS versions, cipher suites and curves that a handshake may use.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) provider: CryptoProvider,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { provider: ring::default_provider(), versions: vec![&TLS13, &TLS12] }
    }
}

/// Suites that are secure in Go and supported by rustls. Those of TLS 1.3 are always enabled, as in Go.
const SUITES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Suites that are secure in Go, but use CBC: rustls supports none of them.
const UNSUPPORTED_SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// Suites that are insecure in Go.
const INSECURE: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Go's CurveIDs that rustls supports with ring.
const CURVES: &[(i32, &str)] = &[(23, "CurveP256"), (24, "CurveP384"), (29, "X25519")];
/// Go's CurveIDs that rustls does not support with ring.
const UNSUPPORTED_CURVES: &[(i32, &str)] =
    &[(25, "CurveP521"), (4587, "SecP256r1MLKEM768"), (4588, "X25519MLKEM768"), (4589, "SecP384r1MLKEM1024")];

/// The errors and warnings for the operator.
#[derive(Debug, Default)]
pub struct Diagnostics {
    /// Invalid values, with their flag.
    pub errors: Vec<String>,
    /// Values that are accepted without effect, with their flag.
    pub warnings: Vec<String>,
}

impl Policy {
    /// Parses `--tls-min-version`, `--tls-cipher-suites` and `--tls-curve-preferences` as typed; empty means the
    /// default.
    #[must_use]
    pub fn read(min_version: &str, suites: &[String], curves: &[String]) -> (Self, Diagnostics) {
        let (mut policy, mut diagnostics) = (Self::default(), Diagnostics::default());
        match min_version {
            // Versions below TLS 1.2 are not supported, so these values mean TLS 1.2.
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => {}
            "VersionTLS13" => policy.versions = vec![&TLS13],
            other => diagnostics.errors.push(format!(
                "--tls-min-version: unknown tls version {other:?}: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"
            )),
        }
        policy.read_suites(suites, &mut diagnostics);
        policy.read_curves(curves, &mut diagnostics);
        (policy, diagnostics)
    }

    fn read_suites(&mut self, typed: &[String], diagnostics: &mut Diagnostics) {
        if typed.is_empty() {
            return;
        }
        let mut wanted: Vec<CipherSuite> = Vec::new();
        for name in typed {
            if let Some((_, suite)) = SUITES.iter().find(|it| it.0 == name) {
                wanted.push(*suite);
            } else if UNSUPPORTED_SUITES.contains(&name.as_str()) {
                diagnostics.warnings.push(format!("--tls-cipher-suites: {name} is not offered by this binary"));
            } else if INSECURE.contains(&name.as_str()) {
                diagnostics.errors.push(format!("--tls-cipher-suites: {name} is insecure and not supported"));
            } else {
                let known: Vec<&str> = SUITES.iter().map(|it| it.0).collect();
                let known = known.join(", ");
                diagnostics.errors.push(format!(
                    "--tls-cipher-suites: cipher suite {name:?} not supported or doesn't exist; known: {known}"
                ));
            }
        }
        self.provider
            .cipher_suites
            .retain(|it| matches!(it, SupportedCipherSuite::Tls13(_)) || wanted.contains(&it.suite()));
        if self.provider.cipher_suites.iter().all(|it| matches!(it, SupportedCipherSuite::Tls13(_))) {
            self.versions = vec![&TLS13];
        }
    }

    fn read_curves(&mut self, typed: &[String], diagnostics: &mut Diagnostics) {
        if typed.is_empty() {
            return;
        }
        let mut wanted: Vec<&'static dyn SupportedKxGroup> = Vec::new();
        for text in typed {
            let id: Option<i32> = text.trim().parse().ok();
            match id {
                Some(23) => wanted.push(ring::kx_group::SECP256R1),
                Some(24) => wanted.push(ring::kx_group::SECP384R1),
                Some(29) => wanted.push(ring::kx_group::X25519),
                _ => match UNSUPPORTED_CURVES.iter().find(|it| Some(it.0) == id) {
                    Some((_, name)) => {
                        let warning = format!("--tls-curve-preferences: {text} ({name}) is not offered by this binary");
                        diagnostics.warnings.push(warning);
                    }
                    None => diagnostics
                        .errors
                        .push(format!("--tls-curve-preferences: unknown curve {text:?}; known: {}", known_curves())),
                },
            }
        }
        if wanted.is_empty() && diagnostics.errors.is_empty() {
            diagnostics
                .errors
                .push(format!("--tls-curve-preferences: none of them is offered; known: {}", known_curves()));
        }
        // The order of the list is ignored, as in Go.
        self.provider.kx_groups.retain(|it| wanted.iter().any(|wanted| wanted.name() == it.name()));
    }
}

fn known_curves() -> String {
    let names: Vec<String> = CURVES.iter().map(|(id, name)| format!("{id} ({name})")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(|it| (*it).to_owned()).collect()
    }

    fn suites(policy: &Policy) -> Vec<CipherSuite> {
        policy.provider.cipher_suites.iter().map(SupportedCipherSuite::suite).collect()
    }

    #[test]
    fn version_names_are_gos_and_the_lowest_is_1_2() {
        for (typed, versions) in [("", 2), ("VersionTLS10", 2), ("VersionTLS12", 2), ("VersionTLS13", 1)] {
            let (policy, diagnostics) = Policy::read(typed, &[], &[]);
            assert_eq!(policy.versions.len(), versions, "{typed}");
            assert!(diagnostics.errors.is_empty());
        }
        let (_, diagnostics) = Policy::read("TLS1.2", &[], &[]);
        assert!(
            diagnostics.errors[0].contains("--tls-min-version") && diagnostics.errors[0].contains("VersionTLS13"),
            "{diagnostics:?}"
        );
    }

    #[test]
    fn every_preferred_suite_of_go_is_supported() {
        let ours: Vec<String> = SUITES.iter().map(|it| it.0.to_owned()).collect();
        let (policy, diagnostics) = Policy::read("", &ours, &[]);
        assert!(diagnostics.errors.is_empty() && diagnostics.warnings.is_empty(), "{diagnostics:?}");
        assert_eq!(suites(&policy).len(), ring::default_provider().cipher_suites.len(), "all that ring has");
    }

    #[test]
    fn suites_of_1_3_stay_and_only_listed_older_ones_are_enabled() {
        let (policy, diagnostics) = Policy::read("", &list(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]), &[]);
        assert!(diagnostics.errors.is_empty());
        assert_eq!(suites(&policy).len(), 4);
        assert!(suites(&policy).contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        let (policy, _) = Policy::read("", &list(&["TLS_AES_128_GCM_SHA256"]), &[]);
        assert_eq!(policy.versions.len(), 1, "no suite of TLS 1.2 is left");
    }

    #[test]
    fn insecure_unknown_and_unsupported_suites_have_different_messages() {
        let typed = list(&["TLS_RSA_WITH_AES_128_CBC_SHA", "NONE", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"]);
        let (_, diagnostics) = Policy::read("", &typed, &[]);
        assert_eq!(diagnostics.errors.len(), 2, "{diagnostics:?}");
        assert!(diagnostics.errors[0].contains("insecure"));
        assert!(diagnostics.errors[1].contains("known: TLS_AES_128_GCM_SHA256, "));
        assert_eq!(diagnostics.warnings.len(), 1);
    }

    #[test]
    fn curves_are_parsed_as_gos_numbers() {
        let (policy, diagnostics) = Policy::read("", &[], &list(&["29", "4588"]));
        assert_eq!(policy.provider.kx_groups.len(), 1);
        assert!(diagnostics.errors.is_empty() && diagnostics.warnings[0].contains("X25519MLKEM768"), "{diagnostics:?}");
        for bad in [&["99"][..], &["x"], &["25"]] {
            let (_, diagnostics) = Policy::read("", &[], &list(bad));
            assert!(
                diagnostics.errors[0].contains("--tls-curve-preferences")
                    && diagnostics.errors[0].contains("29 (X25519)"),
                "{diagnostics:?}"
            );
        }
    }
}
