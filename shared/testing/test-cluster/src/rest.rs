use std::{borrow::Cow, iter::Peekable, sync::Arc, vec};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use serde_json::Value;

use crate::{
    Failure, ResponseBody, apiservice, binding,
    cluster::Shared,
    crd, decode,
    delete::{self, DeleteOptions, Deleted},
    discovery, eviction, get, kinds, list, meta,
    negotiate::negotiate,
    options::{Verb, WriteOptions},
    patch::{self, Language},
    protobuf,
    response::{self, Form},
    reviews, scale,
    store::{State, storage_key},
    table, tokens, watch,
    write::{self, Part, Target},
};

/// The limit for the size of a body.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// What a path refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Not a resource: discovery, version, health, or an unknown path.
    Other,
    /// The deprecated form of watches: of a list or of one object.
    Watch(Place),
    Resource(Place),
}

/// A resource, one object of it, or a subresource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    pub(crate) sub: Option<String>,
    /// There are more path segments after that.
    pub(crate) deeper: bool,
}

impl Route {
    /// Parses a path. A trailing slash and an empty namespace are accepted.
    pub(crate) fn parse(path: &str) -> Self {
        // In this order, as on a real server: an encoded slash is a separator too.
        let path = decode(path, false);
        let mut parts: Vec<String> = path.split('/').skip(1).map(str::to_owned).collect();
        while parts.last().is_some_and(String::is_empty) {
            parts.pop();
        }
        let (group, version, rest) = match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["api", version, _, ..] => (String::new(), version.to_owned(), parts.split_off(2)),
            ["apis", group, version, _, ..] => (group.to_owned(), version.to_owned(), parts.split_off(3)),
            _ => return Self::Other,
        };
        let mut rest = rest.into_iter().peekable();
        if rest.next_if(|it| it == "watch").is_some() {
            return Self::Watch(Place::parse(group, version, rest));
        }
        Self::Resource(Place::parse(group, version, rest))
    }
}

impl Place {
    fn parse(group: String, version: String, mut rest: Peekable<vec::IntoIter<String>>) -> Self {
        let mut place = Self { group, version, ..Self::default() };
        place.resource = rest.next().unwrap_or_default();
        if place.resource == "namespaces" && place.group.is_empty() {
            place.name = rest.next();
            place.sub = rest.next();
            let of_namespace = matches!(place.sub.as_deref(), None | Some("status" | "finalize"));
            if of_namespace && rest.peek().is_none() {
                return place;
            }
            place.namespace = place.name.take().filter(|it| !it.is_empty());
            place.resource = place.sub.take().unwrap_or_default();
        } else if place.resource == "namespaces" {
            place.namespace = rest.next().filter(|it| !it.is_empty());
            place.resource = rest.next().unwrap_or_default();
        }
        place.name = rest.next();
        place.sub = rest.next();
        place.deeper = rest.next().is_some();
        place
    }
}

/// The parameters of a URL, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|it| !it.is_empty());
        Self(
            pairs
                .map(|it| it.split_once('=').unwrap_or((it, "")))
                .map(|(key, value)| (decode(key, true), decode(value, true)))
                .collect(),
        )
    }

    /// The first value of a parameter; empty when missing.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.iter().find(|it| it.0 == key).map_or("", |it| &it.1)
    }

    /// Every value of a parameter.
    pub(crate) fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|it| it.0 == key).map(|it| it.1.as_str()).collect()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|it| it.0 == key)
    }

    /// True for every value except `0` and `false`, as the real server parses booleans.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.get(key).to_ascii_lowercase().as_str(), "0" | "false")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, Failure> {
        match self.get(key) {
            "" if !self.has(key) => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }
}

