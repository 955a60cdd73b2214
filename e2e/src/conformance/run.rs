use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{TryStreamExt, future};
use http::{HeaderMap, Request, Response, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use super::{
    Action, Call, Case, Chunks, Compare, Entry, Reading, Step, Target,
    compare::AFTER,
    normalise::Normaliser,
    path,
    stream::{Next, Watch, is_plain_bookmark},
    variables::{NAMESPACES, Saved, Variables},
    version_order::VersionOrder,
};

const JSON: &str = "application/json";

/// Characters that a request line must not contain unencoded.
const NOT_IN_A_LINE: AsciiSet =
    CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// How long to wait for a condition, and how often to check it.
const TIME_LIMIT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Shorter times until the end of a watch or until a refusal are not recorded, because a busy machine may need a while.
const LONG: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(2);

/// The headers that are compared. Of an `ETag` only its presence is compared.
const HEADERS: [(&str, &str); 6] = [
    ("content-type", "Content-Type"),
    ("retry-after", "Retry-After"),
    ("warning", "Warning"),
    ("cache-control", "Cache-Control"),
    ("etag", "ETag"),
    ("vary", "Vary"),
];

/// Runs a case and returns the normalised responses. `word` must be unique among all cases on this server, and all
/// words have the same length.
///
/// # Errors
/// If the server does not respond, or the case refers to something that does not exist.
pub async fn run(case: &Case, target: &dyn Target, word: &str) -> anyhow::Result<Vec<Entry>> {
    let variables = Variables::new(word);
    let normaliser = Normaliser::new(variables.unique_names());
    let (watches, order) = (BTreeMap::new(), VersionOrder::default());
    let mut runner = Runner { target, variables, normaliser, watches, order, entries: Vec::new() };
    let whole = runner.run_case(case);
    tokio::time::timeout(target.pace().case, whole).await.context("takes too long")??;
    Ok(runner.entries)
}

struct Runner<'a> {
    target: &'a dyn Target,
    variables: Variables,
    normaliser: Normaliser,
    watches: BTreeMap<String, Watch>,
    order: VersionOrder,
    entries: Vec<Entry>,
}

