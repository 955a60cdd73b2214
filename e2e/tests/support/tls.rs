//! TLS handshakes with a manager's own port.

use std::{net::Ipv4Addr, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::client::TlsStream;

/// A handshake that trusts only the self-signed `certificate` for `name`.
pub(crate) async fn verified(
    port: u16,
    certificate: CertificateDer<'static>,
    name: ServerName<'static>,
) -> anyhow::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
    Ok(())
}

/// The certificate of a loopback port for the name localhost.
pub(crate) async fn served_certificate(port: u16) -> anyhow::Result<CertificateDer<'static>> {
    let stream = connected(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let first = certificates.first().ok_or_else(|| anyhow::anyhow!("no certificate"))?;
    Ok(first.clone().into_owned())
}

/// A connection to a loopback port.
pub(crate) async fn socket(port: u16) -> anyhow::Result<TcpStream> {
    Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?)
}

/// A handshake for HTTP/1.1 that accepts any certificate.
pub(crate) async fn connected(socket: TcpStream) -> anyhow::Result<TlsStream<TcpStream>> {
    handshake(socket, b"http/1.1").await
}

/// A handshake for HTTP/2, followed by a request for `/healthz` with a window that allows no byte of a response.
pub(crate) async fn unreading(socket: TcpStream) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut stream = handshake(socket, b"h2").await?;
    // RFC 9113: the preface, and SETTINGS with an INITIAL_WINDOW_SIZE of 0.
    let mut hello =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00".to_vec();
    // HEADERS of stream 1 with END_STREAM; RFC 7541: GET, https, :path, :authority.
    let headers = b"\x82\x87\x44\x08/healthz\x41\x09localhost";
    hello.extend([0, 0, u8::try_from(headers.len())?, 1, 5, 0, 0, 0, 1]);
    hello.extend(headers);
    stream.write_all(&hello).await?;
    stream.flush().await?;
    Ok(stream)
}

async fn handshake(socket: TcpStream, protocol: &[u8]) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(client::accept_any_certificate())
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost")?;
    Ok(tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, socket).await?)
}
