//! A port that speaks HTTPS to whoever the API server says may hear it.
//!
//! It takes any [`Router`] and puts in front of it what kube-controller-manager puts in front of its own pages: TLS with
//! certificates that may change, delegated authentication and authorization, and bounds in every direction, so that no
//! client, however slow or many, costs more than a known amount or keeps a probe out. It knows no page and no controller.
//!
//! Reading order: [`serve`] is the story; [`Gate`] (`layers`) is what happens to a request; `authentication` and
//! `authorization` decide, with `asked` (what is remembered) and `review` (how the API server is asked) beneath; `tls`
//! and `trust` are whose certificates count, `keeper` keeps both fresh; `connections`, `places` and `room` are the bounds.

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

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub listen: Listen,
    /// The usual certificate.
    pub certificate: CertificateSource,
    /// Certificates for names.
    pub sni: Vec<SniPair>,
    /// What a handshake may agree on.
    pub policy: Policy,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Streams of one HTTP/2 connection, fewer than the 32 that we bear; 0: these.
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
    /// `--requestheader-client-ca-file`; without it the cluster is asked.
    pub proxy_authorities: Option<PathBuf>,
    /// `--requestheader-allowed-names`, beside that file.
    pub proxy_names: Vec<String>,
    /// `--requestheader-*-headers`, beside that file.
    pub proxy_headers: ProxyHeaders,
    /// `--authentication-skip-lookup`
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`
    pub tolerate_lookup_failure: bool,
    /// `--authentication-token-webhook-cache-ttl`
    pub token_ttl: Duration,
}

impl AuthenticationOptions {
    /// True when the cluster is asked for authorities that no file gives.
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

/// What serving stands on.
#[derive(Clone)]
pub struct Deps {
    /// Asked about tokens and certificate authorities; `None` where nobody can be asked.
    pub authenticator: Option<Api>,
    /// Asked about who may.
    pub authorizer: Option<Api>,
    /// Time.
    pub clock: Clock,
    /// Every random choice but keys begins here.
    pub seed: u64,
    /// Where the families go.
    pub metrics: Metrics,
    /// Owns every task.
    pub spawner: Spawner,
}

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("cannot listen on {0} (--bind-address, --secure-port): {1}")]
    Listen(SocketAddr, std::io::Error),
    /// No certificate could be made.
    #[error("cannot make a self-signed certificate: {0}")]
    Certificate(String),
    /// The system gives no random bytes for a key.
    #[error("the system gives no random bytes, without which nothing can be kept secret")]
    Randomness,
    /// A file cannot be used.
    #[error("{0}: {1}: {2}")]
    File(&'static str, String, String),
    /// The versions and suites leave nothing to agree on.
    #[error("--tls-min-version, --tls-cipher-suites, --tls-curve-preferences: {0}")]
    Policy(rustls::Error),
    /// The cluster does not say whom to believe.
    #[error(
        "unable to load the cluster's authentication configuration: {0} (--authentication-kubeconfig; go on without it: \
         --authentication-tolerate-lookup-failure)"
    )]
    Lookup(String),
}

/// Listens, and answers until the scope ends. Returns where.
///
/// # Errors
/// As [`ServeError`].
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

/// The gate alone, without a port: for whoever brings requests another way. What it believes about certificates and front
/// proxies stays as it is at the beginning.
///
/// # Errors
/// As [`ServeError`].
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
