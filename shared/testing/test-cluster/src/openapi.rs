//! OpenAPI version 3, as far as kubectl needs it: which kinds exist, and that the server validates fields of their
//! PATCH.

use bytes::Bytes;
use http::{HeaderName, Response};
use serde_json::{Map, Value, json};

use crate::{Failure, ResponseBody, discovery::Catalogue, kinds::Kind, response};

/// The header in which kubectl sends its command.
pub(crate) const COMMAND: HeaderName = HeaderName::from_static("kubectl-command");
/// The media type that kubectl requests. In the response it has no `@`, which is not allowed in a media type.
const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The response to `kubectl explain`. From a document without schemas, kubectl would only report that the kind is
/// missing. kubectl shows plain text, but not a Status.
pub(crate) fn no_fields() -> Failure {
    Failure::Text { code: 501, text: "kubectl explain is not served by this test cluster: no field is described here" }
}

/// OpenAPI version 2, an empty document. kubectl reads it for files of kind `List`, which version 3 does not contain,
/// and ignores kinds that are missing. In protobuf the empty document has no bytes.
pub(crate) fn second(accept: &str) -> Response<ResponseBody> {
    if accept.contains(ASKED) || accept.contains(PROTOBUF) {
        return response::respond(200, PROTOBUF, Bytes::new());
    }
    let info = json!({ "title": "Kubernetes", "version": "v1.36.2" });
    response::json_answer(200, &json!({ "swagger": "2.0", "info": info, "paths": {} }))
}

/// The index with the path of each group-version's document.
pub(crate) fn index(catalogue: &Catalogue) -> Value {
    let mut paths = Map::new();
    for it in catalogue.versions().filter(|it| it.available) {
        let path = path_of(&it.group, &it.version);
        // kubectl caches documents by this path, so the hash changes when the kinds change.
        let kinds: Vec<&str> = catalogue.kinds(&it.group, &it.version).map(|it| it.kind.as_str()).collect();
        let hash = hash(kinds.join(",").as_bytes());
        paths.insert(path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash:016X}") }));
    }
    json!({ "paths": paths })
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// FNV-1a; any stable hash would do.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The document of one group-version.
pub(crate) fn document(catalogue: &Catalogue, group: &str, version: &str) -> Result<Value, Failure> {
    catalogue.available(group, version)?;
    let mut paths = Map::new();
    let patched = catalogue.kinds(group, version).filter(|it| it.verbs().contains(&"patch"));
    for kind in patched {
        let base = path_of(group, version);
        let namespace = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        paths.insert(format!("/{base}{namespace}/{}/{{name}}", kind.plural), json!({ "patch": patch(kind, version) }));
    }
    // The map of schemas is empty but present, so that `kubectl explain` prints an error and does not crash.
    Ok(json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.2" }, "paths": paths,
        "components": { "schemas": {} },
    }))
}

/// A PATCH with the parameter `fieldValidation`. The body has no schema, so kubectl merges with its built-in types.
///
/// A kubectl that was built with a newer Go toolchain finds embedded fields only under their own names.
fn patch(kind: &Kind, version: &str) -> Value {
    let gvk = json!({ "group": kind.group, "version": version, "kind": kind.kind });
    let parameters = json!([{ "name": "fieldValidation", "in": "query" }]);
    json!({
        "parameters": parameters,
        "responses": { "200": { "description": "OK" } },
        "x-kubernetes-group-version-kind": gvk,
        "Extensions": { "x-kubernetes-group-version-kind": gvk },
        "OperationProps": { "parameters": parameters },
    })
}