fn decode(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let hex = || std::str::from_utf8(tail.get(..2)?).ok().and_then(|it| u8::from_str_radix(it, 16).ok());
        match first {
            b'%' => match hex() {
                Some(byte) => {
                    bytes.push(byte);
                    rest = &tail[2..];
                }
                None => bytes.push(b'%'),
            },
            b'+' if plus_is_space => bytes.push(b' '),
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The verb of a request, as in RBAC; empty for paths that are not resources.
pub(crate) fn verb(method: &Method, route: &Route, query: &Query) -> &'static str {
    let place = match route {
        Route::Resource(place) => place,
        Route::Watch(_) if method == Method::GET => return "watch",
        Route::Watch(_) | Route::Other => return "",
    };
    match (method.as_str(), &place.name) {
        ("GET", Some(_)) => "get",
        ("GET", None) if query.flag("watch") => "watch",
        ("GET", None) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => "",
    }
}

/// A parsed request.
#[derive(Clone)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) route: Route,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Exchange {
    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }

    /// Bodies must be JSON; a missing content type means JSON.
    pub(crate) fn check_body(&self) -> Result<(), Failure> {
        let media_type = self.header(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "" | "application/json" => self.check_size(),
            "application/yaml" | "application/vnd.kubernetes.protobuf" => {
                let message = "the body of the request was in a format that this server does not read - accepted media \
                               types include: application/json";
                Err(Failure::new(415, "UnsupportedMediaType", message, None))
            }
            _ => {
                let message = "the body of the request was in an unknown format - accepted media types include: \
                               application/json, application/yaml, application/vnd.kubernetes.protobuf";
                Err(Failure::new(415, "UnsupportedMediaType", message, None))
            }
        }
    }

    /// The request with a protobuf body converted to JSON, if its kind is supported.
    ///
    /// # Errors
    /// 413 for a body that is too large, 400 and 501 for one that cannot be decoded.
    fn readable(&self) -> Result<Cow<'_, Self>, Failure> {
        if self.header(header::CONTENT_TYPE) != "application/vnd.kubernetes.protobuf" {
            return Ok(Cow::Borrowed(self));
        }
        self.check_size()?;
        let Some(object) = protobuf::to_json(&self.body) else { return Ok(Cow::Borrowed(self)) };
        let mut read = self.clone();
        read.body = response::encode(&object?);
        read.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Cow::Owned(read))
    }

    pub(crate) fn check_size(&self) -> Result<(), Failure> {
        if self.body.len() <= MAX_BODY {
            return Ok(());
        }
        let message = format!("Request entity too large: limit is {MAX_BODY}");
        Err(Failure::new(413, "RequestEntityTooLarge", message, None))
    }
}

/// Serves a request like a real server.
pub(crate) async fn serve(shared: &Arc<Shared>, exchange: &Exchange) -> Response<ResponseBody> {
    let answer = match &exchange.route {
        Route::Other => discovery::serve(shared, exchange),
        Route::Watch(place) | Route::Resource(place) => serve_resource(shared, exchange, place).await,
    };
    answer.unwrap_or_else(Into::into)
}

async fn serve_resource(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    place: &Place,
) -> Result<Response<ResponseBody>, Failure> {
    if shared.faults.is_broken(&place.group) {
        return Err(Failure::unavailable());
    }
    let target = resolve(shared, place)?;
    let exchange = &*exchange.readable()?;
    let (method, query) = (exchange.method.as_str(), &exchange.query);
    let watched = matches!(exchange.route, Route::Watch(_));
    if watched && place.sub.is_some() {
        return Err(Failure::no_route());
    }
    let collection = place.name.is_none();
    let streams = (collection || watched) && method == "GET";
    let form = negotiate(exchange.header(header::ACCEPT), streams)?;
    let (form, unknown) = table::asked(form, query.get("includeObject"), shared.clock.wall());
    let everywhere = target.kind.namespaced && target.namespace.is_empty();
    let part = match place.sub.as_deref() {
        Some("status") => Part::Status,
        Some("finalize") => Part::Finalize,
        _ => Part::Main,
    };
    let answer = match (method, collection, part) {
        _ if has_own_form(&target, place) => subresource(shared, exchange, &target, place, form).await,
        ("POST", true, _) if target.kind.rules.create_only && !everywhere => review(exchange, &target),
        _ if target.kind.rules.create_only => Err(Failure::method_not_allowed()),
        ("GET", ..) if watched => watch::watch(shared, &target, query, form),
        _ if watched => Err(Failure::method_not_allowed()),
        ("GET", true, _) if query.flag("watch") => watch::watch(shared, &target, query, form),
        ("GET", true, _) => list::list(shared, &target, query, form).await,
        ("POST", true, _) if !everywhere => create(shared, exchange, &target, form),
        ("DELETE", true, _) if !everywhere && !target.kind.is(kinds::NAMESPACES) => {
            delete_collection(shared, exchange, &target, form).await
        }
        ("GET", false, Part::Main | Part::Status) => get::get(shared, &target, query, form).await,
        ("PUT", false, _) => replace(shared, exchange, &target, part, form),
        ("PATCH", false, Part::Main | Part::Status) => apply_patch(shared, exchange, &target, part, form),
        ("DELETE", false, Part::Main) => delete_one(shared, exchange, &target, form),
        _ => Err(Failure::method_not_allowed()),
    };
    let answer =
        if target.kind.is(kinds::ENDPOINTS) { answer.map(|it| response::warn(it, &[deprecated()])) } else { answer };
    // As on a real server, this is reported only when there is something to convert, and after the request was carried
    // out.
    answer.and_then(|it| if it.status().is_success() { unknown.map_or(Ok(it), Err) } else { Ok(it) })
}

