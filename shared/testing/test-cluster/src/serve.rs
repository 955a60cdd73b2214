use std::{io, net::SocketAddr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::{Request, Response, body::Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::{BoxError, TestCluster, cluster::ClusterService};

type PlainBody = UnsyncBoxBody<Bytes, io::Error>;

/// A cluster on a loopback port. Dropping it closes the port and every connection.
pub struct Served {
    /// The address of the port.
    pub addr: SocketAddr,
    /// The certificate authority of its certificate.
    pub ca_pem: String,
    task: JoinHandle<()>,
}

impl TestCluster {
    /// Serves the cluster by HTTPS on a free loopback port, with HTTP/1.1 or HTTP/2 as ALPN negotiates. Tokens are
    /// ignored.
    ///
    /// # Errors
    /// If no port is free or the certificate cannot be created.
    pub async fn serve(&self) -> io::Result<Served> {
        let (config, ca_pem) = tls().map_err(io::Error::other)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, acceptor, ClusterService(self.shared.clone())));
        Ok(Served { addr, ca_pem, task })
    }
}

impl Served {
    /// `https://127.0.0.1:<port>`
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// A kubeconfig with a token, which the server ignores.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let (url, ca) = (self.url(), STANDARD.encode(self.ca_pem.as_bytes()));
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters:\n- name: test\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {ca}\ncontexts:\n- name: test\n  context:\n    cluster: test\n    user: test\n\
             users:\n- name: test\n  user:\n    token: ignored\n"
        )
    }

    /// Closes the port and every connection, and waits until that is done.
    pub async fn close(mut self) {
        self.task.abort();
        // The task can end only by this cancellation.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, service_of_cluster: ClusterService) {
    // The set owns the connections, so they end with the listener.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    let (acceptor, service_of_cluster) = (acceptor.clone(), service_of_cluster.clone());
                    connections.spawn(async move {
                        if let Err(err) = connection(socket, acceptor, service_of_cluster).await {
                            tracing::debug!(err, "connection ended");
                        }
                    });
                }
                Err(err) => {
                    tracing::warn!(%err, "cannot accept");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
    }
}

async fn connection(
    socket: tokio::net::TcpStream,
    acceptor: TlsAcceptor,
    service_of_cluster: ClusterService,
) -> Result<(), BoxError> {
    socket.set_nodelay(true)?;
    let stream = acceptor.accept(socket).await?;
    let service = hyper::service::service_fn(move |request| answer(service_of_cluster.clone(), request));
    auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
}

/// Serves one request. Boxed and with a concrete error type, because in a spawned task `BoxError` does not meet hyper's
/// bounds.
fn answer(
    service_of_cluster: ClusterService,
    request: Request<Incoming>,
) -> BoxFuture<'static, io::Result<Response<PlainBody>>> {
    Box::pin(async move {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let answer =
            service_of_cluster.oneshot(Request::from_parts(head, body.into())).await.map_err(io::Error::other)?;
        Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
    })
}

fn tls() -> Result<(rustls::ServerConfig, String), BoxError> {
    let mut authority = rcgen::CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "test-cluster CA");
    authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    let authority_key = rcgen::KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?;
    let issuer = rcgen::Issuer::new(authority, authority_key);

    let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc"].map(str::to_owned);
    let mut server = rcgen::CertificateParams::new(names)?;
    server.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    server.distinguished_name.push(rcgen::DnType::CommonName, "test-cluster");
    let server_key = rcgen::KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &issuer)?;

    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone(), ca.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, ca.pem()))
}
