use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Uri};
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            dns::{GaiResolver, Name},
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::Matcher,
    },
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

use super::{
    PoolPolicy,
    addresses::FailedAddresses,
    guard::{Guard, Guarded},
    target::Target,
};
use crate::{BoxError, ConfigError, config::redacted};

/// Any stream of bytes.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub(super) type BoxIo = Box<dyn Io>;

/// Resolves a name to its addresses.
pub(super) type Resolver = BoxCloneSyncService<Name, std::vec::IntoIter<SocketAddr>, io::Error>;

type ProxyDial = BoxFuture<'static, std::io::Result<TokioIo<BoxIo>>>;

/// The protocol that client and server have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Establishes connections: TCP, then a proxy if there is one, then TLS.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) target: Arc<Target>,
    address: Uri,
    server_name: ServerName<'static>,
    proxy: Option<Proxy>,
    guard: Option<Guard>,
    resolver: Resolver,
    pub(super) failed: FailedAddresses,
    read_buffer: Option<usize>,
}

/// The resolver of the operating system.
pub(super) fn system_resolver() -> Resolver {
    BoxCloneSyncService::new(GaiResolver::new().map_response(|it| it.collect::<Vec<_>>().into_iter()))
}

#[derive(Clone)]
struct Proxy {
    address: Uri,
    basic: Option<HeaderValue>,
    raw: Option<(String, String)>,
    /// The server name of the proxy, if it uses TLS itself.
    server_name: ServerName<'static>,
}

impl Connector {
    pub(super) fn new(
        config: &kube::Config,
        target: Arc<Target>,
        guard: Option<Guard>,
        (resolver, failed): (Resolver, FailedAddresses),
        policy: &PoolPolicy,
    ) -> Result<Self, ConfigError> {
        let address = target.address().map_err(|_| ConfigError::Server(redacted(&config.cluster_url.to_string())))?;
        let server_name = parse_server_name(config.tls_server_name.as_deref().unwrap_or(target.host()))?;
        let proxy = config.proxy_url.as_ref().map(|it| Proxy::of(it, &address)).transpose()?;
        Ok(Self { target, address, server_name, proxy, guard, resolver, failed, read_buffer: policy.read_buffer })
    }

