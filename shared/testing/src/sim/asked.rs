use std::fmt;

use client::Body;
use futures::FutureExt;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde_json::Value;

/// A request as the network sees it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    user_agent: String,
    /// `pods`, or `widgets.example.com`; empty off the resources.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The object that a creation makes, or what a deletion asks for; nothing for everything else.
    body: Value,
    /// Of the Lease by which its sender is elected.
    of_election: bool,
}

impl Asked {
    /// `lease` is the Lease by which its sender is elected, as `namespace/name`.
    pub(crate) fn of(request: &Request<Body>, lease: Option<&str>) -> Self {
        let path = request.uri().path().to_owned();
        let agent = request.headers().get(header::USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let mut asked = Self {
            method: request.method().clone(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            user_agent: agent.to_owned(),
            resource: String::new(),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            path: String::new(),
            body: Value::Null,
            of_election: false,
        };
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let (group, rest) = match segments.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", [].as_slice()),
        };
        let (namespace, rest) = match rest {
            // A namespace itself, and its subresources, are no content of it.
            ["namespaces", namespace, resource, rest @ ..] if !matches!(*resource, "finalize" | "status") => {
                (*namespace, [&[*resource], rest].concat())
            }
            rest => ("", rest.to_vec()),
        };
        if let [resource, rest @ ..] = rest.as_slice() {
            asked.resource = if group.is_empty() { (*resource).to_owned() } else { format!("{resource}.{group}") };
            asked.name = (*rest.first().unwrap_or(&"")).to_owned();
            asked.subresource = (*rest.get(1).unwrap_or(&"")).to_owned();
        }
        asked.namespace = namespace.to_owned();
        asked.path = path;
        if matches!(asked.method, Method::POST | Method::DELETE) {
            asked.body = read(request);
        }
        let names = match asked.made() {
            Some(object) => object["metadata"]["name"].as_str().unwrap_or_default(),
            None => asked.name.as_str(),
        };
        let lease = lease.and_then(|it| it.split_once('/'));
        asked.of_election = asked.resource == "leases.coordination.k8s.io"
            && asked.method != Method::DELETE
            && lease == Some((asked.namespace.as_str(), names));
        asked
    }

    /// The object that it makes.
    pub(crate) fn made(&self) -> Option<&Value> {
        let makes = self.method == Method::POST && self.name.is_empty() && self.body["metadata"].is_object();
        makes.then_some(&self.body)
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// A change of an object that is there, which another one may come before.
    pub(crate) fn is_update(&self) -> bool {
        matches!(self.method, Method::PUT | Method::PATCH) && !self.name.is_empty()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.has("watch=true")
    }

    /// Somebody else may do something to the same object just before, and it would matter. Nobody else makes our Lease in our
    /// name.
    pub(crate) fn is_raceable(&self) -> bool {
        let careful = self.method == Method::DELETE && !self.name.is_empty() && self.body["preconditions"].is_object();
        self.is_update() || careful || (self.made().is_some() && !self.of_election)
    }

    /// A watch that shows what is there first.
    pub(crate) fn is_set(&self) -> bool {
        self.is_watch() && self.has("sendInitialEvents=true")
    }

    pub(crate) fn is_list(&self) -> bool {
        self.method == Method::GET && !self.resource.is_empty() && self.name.is_empty() && !self.is_watch()
    }

    /// By which its sender is elected, and no other Lease.
    pub(crate) fn is_lease(&self) -> bool {
        self.of_election
    }

    /// Only who leads may send this. The Lease itself, and what is said of it, stand beside the term; so do reviews and
    /// tokens.
    pub(crate) fn needs_term(&self) -> bool {
        let of_leadership = self.resource.starts_with("events") && self.user_agent.ends_with("/leader-election");
        let of_access = self.resource.ends_with(".authentication.k8s.io")
            || self.resource.ends_with(".authorization.k8s.io")
            || self.subresource == "token";
        // The accounts of controllers are made by a standby too, so that it has its tokens ready.
        let of_identity = self.resource == "serviceaccounts" && self.user_agent.ends_with("/service-account-tokens");
        self.is_write() && !self.is_lease() && !of_leadership && !of_access && !of_identity
    }

    /// The oldest state that may be shown, where not only the newest will do.
    pub(crate) fn not_older_than(&self) -> Option<u64> {
        let free = (self.is_list() || self.is_set()) && !self.has("resourceVersionMatch=Exact");
        let version = self.query.split('&').find_map(|it| it.strip_prefix("resourceVersion="))?;
        version.parse().ok().filter(|_| free)
    }

    /// For how many seconds the server may work on it.
    pub(crate) fn server_timeout(&self) -> Option<u64> {
        self.query.split('&').find_map(|it| it.strip_prefix("timeout="))?.strip_suffix('s')?.parse().ok()
    }

    fn has(&self, parameter: &str) -> bool {
        self.query.split('&').any(|it| it == parameter)
    }
}

/// The body, as JSON.
pub(crate) fn read(request: &Request<Body>) -> Value {
    // A body of bytes is there at once.
    let Some(Ok(body)) = request.body().clone().collect().now_or_never() else { return Value::Null };
    serde_json::from_slice(&body.to_bytes()).unwrap_or_default()
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.query.is_empty() { "" } else { "?" };
        write!(f, "{} {}{mark}{}", self.method, self.path, self.query)
    }
}
