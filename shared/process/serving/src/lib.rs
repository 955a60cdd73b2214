//! An HTTPS port with delegated authentication and authorization.
//!
//! It takes any [`Router`] and adds the layers that kube-controller-manager adds to its own handlers: TLS with
//! certificate reload, delegated authentication and authorization, and limits. With the limits, many or slow clients
//! use a bounded amount of memory, and they do not block probes. This crate does not depend on the pages or on a
//! controller.
//!
//! Reading order: [`serve`] starts everything. [`Gate`] (`layers`) handles a request. `authentication` and
//! `authorization` decide about it; they use `asked` (the cache of decisions) and `review` (the requests to the API
//! server). `tls` has the serving certificates, `trust` has the authorities for client certificates, and `keeper`
//! reloads both. `connections`, `places` and `room` enforce the limits.

mod answers;
mod asked;
mod authentication;
mod authorization;
mod connections;
mod files;
mod keeper;
mod layers;
mod listen;
mod lookup;
mod measured;
mod paths;
mod places;
mod review;
mod room;
mod tls;
mod trust;

#[cfg(test)]
mod testing;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use client::Api;
use clock::Clock;
use metrics::Metrics;
use tasks::Spawner;
use tokio::sync::watch;

pub use self::{
    answers::{SMALL_ANSWER, shortened},
    authentication::User,
    authorization::OpenPaths,
    layers::Gate,
    listen::Listen,
    tls::{CertificateSource, Policy, SniPair, Told},
    trust::ProxyHeaders,
};
use self::{
    authentication::{Authentication, Tokens},
    authorization::{Authorization, Reviews},
    connections::Server,
    keeper::{Keeper, Truster},
    measured::Measured,
    review::Reviewer,
    tls::Tls,
    trust::Trust,
};

/// The settings of [`serve`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The address and port to listen on.
    pub listen: Listen,
    /// The default certificate.
    pub certificate: CertificateSource,
    /// Certificates for server names (SNI).
    pub sni: Vec<SniPair>,
    /// The allowed TLS versions, cipher suites and curves.
    pub policy: Policy,
    /// True if HTTP/2 is offered.
    pub http2: bool,
    /// The maximum number of streams of one HTTP/2 connection. 0 means 32; larger values are reduced to 32.
    pub http2_streams: u32,
    /// Authentication of clients.
    pub authentication: AuthenticationOptions,
    /// Authorization of requests.
    pub authorization: AuthorizationOptions,
}

/// The settings of authentication.
#[derive(Debug, Clone)]
pub struct AuthenticationOptions {
    /// `--client-ca-file`
    pub client_authorities: Option<PathBuf>,
    /// `--requestheader-client-ca-file`; without it the authorities come from the cluster, unless `skip_lookup` is set.
    pub proxy_authorities: Option<PathBuf>,
    /// `--requestheader-allowed-names`, used only with that file.
    pub proxy_names: Vec<String>,
    /// `--requestheader-*-headers`, used only with that file.
    pub proxy_headers: ProxyHeaders,
    /// `--authentication-skip-lookup`
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`
    pub token_ttl: Duration,
}

impl AuthenticationOptions {
    /// True if authorities are read from the cluster, because a file for them is not configured.
    #[must_use]
    pub fn looks_up(&self) -> bool {
        !self.skip_lookup && (self.client_authorities.is_none() || self.proxy_authorities.is_none())
    }
}

/// The settings of authorization.
#[derive(Debug, Clone)]
pub struct AuthorizationOptions {
    /// `--authorization-always-allow-paths`
    pub open: OpenPaths,
    /// `--authorization-webhook-cache-authorized-ttl`
    pub allowed_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`
    pub refused_ttl: Duration,
}

/// The dependencies of [`serve`].
#[derive(Clone)]
pub struct Deps {
    /// The client for TokenReviews and for the lookup of authorities; `None` without a kubeconfig.
    pub authenticator: Option<Api>,
    /// The client for SubjectAccessReviews; `None` without a kubeconfig.
    pub authorizer: Option<Api>,
    /// The clock.
    pub clock: Clock,
    /// The seed of all random choices except keys.
    pub seed: u64,
    /// The metrics registry.
    pub metrics: Metrics,
    /// Starts the tasks.
    pub spawner: Spawner,
}

