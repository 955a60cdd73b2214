use std::io;

use rustls::{
    ClientConfig,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use super::*;
use crate::{
    authorities::{Authorities, Bundle},
    testing::{Authority, client_config},
};

fn pair(name: &str) -> pair::CertPair {
    let generated = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let (certificate, key) = (generated.cert.pem(), generated.signing_key.serialize_pem());
    pair::read(certificate.as_bytes(), key.as_bytes(), &Policy::default().provider).unwrap()
}

/// The server's and the client's result of a handshake in memory.
async fn handshake(
    server: Arc<ServerConfig>,
    client: ClientConfig,
    name: ServerName<'static>,
) -> (io::Result<()>, io::Result<TlsStream<tokio::io::DuplexStream>>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let accepted = async { TlsAcceptor::from(server).accept(ours).await.map(|_| ()) };
    tokio::join!(accepted, TlsConnector::from(Arc::new(client)).connect(name, theirs))
}

#[tokio::test]
async fn client_certificate_without_its_key_fails_the_handshake() {
    let authority = Authority::new("clients");
    let clients = Some(Bundle::read(authority.pem().as_bytes()).unwrap());
    let subjects = Authorities { clients, proxies: None }.subjects();
    let tls = Tls::new(Policy::default(), true, Certificates::new(pair("localhost"), &[]), subjects).unwrap();
    for version in [&TLS12, &TLS13] {
        let (jane, other) = (authority.client("jane", &[]), authority.client("other", &[]));
        let handshake_with_key = async |key: PrivateKeyDer<'static>| {
            let client = client_config(&[version], Some((jane.certificate.clone(), key)));
            handshake(tls.config(None), client, ServerName::try_from("localhost").unwrap()).await.0
        };
        assert!(handshake_with_key(jane.key.clone_key()).await.is_ok(), "{version:?}");
        assert!(handshake_with_key(other.key).await.is_err(), "{version:?}");
    }
}

#[tokio::test]
async fn client_without_server_name_gets_the_certificate_of_the_address() {
    let (default, own) = (pair("localhost"), pair("own"));
    let named = [(vec!["10.0.0.1".to_owned()], own.clone())];
    let certificates = Certificates::new(default.clone(), &named);
    let tls = Tls::new(Policy::default(), false, certificates, None).unwrap();
    let (here, elsewhere) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let mapped = "::ffff:10.0.0.1".parse().unwrap();
    for (address, name, want) in [
        (Some(here), "10.0.0.1", &own),
        (Some(mapped), "10.0.0.1", &own),
        (Some(elsewhere), "10.0.0.2", &default),
        (None, "10.0.0.1", &default),
        // A client that sends a server name gets the certificate for that name, or the default.
        (Some(here), "localhost", &default),
    ] {
        let client = client_config(rustls::ALL_VERSIONS, None);
        let name = ServerName::try_from(name).unwrap();
        let (_, stream) = handshake(tls.config(address), client, name).await;
        let stream = stream.unwrap();
        let certificates = stream.get_ref().1.peer_certificates().unwrap();
        assert_eq!(certificates[0], want.cert[0], "{address:?}");
    }
}
