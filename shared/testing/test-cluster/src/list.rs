mod render;
mod token;

use std::{ops::Bound, sync::Arc};

use http::Response;
use serde_json::{Map, Value};

pub(crate) use render::{metadata_head, render};

use crate::{
    Failure, ResponseBody,
    cluster::Shared,
    get,
    kinds::{self, Kind},
    response::{Fault, Form},
    rest::Query,
    selectors::Selectors,
    store::State,
    stored::Stored,
    write::Target,
};

/// The parsed options of a list.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) selectors: Selectors,
    limit: usize,
    /// Wait until the cluster has reached this version.
    pub(crate) not_before: u64,
    from: From,
}

/// Which state to show.
#[derive(Debug, Clone, PartialEq)]
enum From {
    Present,
    Past(u64),
    /// After the previous page.
    Next(token::Place),
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
    /// Parses the query of a list, with a real server's rules for versions, matches and limits.
    pub(crate) fn parse(kind: &Kind, query: &Query) -> Result<Self, Failure> {
        let selectors = Selectors::parse(kind, query.get("labelSelector"), query.get("fieldSelector"))?;
        let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
        let (version, token) = (query.get("resourceVersion"), query.get("continue"));
        query.number("timeoutSeconds")?;
        let wanted = query.get("resourceVersionMatch");
        let mut faults = Vec::new();
        let mut refuse = |why: &str| faults.push(Fault::forbidden("resourceVersionMatch", why));
        if !wanted.is_empty() {
            if version.is_empty() {
                refuse("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !token.is_empty() {
                refuse("resourceVersionMatch is forbidden when continue is provided");
            }
            if wanted == "Exact" && version == "0" {
                refuse(r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#);
            }
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                let supported = r#""Exact", "NotOlderThan", """#;
                faults.push(Fault::unsupported("resourceVersionMatch", wanted, supported));
            }
        }
        if query.has("sendInitialEvents") {
            let why = "sendInitialEvents is forbidden for list";
            faults.push(Fault::forbidden("sendInitialEvents", why));
        }
        if !faults.is_empty() {
            return Err(Failure::invalid_query("ListOptions", &faults));
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
            let from = From::Next(token::decode(token)?);
            return Ok(Self { selectors, limit, not_before: 0, from });
        }
        // The watch cache of a real server ignores the limit for version "0"; Events have no watch cache.
        let limit = if version == "0" && !kind.is(kinds::EVENTS) { 0 } else { limit };
        let exact = wanted == "Exact" || (wanted.is_empty() && number != 0 && limit > 0);
        let from = if exact { From::Past(number) } else { From::Present };
        Ok(Self { selectors, limit, not_before: number, from })
    }
}

/// Serves a list.
pub(crate) async fn list(
    shared: &Shared,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    let request = Request::parse(&target.kind, query)?;
    get::wait_for(shared, &target.kind, request.not_before).await?;
    let page = page(&shared.state.lock(), target, &request)?;
    Ok(render(target, page, form))
}

/// The requested page.
pub(crate) fn page(state: &State, target: &Target, request: &Request) -> Result<Page, Failure> {
    let table = state.table(&target.table)?;
    let prefix = prefix(target);
    let (version, first) = match &request.from {
        From::Present => (state.version, prefix.clone()),
        From::Past(version) => (*version, prefix.clone()),
        From::Next(place) => (place.version.unwrap_or(state.version), format!("{prefix}{}", place.first)),
    };
    if version < table.floor {
        return Err(too_old(&request.from));
    }
    let objects = table.at(version);
    let first = Bound::Included(first.as_str());
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
    // Only lists without selectors return the number of remaining objects, for which counting keys is enough.
    let behind = if request.selectors.is_empty() { rest.count() } else { usize::from(rest.next().is_some()) };
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), version.to_string().into());
    if let Some(last) = last.filter(|_| behind > 0) {
        metadata.insert("continue".into(), token::encode(Some(version), &last[prefix.len()..]).into());
        if request.selectors.is_empty() {
            metadata.insert("remainingItemCount".into(), behind.into());
        }
    }
    Ok(Page { items, metadata })
}

/// The prefix of the keys in the target's namespace.
pub(crate) fn prefix(target: &Target) -> String {
    if target.namespace.is_empty() { String::new() } else { format!("{}/", target.namespace) }
}

fn too_old(from: &From) -> Failure {
    let From::Next(place) = from else {
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
            let last = place.first.trim_end_matches('\0');
            body["metadata"]["continue"] = token::encode(None, last).into();
            Failure::Status { code, body }
        }
        text => text,
    }
}