    /// The addresses of the server, or of the proxy if there is one. Their ports are not used. The caller limits the
    /// time.
    pub(super) async fn addresses(&self) -> Result<Vec<SocketAddr>, BoxError> {
        let address = self.proxy.as_ref().map_or(&self.address, |it| &it.address);
        let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, 0)]);
        }
        let name: Name = host.parse()?;
        let found = self.resolver.clone().oneshot(name).await.map_err(|err| format!("cannot resolve {host}: {err}"))?;
        Ok(found.collect())
    }

    /// A connection to one of the addresses, ready for HTTP. The caller limits the time.
    pub(super) async fn connect(
        &self,
        addresses: Vec<SocketAddr>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<(BoxIo, Protocol), BoxError> {
        let io = match self.proxy.clone() {
            None => self.connect_tcp(self.address.clone(), addresses).await?,
            Some(proxy) => self.clone().connect_through(proxy, addresses, tls.clone()).boxed().await?,
        };
        let Some(tls) = tls else { return Ok((io, Protocol::Http1)) };
        let mut tls = TlsConnector::from(tls).connect(self.server_name.clone(), Either::Left(io)).await?;
        let protocol = match tls.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        // With HTTP/1.1 there is a connection for each watch, and each would keep its buffer.
        if let (Protocol::Http2, Some(size)) = (protocol, self.read_buffer) {
            buffer_reads(tls.get_mut().0, size);
        }
        Ok((Box::new(tls), protocol))
    }

    async fn connect_tcp(&self, address: Uri, addresses: Vec<SocketAddr>) -> Result<BoxIo, BoxError> {
        let addresses = tower::service_fn(move |_: Name| {
            let addresses = addresses.clone();
            async move { Ok::<_, io::Error>(addresses.into_iter()) }
        });
        let mut connector = HttpConnector::new_with_resolver(addresses);
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_tcp_user_timeout(self.guard.as_ref().map(|it| it.write_timeout));
        let tcp: TcpStream = connector.oneshot(address).await?.into_inner();
        let Some(guard) = &self.guard else { return Ok(Box::new(tcp)) };
        // When the connection breaks, the bytes that the kernel still has must not be sent.
        socket2::SockRef::from(&tcp).set_linger(Some(Duration::ZERO))?;
        Ok(Box::new(Guarded::new(tcp, guard.term.clone())))
    }

    async fn connect_through(
        self,
        proxy: Proxy,
        addresses: Vec<SocketAddr>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<BoxIo, BoxError> {
        let Proxy { address, basic, raw, server_name } = proxy;
        let uses_tls = address.scheme_str() == Some("https");
        let (this, server) = (self.clone(), self.address);
        let tls = tls.filter(|_| uses_tls);
        // Boxed, because the compiler cannot prove that the generic proxy connectors are `Send`.
        let connector = tower::service_fn(move |address: Uri| -> ProxyDial {
            this.clone().dial_proxy(address, addresses.clone(), tls.clone(), server_name.clone()).boxed()
        });
        let io = if matches!(address.scheme_str(), Some("socks5" | "socks5h")) {
            let mut socks = SocksV5::new(address, connector);
            if let Some((user, password)) = raw {
                socks = socks.with_auth(user, password);
            }
            socks.call(server).await.map_err(|err| BoxError::from(err.to_string()))?
        } else {
            let mut tunnel = Tunnel::new(address, connector);
            if let Some(basic) = basic {
                tunnel = tunnel.with_auth(basic);
            }
            tunnel.call(server).await?
        };
        Ok(io.into_inner())
    }

    async fn dial_proxy(
        self,
        address: Uri,
        addresses: Vec<SocketAddr>,
        tls: Option<Arc<ClientConfig>>,
        server_name: ServerName<'static>,
    ) -> std::io::Result<TokioIo<BoxIo>> {
        let io = self.connect_tcp(address, addresses).await.map_err(std::io::Error::other)?;
        Ok(TokioIo::new(match tls {
            Some(tls) => Box::new(TlsConnector::from(proxy_tls_config(&tls)).connect(server_name, io).await?),
            None => io,
        }))
    }
}

impl Proxy {
    fn of(url: &Uri, server: &Uri) -> Result<Self, ConfigError> {
        let refused = || ConfigError::Proxy(url.host().unwrap_or_default().to_owned());
        if !matches!(url.scheme_str(), Some("http" | "https" | "socks5" | "socks5h")) {
            return Err(refused());
        }
        // Removes user and password from the URL and encodes them for the scheme.
        let found = Matcher::builder().all(url.to_string()).build().intercept(server).ok_or_else(refused)?;
        let server_name = parse_server_name(url.host().unwrap_or_default().trim_matches(['[', ']']))?;
        Ok(Self {
            address: found.uri().clone(),
            basic: found.basic_auth().cloned(),
            raw: found.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned())),
            server_name,
        })
    }
}

/// Adds a read buffer from now on, because rustls reads only 4 KiB per system call.
fn buffer_reads(io: &mut Either<BoxIo, BufReader<BoxIo>>, size: usize) {
    if let Either::Left(plain) = io {
        let plain: BoxIo = std::mem::replace(plain, Box::new(tokio::io::empty()));
        *io = Either::Right(BufReader::with_capacity(size, plain));
    }
}

/// A proxy is offered HTTP/1.1 only, and not the protocols for the server.
fn proxy_tls_config(tls: &ClientConfig) -> Arc<ClientConfig> {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(tls)
}

fn parse_server_name(host: &str) -> Result<ServerName<'static>, ConfigError> {
    ServerName::try_from(host.to_owned()).map_err(|_| ConfigError::ServerName(host.to_owned()))
}