fn deprecated() -> String {
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into()
}

/// True when the bodies have another kind than the resource in the path.
fn has_own_form(target: &Target, place: &Place) -> bool {
    matches!(place.sub.as_deref(), Some("scale" | "binding" | "eviction" | "token")) || target.kind.is(kinds::BINDINGS)
}

async fn subresource(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    target: &Target,
    place: &Place,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    match (exchange.method.as_str(), place.sub.as_deref()) {
        // Bindings have no path except the one to create them.
        (_, None) if place.name.is_some() || place.namespace.is_none() => Err(Failure::no_route()),
        ("GET" | "PUT" | "PATCH", Some("scale")) => scale::serve(shared, exchange, target, form).await,
        ("POST", Some("binding") | None) => binding::serve(shared, exchange, target),
        ("POST", Some("eviction")) => eviction::serve(shared, exchange, target),
        ("POST", Some("token")) => tokens::serve(shared, exchange, target),
        _ => Err(Failure::method_not_allowed()),
    }
}

/// Finds the target of a path.
fn resolve(shared: &Shared, place: &Place) -> Result<Target, Failure> {
    let state = shared.state.lock();
    let table = kinds::table_key(&place.group, &place.resource);
    let found = kinds::by_route(&table).or_else(|| state.tables.get(&table).map(|it| &it.kind));
    let Some(kind) = found.cloned() else {
        let built_in = kinds::GROUPS.contains(&place.group.as_str());
        return Err(if apiservice::is_unavailable(&state, &place.group, &place.version) {
            Failure::unavailable()
        } else if built_in {
            Failure::no_route()
        } else {
            Failure::no_group()
        });
    };
    let kind = crd::in_version(&kind, &place.version);
    let wrong_scope = match &place.namespace {
        Some(_) => !kind.namespaced,
        None => kind.namespaced && place.name.is_some(),
    };
    if !kind.serves(&place.version) || wrong_scope {
        return Err(if kind.custom && !wrong_scope { Failure::no_group() } else { Failure::no_route() });
    }
    let name = place.name.clone().unwrap_or_default();
    match place.sub.as_deref() {
        None => {}
        // Only proxies have longer paths; for custom resources the rest of a longer path is ignored.
        Some(sub) if place.deeper && !kind.custom && sub != "proxy" => return Err(Failure::no_route()),
        Some(sub) if kind.rules.subresources.contains(&sub) => {}
        Some(sub) if kind.rules.unserved.contains(&sub) => {
            let failure = Failure::not_served(&format!("{}/{sub}", kind.qualified()));
            let of_a_container = matches!(sub, "attach" | "exec" | "log" | "portforward");
            return Err(if of_a_container { failure.because("no container runs here") } else { failure });
        }
        Some(_) if kind.custom => return Err(Failure::not_found(&kind, &name)),
        Some(_) => return Err(Failure::no_route()),
    }
    Ok(Target {
        table: kind.table(),
        api_version: kinds::join(&place.group, &place.version),
        kind,
        namespace: place.namespace.clone().unwrap_or_default(),
        name,
    })
}

fn review(exchange: &Exchange, target: &Target) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = WriteOptions::parse(Verb::Create, &exchange.query)?;
    let sent = decode::body(&target.kind, &target.api_version, &exchange.body, options.strictness)?;
    let answer = reviews::review(&target.kind, &target.namespace, sent.object)?;
    Ok(response::warn(response::json_answer(201, &answer), &sent.warnings))
}

