//! Authorities, certificates and API servers for tests.

use std::{sync::Arc, time::Duration};

use axum::response::Response as AxumResponse;
use client::{Api, Body, Clients, Connection, Environment, Limits, Term, Transport};
use clock::Clock;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use metrics::Metrics;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::{
    ClientConfig, SupportedProtocolVersion,
    client::ResolvesClientCert,
    crypto::ring::default_provider,
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{AuthenticationOptions, ProxyHeaders};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A signed certificate.
pub(crate) struct Signed {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

fn certificate_params(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = certificate_params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn pem(&self) -> String {
        self.pem.clone()
    }

    /// A client certificate. It has at most one group, because the generator keeps one value of each type.
    pub(crate) fn client(&self, name: &str, groups: &[&str]) -> Signed {
        self.sign(certificate_params(name, groups), ExtendedKeyUsagePurpose::ClientAuth)
    }

    pub(crate) fn client_with_uid(&self, name: &str, uid: &str) -> Signed {
        let mut params = certificate_params(name, &[]);
        params.distinguished_name.push(DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), uid);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    pub(crate) fn server(&self, name: &str) -> Signed {
        self.sign(certificate_params(name, &[]), ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Signed {
        params.extended_key_usages = vec![usage];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Signed { certificate, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() }
    }
}

/// A response with a JSON body.
pub(crate) fn response(code: u16, body: &Value) -> Response<client::Incoming> {
    let body = Full::new(body.to_string().into()).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// An API server whose response is the result of `respond` for the path and the body.
pub(crate) fn api(respond: impl Fn(&str, Value) -> Response<client::Incoming> + Send + Sync + 'static) -> Api {
    let respond = Arc::new(respond);
    api_of(Transport::new(tower::service_fn(move |request: Request<Body>| {
        let respond = respond.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Ok(respond(head.uri.path(), serde_json::from_slice(&body).unwrap_or_default()))
        }
    })))
}

/// An API server that never responds.
pub(crate) fn unresponsive_api() -> Api {
    api_of(Transport::new(tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<client::Incoming>, client::BoxError>>()
    })))
}

fn api_of(server: Transport) -> Api {
    let clock = Clock::system();
    let environment = Environment {
        clock: clock.clone(),
        metrics: Metrics::new(),
        term: Term::endless(clock),
        stop: CancellationToken::new(),
        user_agent: "test".to_owned(),
    };
    Clients::new(Connection::in_memory(server), environment).unfenced("test", Limits::NONE)
}

/// Options without any authority.
pub(crate) fn authentication() -> AuthenticationOptions {
    AuthenticationOptions {
        client_authorities: None,
        proxy_authorities: None,
        proxy_names: Vec::new(),
        proxy_headers: ProxyHeaders::default(),
        skip_lookup: true,
        tolerate_lookup_failure: false,
        token_ttl: Duration::from_secs(10),
    }
}

/// The body of a response, as text.
pub(crate) async fn text(response: AxumResponse) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// A client that accepts any server certificate, with or without a client certificate.
pub(crate) fn client_config(
    versions: &[&'static SupportedProtocolVersion],
    certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(client::accept_any_certificate());
    let Some((certificate, key)) = certificate else { return builder.with_no_client_auth() };
    // The key need not belong to the certificate: a test uses a stolen certificate without its key.
    let key = default_provider().key_provider.load_private_key(key).unwrap();
    let certificate: Arc<dyn ResolvesClientCert> =
        Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key)));
    builder.with_client_cert_resolver(certificate)
}
