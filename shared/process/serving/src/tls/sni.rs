use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc};

use rustls::server::{ClientHello, ResolvesServerCert};

use super::pair::{self, CertPair};

/// One value of `--tls-sni-cert-key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SniPair {
    /// PEM of the certificate chain.
    pub certificate: PathBuf,
    /// PEM of its key.
    pub key: PathBuf,
    /// Domain patterns; empty means the names of the certificate.
    pub patterns: Vec<String>,
}

impl SniPair {
    /// Reads `cert,key` or `cert,key:pattern,pattern`.
    ///
    /// # Errors
    /// If the value is invalid; the message names the flag.
    pub fn parse(typed: &str) -> Result<Self, String> {
        let wrong = || format!("--tls-sni-cert-key={typed}: expected cert,key or cert,key:pattern,pattern");
        let (files, patterns) = match typed.split_once(':') {
            Some((files, patterns)) => (files, patterns.split(',').map(|it| it.trim().to_ascii_lowercase()).collect()),
            None => (typed, Vec::new()),
        };
        let (certificate, key) = files.split_once(',').ok_or_else(wrong)?;
        let (certificate, key) = (certificate.trim(), key.trim());
        if certificate.is_empty() || key.is_empty() || key.contains(',') || patterns.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Self { certificate: certificate.into(), key: key.into(), patterns })
    }
}

/// The current serving certificates.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    pub(crate) default: CertPair,
    by_name: BTreeMap<String, CertPair>,
}

impl Certificates {
    /// Configured patterns have priority over the names of certificates, and earlier pairs over later ones.
    pub(crate) fn new(default: CertPair, named: &[(Vec<String>, CertPair)]) -> Self {
        let (mut by_name, mut explicit) = (BTreeMap::new(), BTreeMap::new());
        for (patterns, pair) in named.iter().rev() {
            explicit.extend(patterns.iter().map(|it| (it.clone(), pair.clone())));
            if patterns.is_empty() {
                let names = pair.cert.first().map(pair::server_names).unwrap_or_default();
                by_name.extend(names.into_iter().map(|it| (it.to_ascii_lowercase(), pair.clone())));
            }
        }
        by_name.extend(explicit);
        Self { default, by_name }
    }

    /// The pair for a server name: by the full name, then with the first label replaced by `*`.
    fn by_server_name(&self, name: &str) -> Option<&CertPair> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.by_name.get(&name).or_else(|| {
            let rest = name.split_once('.').map_or("", |it| it.1);
            let wildcard = if rest.is_empty() { "*".to_owned() } else { format!("*.{rest}") };
            self.by_name.get(&wildcard)
        })
    }

    /// The addresses with their own certificate, for clients that send no server name.
    pub(crate) fn by_address(&self) -> impl Iterator<Item = (IpAddr, &CertPair)> {
        self.by_name.iter().filter_map(|(name, pair)| Some((name.parse().ok()?, pair)))
    }
}

/// Selects the certificate by the server name that the client sends.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) certificates: Arc<Certificates>,
    /// For clients that send no server name.
    pub(crate) without_name: CertPair,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<CertPair> {
        let chosen = match hello.server_name() {
            Some(name) => self.certificates.by_server_name(name).unwrap_or(&self.certificates.default),
            None => &self.without_name,
        };
        Some(chosen.clone())
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::default_provider;

    use super::*;

    fn pair(names: &[&str]) -> CertPair {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        let generated = rcgen::generate_simple_self_signed(names).unwrap();
        pair::read(
            generated.cert.pem().as_bytes(),
            generated.signing_key.serialize_pem().as_bytes(),
            &default_provider(),
        )
        .unwrap()
    }

    #[test]
    fn flags_are_parsed_like_upstream() {
        let parsed = SniPair::parse("foo.crt,foo.key:*.foo.com,Foo.com").unwrap();
        assert_eq!((parsed.certificate, parsed.key), ("foo.crt".into(), "foo.key".into()));
        assert_eq!(parsed.patterns, ["*.foo.com", "foo.com"]);
        assert!(SniPair::parse("a.crt,a.key").unwrap().patterns.is_empty());
        for bad in ["", "a", "a,", ",b", "a,b,c", "a,b:", "a,b:x,,y"] {
            assert!(SniPair::parse(bad).unwrap_err().contains("--tls-sni-cert-key"), "{bad}");
        }
    }

    #[test]
    fn exact_names_patterns_and_earlier_pairs_have_priority() {
        let [default, wild, whole, own, late] =
            [pair(&["d"]), pair(&["w"]), pair(&["x"]), pair(&["foo.com", "own.org"]), pair(&["own.org"])];
        let certificates = Certificates::new(
            default,
            &[
                (vec!["*.foo.com".to_owned(), "10.0.0.1".to_owned()], wild.clone()),
                (vec!["a.foo.com".to_owned(), "foo.com".to_owned()], whole.clone()),
                (vec![], own.clone()),
                (vec![], late),
            ],
        );
        for (name, want) in [
            ("b.foo.com", Some(&wild)),
            ("A.foo.com.", Some(&whole)),
            ("foo.com", Some(&whole)),
            ("own.org", Some(&own)),
            ("a.b.foo.com", None),
            ("org", None),
        ] {
            let got = certificates.by_server_name(name);
            assert_eq!(got.map(Arc::as_ptr), want.map(Arc::as_ptr), "{name}");
        }
        let addresses: Vec<IpAddr> = certificates.by_address().map(|it| it.0).collect();
        assert_eq!(addresses, [IpAddr::from([10, 0, 0, 1])]);
    }
}