fn create(
    shared: &Shared,
    exchange: &Exchange,
    target: &Target,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = WriteOptions::parse(Verb::Create, &exchange.query)?;
    let sent = decode::body(&target.kind, &target.api_version, &exchange.body, options.strictness)?;
    let now = shared.clock.wall();
    let act = |it: &mut State| Ok((201, write::create(it, target, sent.object, now)?));
    Ok(response::warn(written(shared, target, options.dry_run, form, act)?, &sent.warnings))
}

fn replace(
    shared: &Shared,
    exchange: &Exchange,
    target: &Target,
    part: Part,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = WriteOptions::parse(Verb::Update, &exchange.query)?;
    let sent = decode::body(&target.kind, &target.api_version, &exchange.body, options.strictness)?;
    let now = shared.clock.wall();
    let act = |it: &mut State| write::replace(it, target, sent.object, part, now);
    Ok(response::warn(written(shared, target, options.dry_run, form, act)?, &sent.warnings))
}

fn apply_patch(
    shared: &Shared,
    exchange: &Exchange,
    target: &Target,
    part: Part,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    let language = Language::of(exchange.header(header::CONTENT_TYPE), target.kind.custom)?;
    exchange.check_size()?;
    let options = WriteOptions::parse(Verb::Patch, &exchange.query)?;
    let now = shared.clock.wall();
    let mut warnings = Vec::new();
    let act = |it: &mut State| {
        let (patched, said) = patch::patch(it, target, language, &exchange.body, part, options.strictness, now)?;
        warnings = said;
        Ok((200, patched))
    };
    let answer = written(shared, target, options.dry_run, form, act)?;
    Ok(response::warn(answer, &warnings))
}

/// Carries out a write and returns the object. If no conversion is needed, the stored bytes are sent.
fn written(
    shared: &Shared,
    target: &Target,
    dry_run: bool,
    form: Form,
    act: impl FnOnce(&mut State) -> Result<(u16, Arc<Value>), Failure>,
) -> Result<Response<ResponseBody>, Failure> {
    let kind = &target.kind;
    let mut state = shared.state.lock();
    let (code, object) = state.act(dry_run, act)?;
    if !dry_run && form == Form::Full && target.api_version == kind.api_version() {
        let key = storage_key(kind, meta::namespace(&object), meta::name(&object));
        let stored = state.stored(&target.table, &key).filter(|it| it.version() == meta::version(&object));
        if let Some(stored) = stored {
            return Ok(response::respond(code, "application/json", stored.body()));
        }
    }
    drop(state);
    Ok(response::one(code, kind, &target.api_version, &object, form))
}

fn delete_one(
    shared: &Shared,
    exchange: &Exchange,
    target: &Target,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = DeleteOptions::parse(&exchange.body, &exchange.query)?;
    let now = shared.clock.wall();
    let deleted = shared.state.lock().act(options.dry_run, |it| delete::delete(it, target, &options, now))?;
    let kind = &target.kind;
    let answer = match deleted {
        Deleted::Gone(last) if !kind.rules.delete_shows_object => {
            response::json_answer(200, &response::deleted(kind, &last))
        }
        Deleted::Gone(object) => response::one(200, kind, &target.api_version, &object, form),
        Deleted::Remains(object) => {
            let code = if options.orphan == Some(false) { 202 } else { 200 };
            response::one(code, kind, &target.api_version, &object, form)
        }
    };
    Ok(response::warn(answer, &options.warnings(kind)))
}

async fn delete_collection(
    shared: &Shared,
    exchange: &Exchange,
    target: &Target,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = DeleteOptions::parse(&exchange.body, &exchange.query)?;
    let request = list::Request::parse(&target.kind, &exchange.query)?;
    get::wait_for(shared, &target.kind, request.not_before).await?;
    let mut state = shared.state.lock();
    let page = list::page(&state, target, &request)?;
    let now = shared.clock.wall();
    state.act(options.dry_run, |it| delete::delete_all(it, target, &page.decode(), &options, now))?;
    drop(state);
    Ok(response::warn(list::render(target, page, form), &options.warnings(&target.kind)))
}
