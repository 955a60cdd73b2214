//! The paths of printer columns: kubectl's variant of JSONPath, as far as definitions use it (`.spec.a`, `['b.c']`,
//! `.a\.b`, `[0]`, `[-1]`, `[*]`, `[?(@.type=="Ready")]`). Existing crates implement RFC 9535, which allows neither a
//! leading field nor `\.`.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// From the end when negative.
    At(i64),
    All,
    /// Elements whose value at a path is compared with a constant.
    Where(Path, bool, Value),
}

impl Path {
    /// `None` for what is outside of the subset.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, tail) = match rest.strip_prefix('.') {
                Some(tail) if tail.is_empty() && steps.is_empty() => return Some(Self(steps)),
                Some(tail) if tail.starts_with('[') => bracket(tail)?,
                Some(tail) => field(tail)?,
                None if rest.starts_with('[') => bracket(rest)?,
                None => return None,
            };
            steps.push(step);
            rest = tail;
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// All values that the path selects, in order.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![object], |found, step| found.into_iter().flat_map(|it| step.from(it)).collect())
    }
}

impl Step {
    fn from<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        match self {
            Self::Field(name) => value.get(name.as_str()).into_iter().collect(),
            Self::At(at) => {
                let at = if *at < 0 { list.len().checked_sub(at.unsigned_abs() as usize) } else { Some(*at as usize) };
                at.and_then(|it| list.get(it)).into_iter().collect()
            }
            Self::All => match value {
                Value::Object(map) => map.values().collect(),
                _ => list.iter().collect(),
            },
            Self::Where(path, equal, constant) => {
                let holds = |it: &&Value| path.find(it).first().is_some_and(|found| (*found == constant) == *equal);
                list.iter().filter(holds).collect()
            }
        }
    }
}

/// A name up to the next `.` or `[`; a backslash escapes the next character.
fn field(text: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            other => name.push(other),
        }
    }
    let step = match name.as_str() {
        "" => return None,
        "*" => Step::All,
        _ => Step::Field(name),
    };
    Some((step, &text[end..]))
}

fn bracket(text: &str) -> Option<(Step, &str)> {
    let inner = text.strip_prefix('[')?;
    if let Some(filter) = inner.strip_prefix("?(") {
        let end = filter.find(")]")?;
        return Some((condition(&filter[..end])?, &filter[end + 2..]));
    }
    if let Some(quote) = inner.chars().next().filter(|it| matches!(it, '\'' | '"')) {
        let name = &inner[1..];
        let end = name.find(&format!("{quote}]"))?;
        return Some((Step::Field(name[..end].replace('\\', "")), &name[end + 2..]));
    }
    let end = inner.find(']')?;
    let step = if &inner[..end] == "*" { Step::All } else { Step::At(inner[..end].trim().parse().ok()?) };
    Some((step, &inner[end + 1..]))
}

/// `@.type=="Ready"`
fn condition(text: &str) -> Option<Step> {
    let (at, equal) = match (text.find("=="), text.find("!=")) {
        (Some(at), None) => (at, true),
        (None, Some(at)) => (at, false),
        _ => return None,
    };
    let path = Path::parse(text[..at].trim().strip_prefix('@')?)?;
    let constant = text[at + 2..].trim();
    let unquoted = ["'", "\""].iter().find_map(|it| constant.strip_prefix(it)?.strip_suffix(it));
    let constant = match unquoted {
        Some(text) => Value::from(text),
        None => serde_json::from_str(constant).ok()?,
    };
    Some(Step::Where(path, equal, constant))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_the_named_values() {
        let object = json!({
            "a": { "b": [{ "x": 1 }, { "x": 2 }], "c.d": "dots" },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "False" }] },
        });
        for (path, wanted) in [
            (".a.b[0].x", json!([1])),
            (".a.b[-1].x", json!([2])),
            (".a.b[7].x", json!([])),
            (".a.b[*].x", json!([1, 2])),
            (".a['b'][0]['x']", json!([1])),
            (r#".a["c.d"]"#, json!(["dots"])),
            (r".a.c\.d", json!(["dots"])),
            (".a.missing.x", json!([])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
            (r#".status.conditions[?(@.type != "Ready")].status"#, json!(["False"])),
            (".a.b[?(@.x==2)].x", json!([2])),
        ] {
            let found = Path::parse(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(json!(found.find(&object)), wanted, "{path}");
        }
    }

    #[test]
    fn unsupported_paths_are_refused() {
        for path in ["", "a", "..a", ".a[", ".a[x]", ".a[0:2]", ".a[?(@.x>1)]", ".a[?(x==1)]", ".a."] {
            assert_eq!(Path::parse(path), None, "{path}");
        }
    }
}
