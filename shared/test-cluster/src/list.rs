use std::{fmt::Write as _, ops::Bound, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Map, Value};

use crate::{
    BoxError, Failure, ResponseBody,
    answer::{self, Fault, Form, META_VERSION},
    cluster::Shared,
    kinds::{self, Kind},
    read,
    rest::Query,
    selectors::Selectors,
    store::State,
    stored::{self, Stored, head},
    write::Target,
};

/// Longer lists go out in pieces of about this many bytes.
const CHUNK: usize = 256 * 1024;

/// A list as asked for, checked.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) selectors: Selectors,
    limit: usize,
    /// Wait until this version is there.
    pub(crate) not_before: u64,
    from: From,
}

/// Which state to show.
#[derive(Debug, Clone, PartialEq)]
enum From {
    Present,
    Past(u64),
    /// After this key, in a past state or (`None`) in the present one.
    Next(Option<u64>, String),
}

/// One page.
pub(crate) struct Page {
    items: Vec<Arc<Stored>>,
    metadata: Map<String, Value>,
}

impl Page {
    /// The objects as values.
    pub(crate) fn decode(&self) -> Vec<Arc<Value>> {
        self.items.iter().map(|it| Arc::new(it.decode())).collect()
    }
}

impl Request {
    /// Reads the query of a list; the matrix of versions, matches and limits is the real server's.
    pub(crate) fn parse(kind: &Kind, query: &Query) -> Result<Self, Failure> {
        let selectors = Selectors::parse(kind, query.get("labelSelector"), query.get("fieldSelector"))?;
        let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
        let (version, token) = (query.get("resourceVersion"), query.get("continue"));
        let wanted = query.get("resourceVersionMatch");
        let invalid = |fault| Err(Failure::invalid_options("ListOptions", fault));
        let refused = |why: &str| invalid(Fault::forbidden("resourceVersionMatch", why));
        if query.has("sendInitialEvents") {
            let fault = Fault::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
            return invalid(fault);
        }
        match (wanted, version, token) {
            ("", _, _) => {}
            (_, _, token) if !token.is_empty() => {
                return refused("resourceVersionMatch is forbidden when continue is provided");
            }
            (_, "", _) => return refused("resourceVersionMatch is forbidden unless resourceVersion is provided"),
            ("Exact", "0", _) => {
                return refused(r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#);
            }
            ("Exact" | "NotOlderThan", _, _) => {}
            (other, _, _) => {
                let supported = r#""Exact", "NotOlderThan", """#;
                return invalid(Fault::unsupported("resourceVersionMatch", other, supported));
            }
        }
        let number = if version.is_empty() { Ok(0) } else { version.parse::<u64>() };
        let number = number.map_err(|_| {
            Failure::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing \
                 {version:?}: invalid syntax"
            ))
        })?;
        if !token.is_empty() {
            if number != 0 {
                return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
            }
            let from = decode_token(token)?;
            return Ok(Self { selectors, limit, not_before: 0, from });
        }
        // The cache of a real server ignores the limit for "0"; events have no cache.
        let limit = if version == "0" && !kind.is(kinds::EVENTS) { 0 } else { limit };
        let exact = wanted == "Exact" || (wanted.is_empty() && number != 0 && limit > 0);
        let from = if exact { From::Past(number) } else { From::Present };
        Ok(Self { selectors, limit, not_before: number, from })
    }
}

/// Answers a list.
pub(crate) async fn list(
    shared: &Shared,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    let request = Request::parse(&target.kind, query)?;
    read::wait_for(shared, request.not_before).await?;
    let page = page(&shared.state.lock(), target, &request)?;
    Ok(render(target, page, form))
}

/// Encodes a page, outside the lock: from the stored bytes where nothing is to be converted.
pub(crate) fn render(target: &Target, page: Page, form: Form) -> Response<ResponseBody> {
    let kind = &target.kind;
    let plain = kind.custom || target.api_version == kind.api_version();
    let (list_kind, api_version, head) = match form {
        Form::Full if kind.custom => (&*kind.list_kind, &*target.api_version, head(&kind.kind, &target.api_version)),
        Form::Full if plain => (&*kind.list_kind, &*target.api_version, b"{".to_vec()),
        Form::MetadataList => ("PartialObjectMetadataList", META_VERSION, metadata_head()),
        _ => return answer::list(kind, &target.api_version, &page.decode(), page.metadata, form),
    };
    let metadata = form == Form::MetadataList;
    let size: usize = page.items.iter().map(|it| head.len() + it.members().len() + 1).sum();
    let mut first = Vec::with_capacity(256 + size.min(CHUNK));
    first.extend_from_slice(&stored::head(list_kind, api_version));
    first.extend_from_slice(b"\"metadata\":");
    first.extend_from_slice(&answer::encode(&page.metadata));
    first.extend_from_slice(b",\"items\":[");
    let mut items = Items { items: page.items.into_iter(), head, metadata, begun: false, ended: false };
    if size < CHUNK {
        items.fill(&mut first, usize::MAX);
        return answer::respond(200, "application/json", first.into());
    }
    // A list of a whole cluster goes out piece by piece: nobody holds it twice.
    let chunks = std::iter::once(Bytes::from(first)).chain(items);
    let frames = stream::iter(chunks.map(|it| Ok::<_, BoxError>(Frame::data(it))));
    answer::respond_with(200, "application/json", StreamBody::new(frames).boxed_unsync())
}

