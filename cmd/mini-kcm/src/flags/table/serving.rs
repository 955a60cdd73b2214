//! Flags of the HTTPS server.

use super::{
    Group,
    Kind::{Address, Bool, CertKeys, Int, List, Numbers, Text},
    flag,
};

pub(super) const DEBUGGING: Group = Group {
    name: "Debugging flags",
    flags: &[
        flag("contention-profiling", Bool, "false", "Profile where goroutines wait for locks.")
            .ignored("there are no goroutines"),
        flag("profiling", Bool, "true", "Serve /debug/controllers and /debug/flags/v. There are no profiles."),
    ],
};

pub(super) const SERVING: Group = Group {
    name: "Secure serving flags",
    flags: &[
        flag(
            "bind-address",
            Address,
            "0.0.0.0",
            "Address to serve on; an unspecified one means every interface and both families.",
        ),
        flag("cert-dir", Text, "", "Folder of the serving certificate, when its files are not given."),
        flag("disable-http2-serving", Bool, "false", "Serve HTTP/1.1 only."),
        flag(
            "http2-max-streams-per-connection",
            Int,
            "0",
            "Concurrent requests on one HTTP/2 connection; 0: the server's own limit.",
        ),
        flag("permit-address-sharing", Bool, "false", "Bind with SO_REUSEADDR."),
        flag("permit-port-sharing", Bool, "false", "Bind with SO_REUSEPORT, so that several processes share the port."),
        flag("secure-port", Int, "10257", "HTTPS port; 0: no port is served."),
        flag(
            "tls-cert-file",
            Text,
            "",
            "Serving certificate, followed by its chain. Without files a self-signed one is generated.",
        ),
        flag(
            "tls-cipher-suites",
            List,
            "",
            "Cipher suites of TLS 1.2, by their Go names; empty: the defaults of the library.",
        ),
        flag(
            "tls-curve-preferences",
            Numbers,
            "",
            "Key exchanges, as numbers of Go's crypto/tls CurveID; empty: the defaults of the library.",
        ),
        flag("tls-min-version", Text, "", "Lowest TLS version: VersionTLS12 or VersionTLS13."),
        flag("tls-private-key-file", Text, "", "Key of the serving certificate."),
        flag(
            "tls-sni-cert-key",
            CertKeys,
            "",
            "Certificate and key file for server names (SNI): 'cert,key' or 'cert,key:name,*.domain'.",
        ),
    ],
};
