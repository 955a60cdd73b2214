//! OpenAPI version 3, as far as kubectl looks: which kinds are there, and that their PATCH checks fields on the server.

use bytes::Bytes;
use http::{HeaderName, Response};
use serde_json::{Map, Value, json};

use crate::{Failure, ResponseBody, answer, discovery::Catalogue, kinds::Kind};

/// In which kubectl names its command.
pub(crate) const COMMAND: HeaderName = HeaderName::from_static("kubectl-command");
/// How kubectl asks for protobuf, and how the answer must call it: a media type has no `@`.
const ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The answer to `kubectl explain`, which of a document without schemas would only say that the kind is not in it. It shows
/// text, and no Status.
pub(crate) fn no_fields() -> Failure {
    Failure::Text { code: 501, text: "kubectl explain is not served by this test cluster: no field is described here" }
}

/// Version 2, a document that describes nothing: kubectl reads it for files of kind `List`, which version 3 does not
/// know, and leaves alone what it does not find there. In protobuf that is a message of no bytes.
pub(crate) fn second(accept: &str) -> Response<ResponseBody> {
    if accept.contains(ASKED) || accept.contains(PROTOBUF) {
        return answer::respond(200, PROTOBUF, Bytes::new());
    }
    let info = json!({ "title": "Kubernetes", "version": "v1.36.2" });
    answer::json_answer(200, &json!({ "swagger": "2.0", "info": info, "paths": {} }))
}

/// The index: where the document of each group-version is.
pub(crate) fn index(catalogue: &Catalogue) -> Value {
    let mut paths = Map::new();
    for it in catalogue.versions().filter(|it| it.available) {
        let path = path_of(&it.group, &it.version);
        // kubectl keeps documents by this address: the hash changes with the kinds.
        let kinds: Vec<&str> = catalogue.kinds(&it.group, &it.version).map(|it| it.kind.as_str()).collect();
        let hash = hash(kinds.join(",").as_bytes());
        paths.insert(path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash:016X}") }));
    }
    json!({ "paths": paths })
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// FNV-1a: any stable number will do.
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
    // No schemas: a client that explains says so instead of stumbling over the missing map.
    Ok(json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.2" }, "paths": paths,
        "components": { "schemas": {} },
    }))
}

/// A PATCH that takes `fieldValidation`. Without a body described, kubectl merges by the types it was built with.
///
/// A kubectl built with a newer toolchain than its release's reads the embedded parts under their own names only.
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