/// The reason why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is in use or does not belong to this host.
    #[error("cannot listen on {0} (--bind-address, --secure-port): {1}")]
    Listen(SocketAddr, std::io::Error),
    /// No self-signed certificate could be generated.
    #[error("cannot make a self-signed certificate: {0}")]
    Certificate(String),
    /// The system returned no random bytes for a key.
    #[error("the system gives no random bytes, without which nothing can be kept secret")]
    Randomness,
    /// A file cannot be used.
    #[error("{0}: {1}: {2}")]
    File(&'static str, String, String),
    /// The configured versions, cipher suites and curves do not give a valid TLS configuration.
    #[error("--tls-min-version, --tls-cipher-suites, --tls-curve-preferences: {0}")]
    Policy(rustls::Error),
    /// The authentication configuration could not be read from the cluster.
    #[error(
        "unable to load the cluster's authentication configuration: {0} (--authentication-kubeconfig; go on without it: \
         --authentication-tolerate-lookup-failure)"
    )]
    Lookup(String),
}

/// Serves `pages` until the scope ends. Returns the bound address.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(options: Options, pages: Router, deps: Deps) -> Result<SocketAddr, ServeError> {
    let Listen { address, port, .. } = options.listen;
    let failed = |err| ServeError::Listen(SocketAddr::new(address, port), err);
    let certificates = tls::Sources::open(&options.certificate, &options.sni, address, &options.policy).await?;
    let (gate, truster, trust) = guarded(&options, &deps).await?;
    let subjects = trust.borrow().subjects();
    let tls =
        Tls::new(options.policy, options.http2, certificates.certificates(), subjects).map_err(ServeError::Policy)?;
    let tls = Arc::new(tls);
    let listener = options.listen.open().map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;

    let keeper = Keeper { certificates, truster, tls: tls.clone(), clock: deps.clock.clone() };
    deps.spawner.spawn("serve-keeper", keeper.keep());
    let server = Arc::new(Server {
        tls,
        pages: gate.protect(pages),
        spawner: deps.spawner.clone(),
        clock: deps.clock,
        streams: options.http2_streams,
    });
    deps.spawner.spawn("serve", server.accept(listener));
    tracing::info!("Serving securely on {bound}");
    Ok(bound)
}

/// Returns the gate alone, without a port, for requests that arrive another way. Its authorities for client
/// certificates and front proxies are read once and not refreshed.
///
/// # Errors
/// See [`ServeError`].
pub async fn gate(options: &Options, deps: &Deps) -> Result<Arc<Gate>, ServeError> {
    Ok(guarded(options, deps).await?.0)
}

type Guarded = (Arc<Gate>, Truster, watch::Receiver<Arc<Trust>>);

async fn guarded(options: &Options, deps: &Deps) -> Result<Guarded, ServeError> {
    let Deps { authenticator, authorizer, clock, seed, metrics, .. } = deps;
    let (truster, trust) = Truster::open(&options.authentication, authenticator.clone(), clock.clone()).await?;
    let measured = Arc::new(Measured::new(metrics));
    let tokens = authenticator.clone().map(|api| {
        let reviewer = Reviewer::new(api, authentication::TOKENS, "authn", metrics, clock.clone(), *seed);
        Tokens::new(reviewer, options.authentication.token_ttl, clock.clone(), measured.clone())
    });
    let tokens = tokens.transpose()?;
    let reviews = authorizer.clone().map(|api| {
        let reviewer = Reviewer::new(api, authorization::PATH, "authz", metrics, clock.clone(), seed.rotate_left(1));
        let AuthorizationOptions { allowed_ttl, refused_ttl, .. } = options.authorization;
        Reviews::new(reviewer, allowed_ttl, refused_ttl, clock.clone())
    });
    if reviews.is_none() {
        tracing::warn!("no --authorization-kubeconfig was given: only open paths and system:masters are authorized");
    }
    let authentication =
        Authentication { trust: trust.clone(), tokens, clock: clock.clone(), measured: measured.clone() };
    let authorization =
        Authorization { open: options.authorization.open.clone(), reviews, clock: clock.clone(), measured };
    Ok((Gate::new(authentication, authorization, clock.clone()), truster, trust))
}
