use anyhow::{Context, bail};

/// A sequence of requests that shows one behaviour.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of its test.
    pub name: String,
    /// The line where it begins in its file.
    pub line: usize,
    /// Why a real server behaves differently, if it does.
    pub embedded_only: Option<String>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Changes when the case changes, except for comments.
    pub fingerprint: u64,
}

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// The line where it is in its file.
    pub line: usize,
    /// The line itself.
    pub title: String,
    /// The name under which the response is saved.
    pub save: Option<String>,
    /// Which parts of the response are compared.
    pub compare: Compare,
    /// The action.
    pub action: Action,
}

/// Which parts of a response are compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Compare {
    /// Code, headers and body.
    #[default]
    All,
    /// Everything except the headers.
    SkipHeaders,
    /// Everything except the body.
    SkipBody,
    /// `code`, `reason`, `message`, `headers`, or paths in the body such as `.details.causes`.
    Only(Vec<String>),
}

/// The action of a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// Sends a request.
    Send(Call),
    /// Sends a request for every number of a range, all at once.
    Each(u32, u32, Call),
    /// Sends a request repeatedly until the value at a path of the response is this text.
    Until(String, String, Call),
    /// Opens a watch that stays open.
    Watch(Call),
    /// Reads from an open watch.
    Read(String, Reading),
    /// Makes every earlier version too old.
    Compact,
}

/// How much to read from a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// This many events.
    Events(usize),
    /// Until the end of the stream.
    End,
    /// No event must come for a while.
    Quiet,
}

/// A request, with its variables not replaced yet.
#[derive(Debug, Clone)]
pub struct Call {
    /// `GET` etc.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// As written.
    pub headers: Vec<(String, String)>,
    /// As written.
    pub body: Option<String>,
}

impl Case {
    /// True when the word `variable` occurs and is not followed by a letter or digit.
    #[must_use]
    pub fn mentions(&self, variable: &str) -> bool {
        let texts = self.steps.iter().flat_map(|step| match &step.action {
            Action::Send(call) | Action::Each(_, _, call) | Action::Until(_, _, call) | Action::Watch(call) => {
                let headers = call.headers.iter().map(|(_, value)| value.as_str());
                headers.chain([call.path.as_str()]).chain(call.body.as_deref()).collect()
            }
            Action::Read(..) | Action::Compact => Vec::new(),
        });
        texts
            .flat_map(|text| text.match_indices(variable).map(|(at, word)| &text[at + word.len()..]))
            .any(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
    }

    /// True when the case compacts the history, which would affect other cases.
    #[must_use]
    pub fn compacts(&self) -> bool {
        self.steps.iter().any(|it| matches!(it.action, Action::Compact))
    }
}

/// Parses the cases of one file.
///
/// # Errors
/// If a line is invalid; the message has the file name and the line number.
pub fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Case>> {
    let mut lines = Lines { lines: text.lines().collect(), at: 0 };
    let mut cases: Vec<Case> = Vec::new();
    let mut compare = Compare::All;
    while let Some((number, line)) = lines.next() {
        let where_to_look = || format!("{file}:{number}: {line}");
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let begins_case = line.starts_with("=== ");
        if compare != Compare::All && (begins_case || comparison(line).is_ok_and(|it| it.is_some())) {
            return Err(anyhow::anyhow!("SKIP or ONLY without a step before this")).with_context(where_to_look);
        }
        if let Some(name) = line.strip_prefix("=== ") {
            let name = case_name(name).with_context(where_to_look)?;
            if cases.iter().any(|it| it.name == name) {
                return Err(anyhow::anyhow!("there is another case of this name")).with_context(where_to_look);
            }
            cases.push(Case { name, line: number, embedded_only: None, steps: Vec::new(), fingerprint: SEED });
            continue;
        }
        let Some(case) = cases.last_mut() else {
            return Err(anyhow::anyhow!("a case begins with `=== name`")).with_context(where_to_look);
        };
        let from = lines.at - 1;
        if let Some(reason) = line.strip_prefix("EMBEDDED-ONLY ") {
            case.embedded_only = Some(reason.trim().to_owned());
        } else if let Some(parts) = comparison(line).with_context(where_to_look)? {
            compare = parts;
        } else {
            let (save, rest) = saved(line);
            let action = action(rest, &mut lines).with_context(where_to_look)?;
            let (title, save) = (line.trim().to_owned(), save.map(str::to_owned));
            case.steps.push(Step { line: number, title, save, compare: std::mem::take(&mut compare), action });
        }
        for line in &lines.lines[from..lines.at] {
            case.fingerprint = fingerprint(case.fingerprint, line.trim());
        }
    }
    anyhow::ensure!(compare == Compare::All, "{file}:{}: SKIP or ONLY without a step", lines.at);
    if let Some(empty) = cases.iter().find(|it| it.steps.is_empty()) {
        bail!("{file}:{}: {} has no step", empty.line, empty.name);
    }
    Ok(cases)
}

struct Lines<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> Lines<'a> {
    /// The next line and its number, counted from one.
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let line = self.peek()?;
        self.at += 1;
        Some((self.at, line))
    }

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }
}

