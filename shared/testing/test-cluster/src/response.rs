use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value, json};

use crate::{
    BoxError, ResponseBody,
    kinds::Kind,
    meta,
    table::{self, TableOptions},
    versions,
};

/// Why a request fails, with the response of the API server.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// A `Status` body.
    Status { code: u16, body: Box<Value> },
    /// Plain text: for unknown or unavailable groups.
    Text { code: u16, text: &'static str },
}

impl Failure {
    /// A Status with a reason. An empty reason is omitted, as for unclassified errors.
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>, details: Option<Value>) -> Self {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.into(), "code": code,
        });
        if !reason.is_empty() {
            body["reason"] = json!(reason);
        }
        if let Some(details) = details {
            body["details"] = details;
        }
        Self::Status { code, body: Box::new(body) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, None)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::new(404, "NotFound", message, Some(kind.details(name)))
    }

    /// The path does not exist (not only the object).
    pub(crate) fn no_route() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource", Some(json!({})))
    }

    pub(crate) fn no_group() -> Self {
        Self::Text { code: 404, text: "404 page not found\n" }
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, Some(json!({})))
    }

    pub(crate) fn already_exists(kind: &Kind, existing: &Value) -> Self {
        let name = meta::name(existing);
        let deleting = if meta::is_deleting(existing) { "object is being deleted: " } else { "" };
        let message = format!("{deleting}{} {name:?} already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message, Some(kind.details(name)))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(409, "Conflict", message, Some(kind.details(name)))
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
        Self::new(403, "Forbidden", message, Some(kind.details(name)))
    }

    /// The object is invalid in one or more fields.
    pub(crate) fn invalid(kind: &Kind, name: &str, faults: &[Fault]) -> Self {
        Self::invalid_as(&kind.kind, kind.stored_group(), name, faults)
    }

    /// The options of a request are invalid. They are objects of group `meta.k8s.io` without a name.
    pub(crate) fn invalid_options(options: &str, fault: Fault) -> Self {
        Self::invalid_query(options, &[fault])
    }

    /// The same with several faults.
    pub(crate) fn invalid_query(options: &str, faults: &[Fault]) -> Self {
        Self::invalid_as(options, "meta.k8s.io", "", faults)
    }

    /// The result of a patch does not decode: the failure names neither kind nor object.
    pub(crate) fn invalid_patch(fault: &Fault) -> Self {
        let message = format!(" \"\" is invalid: {}: {}", fault.field, fault.message);
        let cause = json!({ "reason": fault.reason, "message": fault.message, "field": fault.field });
        Self::new(422, "Invalid", message, Some(json!({ "causes": [cause] })))
    }

    fn invalid_as(kind: &str, group: &str, name: &str, faults: &[Fault]) -> Self {
        let texts: Vec<String> = faults.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        let all = if texts.len() == 1 { texts.join("") } else { format!("[{}]", texts.join(", ")) };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> =
            faults.iter().map(|it| json!({ "reason": it.reason, "message": it.message, "field": it.field })).collect();
        let mut details = json!({ "kind": kind, "causes": causes });
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {all}"), Some(details))
    }

    /// An unclassified error: a message without a reason.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message, None)
    }

    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message, Some(details))
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message, None)
    }

    /// The response for features of a real server that this one does not implement.
    pub(crate) fn not_served(what: &str) -> Self {
        Self::new(501, "NotImplemented", format!("{what} is not served by this test cluster"), Some(json!({})))
    }

    /// The same with an explanation for the user.
    pub(crate) fn because(mut self, why: &str) -> Self {
        if let Self::Status { body, .. } = &mut self
            && let Some(message) = body["message"].as_str()
        {
            body["message"] = format!("{message}: {why}").into();
        }
        self
    }

    pub(crate) fn unavailable() -> Self {
        Self::Text { code: 503, text: "service unavailable\n" }
    }

    /// The Status for the ERROR frame of a watch.
    pub(crate) fn into_status(self) -> Value {
        match self {
            Self::Status { body, .. } => *body,
            Self::Text { code, text } => match Self::new(code, "", text, None) {
                Self::Status { body, .. } => *body,
                Self::Text { .. } => Value::Null,
            },
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, .. })
    }
}

/// One invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    reason: &'static str,
    field: String,
    message: String,
}

impl Fault {
    /// A fault with any reason and its full message.
    pub(crate) fn of(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, field: field.into(), message: message.into() }
    }

    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".into() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {value}: {detail}");
        Self { reason: "FieldValueInvalid", field: field.into(), message }
    }

    /// With the value in the form that the message must show.
    pub(crate) fn invalid_shown(field: impl Into<String>, shown: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {shown}: {detail}");
        Self { reason: "FieldValueInvalid", field: field.into(), message }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {detail}") }
    }

    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self { reason: "FieldValueTooLong", field: field.into(), message }
    }

    pub(crate) fn unsupported_list(field: impl Into<String>, values: &[&str], supported: &str) -> Self {
        let message = format!("Unsupported value: {}: supported values: {supported}", json!(values));
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &str, supported: &str) -> Self {
        let message = format!("Unsupported value: {value:?}: supported values: {supported}");
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }
}