impl Runner<'_> {
    async fn run_case(&mut self, case: &Case) -> anyhow::Result<()> {
        for variable in NAMESPACES.iter().filter(|it| case.mentions(it)) {
            let namespace = json!({ "metadata": { "name": self.variables.namespace(variable) } });
            let (method, path) = ("POST".to_owned(), "/api/v1/namespaces".to_owned());
            let call = Call { method, path, headers: Vec::new(), body: Some(namespace.to_string()) };
            let answer = self.send_whole(&call, None).await?;
            anyhow::ensure!(answer.code == 201, "no namespace: {} {}", answer.code, answer.body);
            self.order.check_response("POST", &answer.body)?;
        }
        for step in &case.steps {
            let lines = self.run_step(step).await.with_context(|| format!("line {}: {}", step.line, step.title))?;
            self.entries.push(Entry { title: step.title.clone(), lines });
        }
        Ok(())
    }

    async fn run_step(&mut self, step: &Step) -> anyhow::Result<Vec<String>> {
        match &step.action {
            Action::Send(call) => {
                let begin = Clock::system().now();
                let answer = self.send_whole(call, None).await?;
                // A successful request may take a while, such as the first object of a definition; only for a refusal
                // is the time recorded, because it depends on the rules of the server.
                let after = elapsed(begin, SLOW).filter(|_| answer.code >= 300);
                let mut lines = self.record_response(step, call, answer)?;
                lines.extend(after);
                Ok(lines)
            }
            Action::Each(from, to, call) => self.send_each(*from, *to, call).await,
            Action::Until(path, value, call) => self.send_until(step, path, value, call).await,
            Action::Watch(call) => self.open_watch(step, call).await,
            Action::Read(name, how) => self.read_watch(step, name, *how).await,
            Action::Compact => {
                self.target.compact().await?;
                Ok(Vec::new())
            }
        }
    }

    async fn send_each(&mut self, from: u32, to: u32, call: &Call) -> anyhow::Result<Vec<String>> {
        let all = (from..=to).map(|number| self.send_whole(call, Some(number)));
        let answers = future::try_join_all(all).await?;
        for answer in &answers {
            // In any order of arrival.
            self.order.check_response("GET", &answer.body)?;
        }
        let mut codes: Vec<u16> = answers.iter().map(|it| it.code).collect();
        codes.sort_unstable();
        Ok(vec![codes.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")])
    }

    async fn send_until(&mut self, step: &Step, path: &str, value: &str, call: &Call) -> anyhow::Result<Vec<String>> {
        let name = path.split(['.', '[']).next().unwrap_or_default().to_owned();
        let [path, value] = [path, value].map(|it| self.variables.fill(it, None).map_err(anyhow::Error::msg));
        let (path, value) = (path?, value?);
        let deadline = self.target.wall().checked_add(TIME_LIMIT)?;
        loop {
            let answer = self.send_whole(call, None).await?;
            self.variables.save(&name, answer.clone());
            let holds = self.variables.look_up(&path).is_some_and(|it| it == value);
            if holds || self.target.wall() > deadline {
                let mut lines = self.record_response(step, call, answer)?;
                if !holds {
                    lines.push("NEVER".to_owned());
                }
                return Ok(lines);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn open_watch(&mut self, step: &Step, call: &Call) -> anyhow::Result<Vec<String>> {
        let name = step.save.clone().context("a watch needs a name: w = WATCH …")?;
        let mut call = call.clone();
        if !call.path.contains("watch=") && !call.path.contains("/watch/") {
            call.path += if call.path.contains('?') { "&watch=1" } else { "?watch=1" };
        }
        let begin = Clock::system().now();
        let answer = self.send(&call, None).await?;
        if answer.status() != 200 {
            let answer = collect(answer).await?;
            return self.record_response(step, &call, answer);
        }
        let (head, body) = answer.into_parts();
        let path = self.variables.fill(&call.path, None).map_err(anyhow::Error::msg)?;
        self.watches.insert(name, Watch::new(body, &path, begin));
        let answer = Saved { code: head.status.as_u16(), headers: head.headers, body: Value::Null };
        self.record_response(step, &call, answer)
    }

    async fn read_watch(&mut self, step: &Step, name: &str, how: Reading) -> anyhow::Result<Vec<String>> {
        // A refused watch has recorded its status code; there is nothing to read.
        let Some(mut watch) = self.watches.remove(name) else { return Ok(vec!["NO WATCH".to_owned()]) };
        let pace = self.target.pace();
        let (wanted, within) = match how {
            Reading::Events(number) => (number, pace.event),
            Reading::End => (usize::MAX, pace.case),
            Reading::Quiet => (usize::MAX, pace.quiet),
        };
        let mut lines: Vec<String> = Vec::new();
        while lines.len() < wanted {
            match watch.next(within).await {
                Next::Event(event) if watch.bookmarks && is_plain_bookmark(&event) && how != Reading::End => {
                    watch.order.check_event(&event)?;
                }
                Next::Event(event) => {
                    self.order.record(watch.order.check_event(&event)?);
                    if let Some(save) = &step.save {
                        let (code, headers) = (200, HeaderMap::new());
                        self.variables.save(save, Saved { code, headers, body: event.clone() });
                    }
                    let bookmark = is_plain_bookmark(&event);
                    let line = self.format_event(step, event, &mut watch)?;
                    // The number of bookmarks in a row may differ between servers.
                    if !bookmark || lines.last() != Some(&line) {
                        lines.push(line);
                    }
                }
                Next::Nothing => {
                    lines.push(if how == Reading::Quiet { "QUIET" } else { "NOTHING" }.to_owned());
                    break;
                }
                Next::End => {
                    lines.push("END".to_owned());
                    break;
                }
                Next::Broken(why) => {
                    lines.push(format!("BROKEN {why}"));
                    break;
                }
            }
        }
        if how == Reading::End {
            lines.extend(elapsed(watch.begin, LONG));
        }
        self.watches.insert(name.to_owned(), watch);
        Ok(lines)
    }

    fn format_event(&mut self, step: &Step, mut event: Value, watch: &mut Watch) -> anyhow::Result<String> {
        let now = self.target.wall();
        let columns = &event["object"]["columnDefinitions"];
        if columns.as_array().is_some_and(|it| !it.is_empty()) {
            watch.columns = columns.clone();
        }
        if let Compare::Only(parts) = &step.compare {
            event = self.selected(&event, parts)?;
        }
        Ok(self.normaliser.event(event, &watch.columns, now).to_string())
    }

    /// One request with its body, read to the end.
    async fn send_whole(&self, call: &Call, number: Option<u32>) -> anyhow::Result<Saved> {
        collect(self.send(call, number).await?).await
    }

    async fn send(&self, call: &Call, number: Option<u32>) -> anyhow::Result<Response<Chunks>> {
        let fill = |text: &str| self.variables.fill(text, number).map_err(anyhow::Error::msg);
        let path = fill(&call.path)?;
        let path = utf8_percent_encode(&path, &NOT_IN_A_LINE).to_string();
        let mut request = Request::builder().method(call.method.as_str()).uri(path);
        let mut typed = call.body.is_none();
        for (name, value) in &call.headers {
            let is_type = name.eq_ignore_ascii_case("content-type");
            typed |= is_type;
            match (is_type, value.as_str()) {
                (true, "-") => {}
                (true, value) => request = request.header(header::CONTENT_TYPE, media_type(value)),
                (false, value) => request = request.header(name, fill(value)?),
            }
        }
        if !typed {
            request = request.header(header::CONTENT_TYPE, JSON);
        }
        let body = fill(call.body.as_deref().unwrap_or_default())?;
        self.target.send(request.body(Bytes::from(body))?).await
    }

    /// The lines of a response that are compared.
    fn record_response(&mut self, step: &Step, call: &Call, answer: Saved) -> anyhow::Result<Vec<String>> {
        let now = self.target.wall();
        if let Some(name) = &step.save {
            self.variables.save(name, answer.clone());
        }
        let Saved { code, headers, body } = answer;
        let path = self.variables.fill(&call.path, None).unwrap_or_default();
        if code < 300 {
            self.order.check_response(&call.method, &body)?;
        }
        let mut lines = Vec::new();
        if has(&step.compare, "code") {
            lines.push(code.to_string());
        }
        if has(&step.compare, "headers") {
            lines.extend(self.compared_headers(&headers));
        }
        if has(&step.compare, "body") && body != Value::Null {
            let is_list = body["items"].is_array() || body["rows"].is_array();
            let body = match &step.compare {
                Compare::Only(parts) => self.selected(&body, parts)?,
                _ => body,
            };
            if body.as_object().is_none_or(|it| !it.is_empty() || step.compare == Compare::All) {
                lines.push(self.normaliser.body(body, is_list, &path, now).to_string());
            }
        }
        Ok(lines)
    }

    /// The selected parts of a body, with their paths as keys. A part that may be missing must be written as `.x?`;
    /// otherwise a missing part on both sides would compare as equal.
    fn selected(&self, body: &Value, parts: &[String]) -> anyhow::Result<Value> {
        let mut found = serde_json::Map::new();
        for part in parts.iter().filter(|it| !matches!(it.as_str(), "code" | "headers")) {
            let (name, optional) = part.strip_suffix('?').map_or((part.as_str(), false), |it| (it, true));
            let path = self.variables.fill(name, None).map_err(anyhow::Error::msg)?;
            let (path, length) = path.split_once('^').unwrap_or((path.as_str(), ""));
            let mut value = path::find_all(body, path);
            if let (Some(Value::String(text)), false) = (&mut value, length.is_empty()) {
                *text = text.chars().take(length.parse().context("ONLY .path^length")?).collect();
            }
            anyhow::ensure!(optional || value.is_some(), "ONLY: there is no {path} in {body}");
            found.insert(name.to_owned(), value.unwrap_or(Value::Null));
        }
        Ok(Value::Object(found))
    }

    fn compared_headers(&mut self, headers: &HeaderMap) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, shown) in HEADERS {
            for value in headers.get_all(name) {
                let value = if name == "etag" { "<some>" } else { value.to_str().unwrap_or("<not text>") };
                lines.push(format!("{shown}: {}", self.normaliser.text(value)));
            }
        }
        lines
    }
}

async fn collect(answer: Response<Chunks>) -> anyhow::Result<Saved> {
    let (head, body) = answer.into_parts();
    let bytes = body.try_fold(Vec::new(), async |mut bytes, chunk| {
        bytes.extend_from_slice(&chunk);
        Ok(bytes)
    });
    let bytes = bytes.await?;
    let body = match serde_json::from_slice(&bytes) {
        Ok(body) => body,
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
    };
    Ok(Saved { code: head.status.as_u16(), headers: head.headers, body })
}

/// The duration, rounded to seconds, if it is at least `from`.
fn elapsed(begin: Instant, from: Duration) -> Option<String> {
    let seconds = (begin.elapsed() + Duration::from_millis(500)).as_secs();
    (seconds >= from.as_secs()).then(|| format!("{AFTER}{seconds} s"))
}

fn has(compare: &Compare, part: &str) -> bool {
    match compare {
        Compare::All => true,
        Compare::SkipHeaders => part != "headers",
        Compare::SkipBody => part != "body",
        Compare::Only(parts) => part == "body" || parts.iter().any(|it| it == part),
    }
}

fn media_type(short: &str) -> &str {
    match short {
        "merge" => "application/merge-patch+json",
        "json-patch" => "application/json-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => other,
    }
}
