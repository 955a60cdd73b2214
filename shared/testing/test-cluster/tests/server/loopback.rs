use std::sync::Arc;

use bytes::Bytes;
use clock::Clock;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use test_cluster::{Served, TestCluster};

async fn connect(served: &Served, alpn: &str) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(served.ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let socket = tokio::net::TcpStream::connect(served.addr).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

#[tokio::test]
async fn https_in_both_versions_of_http() {
    let cluster = TestCluster::new(Clock::system());
    let served = cluster.serve().await.unwrap();
    let request =
        || Request::get("/api/v1/namespaces/default").header("host", "x").body(Full::<Bytes>::default()).unwrap();

    let stream = TokioIo::new(connect(&served, "h2").await);
    let (mut http2, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let answer = http2.send_request(request()).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    let body: serde_json::Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(body["metadata"]["name"], "default");

    let stream = TokioIo::new(connect(&served, "http/1.1").await);
    let (mut http1, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    let other = tokio::spawn(connection);
    let answer = http1.send_request(request()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_11));
    drop(answer);

    assert!(served.kubeconfig().contains(&format!("server: https://127.0.0.1:{}\n", served.addr.port())));
    let addr = served.addr;
    served.close().await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    let _ = (driver.await, other.await);
}