fn case_name(name: &str) -> anyhow::Result<String> {
    let name = name.trim();
    let plain = name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_');
    let known = name.starts_with("acceptance_") || name.starts_with("conformance_");
    anyhow::ensure!(plain && known, "a case is named acceptance_<spec>_<number>_<words> or conformance_<words>");
    Ok(name.to_owned())
}

fn comparison(line: &str) -> anyhow::Result<Option<Compare>> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Ok(match (word, rest.trim()) {
        ("SKIP", "headers") => Some(Compare::SkipHeaders),
        ("SKIP", "body") => Some(Compare::SkipBody),
        ("SKIP", _) => bail!("SKIP headers, or SKIP body"),
        ("ONLY", "") => bail!("ONLY what?"),
        ("ONLY", parts) => Some(Compare::Only(parts.split_whitespace().map(str::to_owned).collect())),
        _ => None,
    })
}

/// The name before ` = `, and the text after it.
fn saved(line: &str) -> (Option<&str>, &str) {
    let is_name = |it: &str| it.starts_with(|first: char| first.is_ascii_lowercase()) && it.chars().all(is_word);
    match line.split_once(" = ") {
        Some((name, rest)) if is_name(name) => (Some(name), rest),
        _ => (None, line),
    }
}

fn is_word(it: char) -> bool {
    it.is_ascii_alphanumeric() || it == '_'
}

fn action(line: &str, lines: &mut Lines<'_>) -> anyhow::Result<Action> {
    let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    Ok(match word {
        "COMPACT" => Action::Compact,
        "READ" => {
            let (watch, how) = rest.split_once(' ').context("READ <watch> <number>|end|quiet")?;
            Action::Read(watch.to_owned(), reading(how.trim())?)
        }
        "WATCH" => Action::Watch(call("GET", rest, lines)?),
        "EACH" => {
            let (range, rest) = rest.split_once(' ').context("EACH <from>..<to> <request>")?;
            let (from, to) = range.split_once("..").context("EACH <from>..<to> <request>")?;
            let (method, path) = rest.split_once(' ').context("EACH <from>..<to> <request>")?;
            Action::Each(from.parse()?, to.parse()?, call(method, path, lines)?)
        }
        "UNTIL" => {
            let form = "UNTIL x.path = value METHOD /path";
            let (path, rest) = rest.split_once(" = ").context(form)?;
            let (value, target) = rest.rsplit_once(" /").context(form)?;
            let (value, method) = value.rsplit_once(' ').context(form)?;
            Action::Until(path.to_owned(), value.to_owned(), call(method, &format!("/{target}"), lines)?)
        }
        method => Action::Send(call(method, rest, lines)?),
    })
}

fn reading(how: &str) -> anyhow::Result<Reading> {
    Ok(match how {
        "end" => Reading::End,
        "quiet" => Reading::Quiet,
        number => Reading::Events(number.parse().context("READ <watch> <number>|end|quiet")?),
    })
}

/// A request whose first line is parsed already: header lines, then the body up to a blank line.
fn call(method: &str, path: &str, lines: &mut Lines<'_>) -> anyhow::Result<Call> {
    let known = !method.is_empty() && method.chars().all(|it| it.is_ascii_uppercase());
    anyhow::ensure!(known, "neither a request nor another step");
    anyhow::ensure!(path.starts_with('/'), "a path begins with /");
    let mut headers = Vec::new();
    while let Some((name, value)) = lines.peek().and_then(header) {
        headers.push((name.to_owned(), value.to_owned()));
        lines.at += 1;
    }
    let mut body = Vec::new();
    while let Some(line) = lines.peek().filter(|it| !it.trim().is_empty() && !is_step(it)) {
        body.push(line);
        lines.at += 1;
    }
    let body = if body.is_empty() { None } else { Some(body.join("\n")) };
    Ok(Call { method: method.to_owned(), path: path.trim().to_owned(), headers, body })
}

