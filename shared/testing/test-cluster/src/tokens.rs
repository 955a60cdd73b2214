//! Tokens of ServiceAccounts: each names its account, expires, and is invalid once the account is deleted.
//!
//! Any other token is accepted without a check, because tests and the playground need that.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use clock::Timestamp;
use http::{Response, header};
use serde_json::{Value, json};

use crate::{
    Failure, ResponseBody,
    cluster::Shared,
    decode,
    kinds::{self, Kind},
    meta, namespace,
    options::{Verb, WriteOptions},
    response::{self, Fault},
    rest::Exchange,
    store::{State, storage_key},
    write::Target,
};

const VERSION: &str = "authentication.k8s.io/v1";
/// The audience of tokens whose request has none.
const AUDIENCE: &str = "https://kubernetes.default.svc";
/// Seconds.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
const USUAL: i64 = 3_600;
/// The prefix of tokens of this server.
const PREFIX: &str = "system:serviceaccount:";

static TOKEN_REQUEST: LazyLock<Kind> = LazyLock::new(|| kinds::of_subresource("authentication.k8s.io", "TokenRequest"));

/// The issued tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<String, Issued>);

#[derive(Debug)]
struct Issued {
    namespace: String,
    name: String,
    /// The uid of the account: a new account of the same name is another account.
    uid: String,
    ends: Timestamp,
}

/// Serves a POST to `serviceaccounts/<name>/token`.
pub(crate) fn serve(shared: &Shared, exchange: &Exchange, target: &Target) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = WriteOptions::parse(Verb::Create, &exchange.query)?;
    if options.dry_run {
        return Err(Failure::not_served("serviceaccounts/token as a dry run"));
    }
    let sent = decode::body(&TOKEN_REQUEST, VERSION, &exchange.body, options.strictness)?;
    let now = shared.clock.wall();
    let issued = issue(&mut shared.state.lock(), target, sent.object, now)?;
    Ok(response::warn(response::json_answer(201, &issued), &sent.warnings))
}

fn issue(state: &mut State, target: &Target, request: Value, now: Timestamp) -> Result<Value, Failure> {
    namespace::admit_create(state, &target.kind, &target.namespace, &target.name)?;
    let account = target.current(state)?;
    let spec = &request["spec"];
    let audiences = meta::texts(spec, "audiences");
    if !spec["boundObjectRef"].is_null() || audiences.iter().any(|it| *it != AUDIENCE) {
        return Err(Failure::not_served("serviceaccounts/token bound to an object or for other audiences"));
    }
    let life = spec["expirationSeconds"].as_i64().unwrap_or(USUAL);
    check_life(life)?;
    let ends = now + Duration::from_secs(life.unsigned_abs());
    let (namespace, name) = (target.namespace.clone(), target.name.clone());
    let token = format!("{PREFIX}{namespace}:{name}/{}", state.tokens.0.len() + 1);
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": VERSION,
        "metadata": {
            "name": name, "namespace": namespace, "uid": meta::new_uid(&mut state.rng), "creationTimestamp": text(now),
        },
        "spec": { "audiences": [AUDIENCE], "expirationSeconds": life, "boundObjectRef": null },
        "status": { "token": token, "expirationTimestamp": text(ends) },
    });
    state.tokens.0.insert(token, Issued { namespace, name, uid: meta::uid(&account).to_owned(), ends });
    Ok(answer)
}

fn check_life(seconds: i64) -> Result<(), Failure> {
    let wrong = match seconds {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        SHORTEST..=LONGEST => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    Err(Failure::invalid(&TOKEN_REQUEST, "", &[Fault::invalid("spec.expirationSeconds", &json!(seconds), wrong)]))
}

/// In whole seconds, as times in the API.
fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The bearer token of the `Authorization` header; empty when missing.
pub(crate) fn of(exchange: &Exchange) -> &str {
    exchange.header(header::AUTHORIZATION).trim_start_matches("Bearer ")
}

/// The account of a token as a user name; empty for tokens that are not from this server.
pub(crate) fn user(token: &str) -> &str {
    if token.starts_with(PREFIX) { token.split('/').next().unwrap_or_default() } else { "" }
}

/// Refuses a token of this server that is not valid any more.
///
/// # Errors
/// 401.
pub(crate) fn check(state: &State, token: &str, now: Timestamp) -> Result<(), Failure> {
    if !token.starts_with(PREFIX) {
        return Ok(());
    }
    let lives = state.tokens.0.get(token).is_some_and(|it| {
        let account = kinds::by_route(kinds::SERVICE_ACCOUNTS)
            .and_then(|kind| state.object(&kind.table(), &storage_key(kind, &it.namespace, &it.name)));
        now < it.ends && account.is_some_and(|account| meta::uid(&account) == it.uid)
    });
    if lives { Ok(()) } else { Err(Failure::new(401, "Unauthorized", "Unauthorized", None)) }
}