/// The items of a list, encoded as they are taken.
struct Items {
    items: std::vec::IntoIter<Arc<Stored>>,
    /// What each item begins with.
    head: Vec<u8>,
    /// Metadata alone.
    metadata: bool,
    begun: bool,
    ended: bool,
}

impl Items {
    /// Appends items until there are `enough` bytes; behind the last one the end of the list.
    fn fill(&mut self, bytes: &mut Vec<u8>, enough: usize) {
        while bytes.len() < enough {
            let Some(item) = self.items.next() else {
                self.ended = true;
                bytes.extend_from_slice(b"]}");
                return;
            };
            if self.begun {
                bytes.push(b',');
            }
            self.begun = true;
            bytes.extend_from_slice(&self.head);
            if self.metadata {
                bytes.extend_from_slice(item.metadata());
                bytes.push(b'}');
            } else {
                bytes.extend_from_slice(item.members());
            }
        }
    }
}

impl Iterator for Items {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut bytes = Vec::with_capacity(CHUNK + CHUNK / 4);
        self.fill(&mut bytes, CHUNK);
        Some(bytes.into())
    }
}

/// How an object begins of which only the metadata is shown.
pub(crate) fn metadata_head() -> Vec<u8> {
    head("PartialObjectMetadata", META_VERSION)
}

/// The page that the request asks for.
pub(crate) fn page(state: &State, target: &Target, request: &Request) -> Result<Page, Failure> {
    let table = state.table(&target.table)?;
    let (version, after) = match &request.from {
        From::Present => (state.version, None),
        From::Past(version) => (*version, None),
        From::Next(version, after) => (version.unwrap_or(state.version), Some(after.as_str())),
    };
    if version < table.floor {
        return Err(too_old(after));
    }
    let objects = table.at(version);
    let prefix = prefix(target);
    let first = match after {
        Some(key) => Bound::Excluded(key),
        None => Bound::Included(prefix.as_str()),
    };
    let mut rest = objects.range(first).take_while(|it| it.key.starts_with(&prefix));
    let (mut items, mut last) = (Vec::new(), None);
    for object in rest.by_ref() {
        if request.selectors.matches(object) {
            items.push(object.clone());
            last = Some(object.key.clone());
        }
        if request.limit > 0 && items.len() == request.limit {
            break;
        }
    }
    let behind = rest.count();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), version.to_string().into());
    if let Some(last) = last.filter(|_| behind > 0) {
        metadata.insert("continue".into(), token(Some(version), &last).into());
        if request.selectors.is_empty() {
            metadata.insert("remainingItemCount".into(), behind.into());
        }
    }
    Ok(Page { items, metadata })
}

/// What the keys of the target's namespace begin with.
pub(crate) fn prefix(target: &Target) -> String {
    if target.namespace.is_empty() { String::new() } else { format!("{}/", target.namespace) }
}

fn too_old(after: Option<&str>) -> Failure {
    let Some(after) = after else {
        return Failure::expired("The resourceVersion for the provided list is too old.");
    };
    let failure = Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    match failure {
        Failure::Status { code, mut body } => {
            body["metadata"]["continue"] = token(None, after).into();
            Failure::Status { code, body }
        }
        text => text,
    }
}

/// `v1.<version>.<hex of the last key>`: opaque to clients.
fn token(version: Option<u64>, key: &str) -> String {
    let version = version.map_or_else(|| "-1".to_owned(), |it| it.to_string());
    key.bytes().fold(format!("v1.{version}."), |mut token, byte| {
        // Writing into a string cannot fail.
        let _ = write!(token, "{byte:02x}");
        token
    })
}

fn decode_token(token: &str) -> Result<From, Failure> {
    let wrong = |why: &str| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let mut parts = token.splitn(3, '.');
    let (encoded, version, key) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if encoded != "v1" {
        return Err(wrong(&format!("server does not recognize this encoded version {encoded}")));
    }
    let version = match version {
        Some("-1") => None,
        Some(number) => Some(number.parse().map_err(|_| wrong("version is no number"))?),
        None => return Err(wrong("no version")),
    };
    let hex = key.unwrap_or_default().as_bytes();
    let bytes: Option<Vec<u8>> =
        hex.chunks(2).map(|it| std::str::from_utf8(it).ok().and_then(|it| u8::from_str_radix(it, 16).ok())).collect();
    let key = bytes.and_then(|it| String::from_utf8(it).ok()).ok_or_else(|| wrong("key is not encoded"))?;
    Ok(From::Next(version, key))
}