/// Steps may follow each other without a blank line.
fn is_step(line: &str) -> bool {
    let (_, rest) = saved(line);
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let upper = !word.is_empty() && word.chars().all(|it| it.is_ascii_uppercase());
    let is_step = matches!(word, "READ" | "EACH" | "UNTIL" | "SKIP" | "ONLY" | "COMPACT") || rest.starts_with('/');
    line.starts_with('#') || line.starts_with("=== ") || (upper && is_step)
}

fn header(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-') && name != "---";
    (is_name && (value.is_empty() || value.starts_with(' '))).then_some((name, value.trim()))
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the same on every machine and in every version.
fn fingerprint(seed: u64, line: &str) -> u64 {
    let comment = line.starts_with('#');
    let bytes = line.bytes().chain(std::iter::once(b'\n'));
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    if comment || line.is_empty() { seed } else { bytes.fold(seed, step) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# a comment
=== acceptance_api_001_words
SKIP headers
a = POST /api/v1/namespaces/$ns/configmaps
Content-Type: -
{"metadata":
 {"name":"a"}}

# another
w = WATCH /api/v1/namespaces/$ns2/configmaps
DELETE /z
READ w 2
READ w quiet
EACH 1..3 PATCH /x
UNTIL b.status.a b = x y GET /y
=== conformance_two
EMBEDDED-ONLY a reason
COMPACT
"#;

    #[test]
    fn steps_have_request_lines_headers_and_bodies() {
        let cases = parse("a.txt", TEXT).unwrap();
        let [one, two] = &cases[..] else { panic!("{cases:?}") };
        assert_eq!((one.name.as_str(), one.line, one.steps.len()), ("acceptance_api_001_words", 2, 7));
        let Action::Send(call) = &one.steps[0].action else { panic!("{one:?}") };
        assert_eq!(call.headers, [("Content-Type".to_owned(), "-".to_owned())]);
        assert_eq!(call.body.as_deref(), Some("{\"metadata\":\n {\"name\":\"a\"}}"));
        assert_eq!((one.steps[0].save.as_deref(), &one.steps[0].compare), (Some("a"), &Compare::SkipHeaders));
        assert_eq!(one.steps[1].compare, Compare::All);
        let Action::Until(path, value, _) = &one.steps[6].action else { panic!("{one:?}") };
        assert_eq!((path.as_str(), value.as_str()), ("b.status.a b", "x y"));
        assert!(one.mentions("$ns") && one.mentions("$ns2") && !one.mentions("$ns3"));
        assert_eq!(two.embedded_only.as_deref(), Some("a reason"));
        assert!(two.compacts());
    }

    #[test]
    fn error_names_file_and_line() {
        for (text, line) in [
            ("GET /x", 1),
            ("=== conformance_a\nGET x", 2),
            ("=== conformance_a\nfoo", 2),
            ("=== conformance_a\nREAD w", 2),
            ("=== Other", 1),
            ("=== conformance_a\nGET /\n=== conformance_a", 3),
            ("=== conformance_a\nSKIP all", 2),
            ("=== conformance_a", 1),
            ("=== conformance_a\nGET /\nSKIP body\n=== conformance_b\nGET /", 4),
            ("=== conformance_a\nSKIP body\nSKIP headers\nGET /", 3),
            ("=== conformance_a\nGET /\nONLY code", 3),
        ] {
            let message = format!("{:#}", parse("a.txt", text).unwrap_err());
            assert!(message.contains(&format!("a.txt:{line}:")), "{message}");
        }
    }

    #[test]
    fn comments_do_not_change_the_fingerprint_and_bodies_do() {
        let print = |text: &str| parse("a.txt", text).unwrap()[0].fingerprint;
        let plain = print("=== conformance_a\nPOST /\n{}\n");
        assert_eq!(plain, print("=== conformance_a\n# why\n\nPOST /\n{}\n\n"));
        assert_ne!(plain, print("=== conformance_a\nPOST /\n[]\n"));
    }
}