impl From<Failure> for Response<ResponseBody> {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Text { code, text } => {
                respond(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
            }
            Failure::Status { code, body } => {
                let wait = body["details"]["retryAfterSeconds"].as_u64();
                let mut answer = json_answer(code, &body);
                if let Some(wait) = wait {
                    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
                }
                answer
            }
        }
    }
}

/// A response with these bytes.
pub(crate) fn respond(code: u16, content_type: &str, body: Bytes) -> Response<ResponseBody> {
    respond_with(code, content_type, Full::new(body).map_err(|never| -> BoxError { match never {} }).boxed_unsync())
}

/// A response whose body may be a stream.
pub(crate) fn respond_with(code: u16, content_type: &str, body: ResponseBody) -> Response<ResponseBody> {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

/// A response with this JSON.
pub(crate) fn json_answer(code: u16, body: &Value) -> Response<ResponseBody> {
    respond(code, "application/json", encode(body))
}

/// Adds `Warning` headers to a response.
pub(crate) fn warn(mut answer: Response<ResponseBody>, warnings: &[String]) -> Response<ResponseBody> {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
    answer
}

/// Encodes JSON. A `Value` always encodes, because its keys are text and its numbers are finite.
pub(crate) fn encode(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_default()
}

/// The success of a DELETE of a kind that returns a Status.
pub(crate) fn deleted(kind: &Kind, object: &Value) -> Value {
    let mut details = kind.details(meta::name(object));
    details["uid"] = json!(meta::uid(object));
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

/// The success of a POST that creates no object.
pub(crate) fn created() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 })
}

/// The form in which the client wants objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The whole object.
    Full,
    /// `as=PartialObjectMetadata`
    Metadata,
    /// `as=PartialObjectMetadataList`
    MetadataList,
    /// `as=Table`
    Table(TableOptions),
}

/// One object in the wanted form. As on a real server, a form that does not fit the object is refused only after the
/// request was carried out.
pub(crate) fn one(code: u16, kind: &Kind, api_version: &str, object: &Value, form: Form) -> Response<ResponseBody> {
    match form {
        Form::Full => respond(code, "application/json", encode(&Shown { object, api_version, typed: true })),
        Form::Metadata => respond(code, "application/json", encode(&metadata_of(object))),
        Form::Table(options) => {
            respond(code, "application/json", encode(&table::of_one(kind, api_version, object, options, true)))
        }
        Form::MetadataList => Failure::new(
            406,
            "NotAcceptable",
            format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
                kind.go_package(),
                kind.kind
            ),
            None,
        )
        .into(),
    }
}

/// A list in the wanted form.
pub(crate) fn list(
    kind: &Kind,
    api_version: &str,
    items: &[std::sync::Arc<Value>],
    metadata: Map<String, Value>,
    form: Form,
) -> Response<ResponseBody> {
    match form {
        Form::Full => {
            let items: Vec<_> = items.iter().map(|object| Shown { object, api_version, typed: kind.custom }).collect();
            let list = List { kind: &kind.list_kind, api_version, metadata, items };
            respond(200, "application/json", encode(&list))
        }
        Form::MetadataList => {
            let items: Vec<_> = items.iter().map(|object| metadata_of(object)).collect();
            let list = List { kind: "PartialObjectMetadataList", api_version: META_VERSION, metadata, items };
            respond(200, "application/json", encode(&list))
        }
        Form::Table(options) => {
            respond(200, "application/json", encode(&table::of_list(kind, api_version, items, metadata, options)))
        }
        Form::Metadata => Failure::new(
            406,
            "NotAcceptable",
            format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{}.{})",
                kind.go_package(),
                kind.list_kind
            ),
            None,
        )
        .into(),
    }
}

pub(crate) const META_VERSION: &str = "meta.k8s.io/v1";

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a, T> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Map<String, Value>,
    items: Vec<T>,
}

/// An object with only its metadata.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetadataOnly<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: &'a Value,
}

pub(crate) fn metadata_of(object: &Value) -> MetadataOnly<'_> {
    MetadataOnly { kind: "PartialObjectMetadata", api_version: META_VERSION, metadata: &object["metadata"] }
}

/// An object in the requested version. Items of built-in lists have no kind and version.
pub(crate) struct Shown<'a> {
    pub(crate) object: &'a Value,
    pub(crate) api_version: &'a str,
    pub(crate) typed: bool,
}

impl serde::Serialize for Shown<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = versions::shown(self.object, self.api_version);
        let Value::Object(object) = &*object else { return object.serialize(serializer) };
        serializer.collect_map(object.iter().filter_map(|(field, value)| match field.as_str() {
            "kind" | "apiVersion" if !self.typed => None,
            "apiVersion" => Some((field, Field::Text(self.api_version))),
            _ => Some((field, Field::Value(value))),
        }))
    }
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Text(&'a str),
    Value(&'a Value),
}
