//! The scale subresource: the wanted and the present number of replicas, in one form for all scalable kinds.

use std::sync::{Arc, LazyLock};

use clock::Timestamp;
use http::{Response, header};
use serde_json::{Value, json};

use crate::{
    Failure, ResponseBody,
    cluster::Shared,
    decode, get,
    kinds::{self, Kind},
    label_selector, meta,
    options::{Verb, WriteOptions},
    patch::Language,
    response::{self, Fault, Form},
    rest::Exchange,
    store::State,
    write::{self, Part, Target},
};

const VERSION: &str = "autoscaling/v1";

/// The kind of its bodies.
static SCALE: LazyLock<Kind> = LazyLock::new(|| kinds::of_subresource("autoscaling", "Scale"));

/// The fields of a kind that its scale shows.
struct Paths {
    replicas: String,
    ready: String,
    selector: Selector,
}

enum Selector {
    /// The labels themselves.
    Labels,
    /// Labels and expressions.
    Object,
    /// A text at this path, if any.
    Text(Option<String>),
}

/// Serves GET, PUT and PATCH of a scale.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    target: &Target,
    form: Form,
) -> Result<Response<ResponseBody>, Failure> {
    let paths = paths(target)?;
    let (scale, warnings) = match exchange.method.as_str() {
        "GET" => {
            get::wait_for(shared, &target.kind, get::version(&exchange.query)?).await?;
            let object = target.current(&shared.state.lock())?;
            may_be_shown(target, &paths, &object)?;
            (shown(&paths, &object), Vec::new())
        }
        "PUT" => replace(shared, exchange, target, &paths)?,
        "PATCH" => patch(shared, exchange, target, &paths)?,
        _ => return Err(Failure::method_not_allowed()),
    };
    Ok(response::warn(response::one(200, &SCALE, VERSION, &scale, form), &warnings))
}

type Scaled = Result<(Value, Vec<String>), Failure>;

fn replace(shared: &Shared, exchange: &Exchange, target: &Target, paths: &Paths) -> Scaled {
    exchange.check_body()?;
    let options = WriteOptions::parse(Verb::Update, &exchange.query)?;
    let sent = decode::body(&SCALE, VERSION, &exchange.body, options.strictness)?;
    let now = shared.clock.wall();
    let scaled = shared.state.lock().act(options.dry_run, |state| {
        write::check_identity(target, &sent.object)?;
        let current = target.current(state)?;
        store(state, target, paths, &current, &sent.object, now)
    })?;
    Ok((scaled, sent.warnings))
}

fn patch(shared: &Shared, exchange: &Exchange, target: &Target, paths: &Paths) -> Scaled {
    let language = Language::of(exchange.header(header::CONTENT_TYPE), false)?;
    exchange.check_size()?;
    let options = WriteOptions::parse(Verb::Patch, &exchange.query)?;
    let patch = language.decode(&exchange.body)?;
    let now = shared.clock.wall();
    shared.state.lock().act(options.dry_run, |state| {
        let current = target.current(state)?;
        let scale = shown(paths, &current);
        let next = language.patched(&SCALE, VERSION, &scale, &patch, options.strictness)?;
        write::check_identity(target, &next.object)?;
        Ok((store(state, target, paths, &current, &next.object, now)?, next.warnings))
    })
}

/// Stores only the wanted replicas of a scale.
fn store(
    state: &mut State,
    target: &Target,
    paths: &Paths,
    current: &Arc<Value>,
    scale: &Value,
    now: Timestamp,
) -> Result<Value, Failure> {
    let (uid, version) = (meta::uid(scale), meta::version(scale));
    if !uid.is_empty() && uid != meta::uid(current) {
        return Err(write::uid_conflict(&target.kind, &target.name, uid, meta::uid(current)));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        return Err(negative(target, paths, replicas));
    }
    let mut next = Value::clone(current);
    if !matches!(version, "" | "0") {
        meta::set(&mut next, "resourceVersion", version);
    }
    meta::set_at(&mut next, &paths.replicas, replicas.into());
    let stored = write::update(state, target, current, next, Part::Main, now)?;
    Ok(shown(paths, &stored))
}

fn negative(target: &Target, paths: &Paths, replicas: i64) -> Failure {
    let value = json!(replicas);
    if target.kind.custom {
        let fault = Fault::invalid(format!(".{}", paths.replicas), &value, "should be a non-negative integer");
        return Failure::invalid(&target.kind, &target.name, &[fault]);
    }
    let fault = Fault::invalid("spec.replicas", &value, "must be greater than or equal to 0");
    Failure::invalid(&SCALE, &target.name, &[fault])
}

/// A custom resource without a number of replicas has no scale.
fn may_be_shown(target: &Target, paths: &Paths, object: &Value) -> Result<(), Failure> {
    if !target.kind.custom || !meta::at(object, &paths.replicas).is_null() {
        return Ok(());
    }
    let why = format!("the spec replicas field \".{}\" does not exist", paths.replicas);
    let details = json!({ "causes": [{ "message": why }] });
    Err(Failure::new(500, "InternalError", format!("Internal error occurred: {why}"), Some(details)))
}

/// The scale of an object.
fn shown(paths: &Paths, object: &Value) -> Value {
    let mut metadata = serde_json::Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let count = |path: &str| meta::at(object, path).as_i64().unwrap_or(0);
    let mut scale = json!({
        "kind": "Scale", "apiVersion": VERSION, "metadata": metadata, "spec": {},
        "status": { "replicas": count(&paths.ready) },
    });
    let replicas = count(&paths.replicas);
    if replicas != 0 {
        scale["spec"]["replicas"] = replicas.into();
    }
    let selector = match &paths.selector {
        Selector::Labels => label_selector::text_of_labels(&object["spec"]["selector"]),
        Selector::Object => label_selector::text(&object["spec"]["selector"]),
        Selector::Text(path) => {
            path.as_ref().and_then(|it| meta::at(object, it).as_str()).unwrap_or_default().to_owned()
        }
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

fn paths(target: &Target) -> Result<Paths, Failure> {
    let kind = &target.kind;
    if !kind.custom {
        let selector = if kind.kind == "ReplicationController" { Selector::Labels } else { Selector::Object };
        return Ok(Paths { replicas: "spec.replicas".into(), ready: "status.replicas".into(), selector });
    }
    let version = target.api_version.rsplit('/').next().unwrap_or_default();
    let declared = kind.declared(version).and_then(|it| it.scale.as_ref());
    let Some(declared) = declared else { return Err(Failure::not_found(kind, &target.name)) };
    let selector = Selector::Text(declared.selector.clone());
    Ok(Paths { replicas: declared.spec.clone(), ready: declared.status.clone(), selector })
}
