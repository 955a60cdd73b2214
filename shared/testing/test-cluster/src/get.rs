use std::time::Duration;

use http::Response;

use crate::{
    Failure, ResponseBody,
    cluster::Shared,
    kinds::{self, Kind},
    meta,
    response::{self, Form},
    rest::Query,
    write::Target,
};

/// How long a read waits for a version that does not exist yet.
pub(crate) const WAIT: Duration = Duration::from_secs(3);

/// Serves a GET of one object.
pub(crate) async fn get(
    shared: &Shared,
    target: &Target,
    query: &Query,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    wait_for(shared, &target.kind, version(query)?).await?;
    let stored = shared.state.lock().stored(&target.table, &target.key()).cloned();
    let stored = stored.ok_or_else(|| Failure::not_found(&target.kind, &target.name))?;
    if form == Form::Full && target.api_version == target.kind.api_version() {
        return Ok(response::respond(200, "application/json", stored.body()));
    }
    Ok(response::one(200, &target.kind, &target.api_version, &stored.decode(), form))
}

/// The version in the query of a GET or a watch; 0 for none.
pub(crate) fn version(query: &Query) -> Result<u64, Failure> {
    match query.get("resourceVersion") {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            let syntax = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            Failure::internal(format!("resourceVersion: Invalid value: {text:?}: {syntax}"))
        }),
    }
}

/// Waits, at most 3 s, until the cluster has reached a version. Events have no watch cache, so a real server refuses a
/// later version at once.
pub(crate) async fn wait_for(shared: &Shared, kind: &Kind, version: u64) -> Result<(), Failure> {
    let (progress, current) = {
        let state = shared.state.lock();
        (state.progress.subscribe(), state.version)
    };
    if version > current && kind.table() == kinds::EVENTS {
        return Err(without_retry(Failure::too_large_version(version, current)));
    }
    // The sender belongs to the cluster, which this request keeps alive.
    let reached = tokio::time::timeout(WAIT, progress.wait_until_reached(version)).await;
    match reached {
        Ok(()) => Ok(()),
        Err(_) => Err(Failure::too_large_version(version, shared.state.lock().version)),
    }
}

fn without_retry(failure: Failure) -> Failure {
    match failure {
        Failure::Status { code, mut body } => {
            meta::map(&mut body, "details").remove("retryAfterSeconds");
            Failure::Status { code, body }
        }
        text => text,
    }
}
