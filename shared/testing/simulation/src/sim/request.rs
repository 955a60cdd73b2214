use std::fmt;

use client::Body;
use futures::FutureExt;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde_json::Value;

/// A request as the simulated network sees it.
#[derive(Debug, Clone)]
pub(crate) struct SimRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    user_agent: String,
    /// `pods`, or `widgets.example.com`; empty for paths without a resource.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// The object of a create, or the options of a delete; null for all other requests.
    body: Value,
    /// True for the Lease of the sender's leader election.
    of_election: bool,
}

impl SimRequest {
    /// `lease` is the Lease of the sender's leader election, as `namespace/name`.
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
            // A namespace itself and its subresources are not content of the namespace.
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
        let names = match asked.created_object() {
            Some(object) => object["metadata"]["name"].as_str().unwrap_or_default(),
            None => asked.name.as_str(),
        };
        let lease = lease.and_then(|it| it.split_once('/'));
        asked.of_election = asked.resource == "leases.coordination.k8s.io"
            && asked.method != Method::DELETE
            && lease == Some((asked.namespace.as_str(), names));
        asked
    }

    /// The object that a create request would create.
    pub(crate) fn created_object(&self) -> Option<&Value> {
        let makes = self.method == Method::POST && self.name.is_empty() && self.body["metadata"].is_object();
        makes.then_some(&self.body)
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// True for a change of an existing object, which another change may precede.
    pub(crate) fn is_update(&self) -> bool {
        matches!(self.method, Method::PUT | Method::PATCH) && !self.name.is_empty()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.has("watch=true")
    }

    /// True when another client may change the same object just before, with an effect on the result. A create of the
    /// sender's own election Lease is not such a request, because no other client uses that name.
    pub(crate) fn is_raceable(&self) -> bool {
        let careful = self.method == Method::DELETE && !self.name.is_empty() && self.body["preconditions"].is_object();
        self.is_update() || careful || (self.created_object().is_some() && !self.of_election)
    }

    /// A watch that first sends the existing objects.
    pub(crate) fn is_streamed_list(&self) -> bool {
        self.is_watch() && self.has("sendInitialEvents=true")
    }

    pub(crate) fn is_list(&self) -> bool {
        self.method == Method::GET && !self.resource.is_empty() && self.name.is_empty() && !self.is_watch()
    }

    /// False for a list that fills no cache, such as one that looks for the traces of other managers.
    pub(crate) fn is_of_informer(&self) -> bool {
        self.user_agent.ends_with("/shared-informers")
    }

    /// True for the Lease of the sender's leader election.
    pub(crate) fn is_lease(&self) -> bool {
        self.of_election
    }

    /// True when only the leader may send this. The election Lease and its events need no term; neither do reviews and
    /// tokens.
    pub(crate) fn needs_term(&self) -> bool {
        let of_leadership = self.resource.starts_with("events") && self.user_agent.ends_with("/leader-election");
        let of_access = self.resource.ends_with(".authentication.k8s.io")
            || self.resource.ends_with(".authorization.k8s.io")
            || self.subresource == "token";
        // A standby creates the service accounts of controllers too, so that it has their tokens ready.
        let of_identity = self.resource == "serviceaccounts" && self.user_agent.ends_with("/service-account-tokens");
        self.is_write() && !self.is_lease() && !of_leadership && !of_access && !of_identity
    }

    /// The oldest state that the answer may show, for requests that accept an older state than the newest.
    pub(crate) fn not_older_than(&self) -> Option<u64> {
        let free = (self.is_list() || self.is_streamed_list()) && !self.has("resourceVersionMatch=Exact");
        let version = self.query.split('&').find_map(|it| it.strip_prefix("resourceVersion="))?;
        version.parse().ok().filter(|_| free)
    }

    /// For how many seconds the server may process it.
    pub(crate) fn server_timeout(&self) -> Option<u64> {
        self.query.split('&').find_map(|it| it.strip_prefix("timeout="))?.strip_suffix('s')?.parse().ok()
    }

    fn has(&self, parameter: &str) -> bool {
        self.query.split('&').any(|it| it == parameter)
    }
}

/// The body as JSON.
pub(crate) fn read(request: &Request<Body>) -> Value {
    // A body from bytes is available at once.
    let Some(Ok(body)) = request.body().clone().collect().now_or_never() else { return Value::Null };
    serde_json::from_slice(&body.to_bytes()).unwrap_or_default()
}

impl fmt::Display for SimRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.query.is_empty() { "" } else { "?" };
        write!(f, "{} {}{mark}{}", self.method, self.path, self.query)
    }
}
