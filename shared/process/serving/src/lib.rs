//! An HTTPS port with delegated authentication and authorization.
//!
//! It takes any [`Router`] and adds the layers that kube-controller-manager adds to its own handlers: TLS with
//! certificate reload, delegated authentication and authorization, and limits. With the limits, many or slow clients
//! use a bounded amount of memory, and they do not block probes. This crate does not depend on the pages or on a
//! controller.
//!
//! Reading order: [`serve`] starts everything. [`AuthLayer`] (`layers`) handles a request. `authentication` and
//! `authorization` decide about it; they use `decision_cache` and `review` (the requests to the API server). `tls` has
//! the serving certificates, `authorities` has the authorities for client certificates, and `cert_reload` reloads both.
//! `connections`, `connection_limit`, `request_limit` and `log_limit` enforce the limits.

mod auth_metrics;
mod authentication;
mod authorities;
mod authorization;
mod cert_reload;
mod connection_limit;
mod connections;
mod decision_cache;
mod errors;
mod files;
mod layers;
mod listen;
mod log_limit;
mod lookup;
mod paths;
mod request_limit;
mod review;
mod tls;

#[cfg(test)]
mod testing;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::Router;
use client::Api;
use clock::Clock;
use metrics::Metrics;
use tasks::Spawner;
use tokio::sync::watch;

use self::{
    auth_metrics::AuthMetrics,
    authentication::{Authentication, TokenReviews},
    authorities::Authorities,
    authorization::{AccessReviews, Authorization},
    cert_reload::{AuthoritySources, CertReloader},
    connections::Server,
    review::ReviewClient,
    tls::Tls,
};
pub use self::{
    authentication::User,
    authorities::ProxyHeaders,
    authorization::OpenPaths,
    errors::{SMALL_RESPONSE, shortened},
    layers::AuthLayer,
    listen::ListenOptions,
    tls::{CertificateSource, Diagnostics, Policy, SniPair},
};

/// The settings of [`serve`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The address and port to listen on.
    pub listen: ListenOptions,
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
    pub fn needs_lookup(&self) -> bool {
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
    #[error("the system returned no random bytes for a secret key")]
    Randomness,
    /// A file cannot be used.
    #[error("{0}: {1}: {2}")]
    File(&'static str, String, String),
    /// The configured versions, cipher suites and curves do not give a valid TLS configuration.
    #[error("--tls-min-version, --tls-cipher-suites, --tls-curve-preferences: {0}")]
    Policy(rustls::Error),
    /// The authentication configuration could not be read from the cluster.
    #[error(
        "unable to load the cluster's authentication configuration: {0} (--authentication-kubeconfig; to start without it: \
         --authentication-tolerate-lookup-failure)"
    )]
    Lookup(String),
}

/// Serves `pages` until the scope ends. Returns the bound address.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve(options: Options, pages: Router, deps: Deps) -> Result<SocketAddr, ServeError> {
    let ListenOptions { address, port, .. } = options.listen;
    let failed = |err| ServeError::Listen(SocketAddr::new(address, port), err);
    let certificates =
        tls::CertificateSources::open(&options.certificate, &options.sni, address, &options.policy).await?;
    let (auth_layer, authority_sources, authorities) = build_auth_layer(&options, &deps).await?;
    let subjects = authorities.borrow().subjects();
    let tls =
        Tls::new(options.policy, options.http2, certificates.certificates(), subjects).map_err(ServeError::Policy)?;
    let tls = Arc::new(tls);
    let listener = options.listen.open().map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;

    let cert_reloader = CertReloader { certificates, authority_sources, tls: tls.clone(), clock: deps.clock.clone() };
    deps.spawner.spawn("serve-cert-reload", cert_reloader.run());
    let server = Arc::new(Server {
        tls,
        pages: auth_layer.protect(pages),
        spawner: deps.spawner.clone(),
        clock: deps.clock,
        streams: options.http2_streams,
    });
    deps.spawner.spawn("serve", server.accept(listener));
    tracing::info!("Serving securely on {bound}");
    Ok(bound)
}

/// Returns the layer alone, without a port, for requests that arrive another way. Its authorities for client
/// certificates and front proxies are read once and not refreshed.
///
/// # Errors
/// See [`ServeError`].
pub async fn auth_layer(options: &Options, deps: &Deps) -> Result<Arc<AuthLayer>, ServeError> {
    Ok(build_auth_layer(options, deps).await?.0)
}

type BuiltAuthLayer = (Arc<AuthLayer>, AuthoritySources, watch::Receiver<Arc<Authorities>>);

async fn build_auth_layer(options: &Options, deps: &Deps) -> Result<BuiltAuthLayer, ServeError> {
    let Deps { authenticator, authorizer, clock, seed, metrics, .. } = deps;
    let (authority_sources, authorities) =
        AuthoritySources::open(&options.authentication, authenticator.clone(), clock.clone()).await?;
    let auth_metrics = Arc::new(AuthMetrics::new(metrics));
    let tokens = authenticator.clone().map(|api| {
        let review_client = ReviewClient::new(api, authentication::TOKENS, "authn", metrics, clock.clone(), *seed);
        TokenReviews::new(review_client, options.authentication.token_ttl, clock.clone(), auth_metrics.clone())
    });
    let tokens = tokens.transpose()?;
    let reviews = authorizer.clone().map(|api| {
        let review_client =
            ReviewClient::new(api, authorization::PATH, "authz", metrics, clock.clone(), seed.rotate_left(1));
        let AuthorizationOptions { allowed_ttl, refused_ttl, .. } = options.authorization;
        AccessReviews::new(review_client, allowed_ttl, refused_ttl, clock.clone())
    });
    if reviews.is_none() {
        tracing::warn!("no --authorization-kubeconfig was given: only open paths and system:masters are authorized");
    }
    let authentication = Authentication {
        authorities: authorities.clone(),
        tokens,
        clock: clock.clone(),
        auth_metrics: auth_metrics.clone(),
    };
    let authorization =
        Authorization { open: options.authorization.open.clone(), reviews, clock: clock.clone(), auth_metrics };
    Ok((AuthLayer::new(authentication, authorization, clock.clone()), authority_sources, authorities))
}
