use crate::{Failure, kinds::Kind, stored::Stored};

/// Which objects a request speaks of: every requirement must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selectors {
    labels: Vec<Requirement>,
    fields: Vec<FieldTest>,
}

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

#[derive(Debug, Clone, PartialEq)]
struct FieldTest {
    path: String,
    value: String,
    equal: bool,
}

impl Selectors {
    /// Parses `labelSelector` and `fieldSelector` of a request for `kind`.
    ///
    /// # Errors
    /// 400 in the words of a real server.
    pub(crate) fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        let labels = split(labels)
            .into_iter()
            .map(|it| {
                requirement(it).map_err(|why| Failure::bad_request(format!("unable to parse requirement: {why}")))
            })
            .collect::<Result<_, _>>()?;
        let fields = field_terms(fields).iter().map(|it| field_test(kind, it)).collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the object meets every requirement.
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.labels.iter().all(|it| it.matches(object)) && self.fields.iter().all(|it| it.matches(object))
    }
}

impl Requirement {
    fn matches(&self, object: &Stored) -> bool {
        let value = object.label(&self.key);
        let number = || value.and_then(|it| it.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::In(values) => value.is_some_and(|it| values.iter().any(|wanted| wanted == it)),
            Test::NotIn(values) => value.is_none_or(|it| values.iter().all(|refused| refused != it)),
            Test::Above(limit) => number().is_some_and(|it| it > *limit),
            Test::Below(limit) => number().is_some_and(|it| it < *limit),
        }
    }
}

impl FieldTest {
    fn matches(&self, object: &Stored) -> bool {
        (object.field(&self.path) == self.value) == self.equal
    }
}

/// Splits at commas outside parentheses.
fn split(selector: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, letter) in selector.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[start..]);
    if selector.trim().is_empty() { Vec::new() } else { parts }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let text = text.trim();
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement { key: key_of(key)?, test: Test::Missing });
    }
    let end = text.find(|it: char| it.is_whitespace() || "=!<>".contains(it)).unwrap_or(text.len());
    let (key, rest) = (key_of(&text[..end])?, text[end..].trim());
    let test = if rest.is_empty() {
        Test::Exists
    } else if let Some(value) = rest.strip_prefix("!=") {
        Test::NotIn(vec![value_of(value)?])
    } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        Test::In(vec![value_of(value)?])
    } else if let Some(values) = rest.strip_prefix("notin") {
        Test::NotIn(values_of(values)?)
    } else if let Some(values) = rest.strip_prefix("in") {
        Test::In(values_of(values)?)
    } else if let Some(value) = rest.strip_prefix('>') {
        Test::Above(number_of(value)?)
    } else if let Some(value) = rest.strip_prefix('<') {
        Test::Below(number_of(value)?)
    } else {
        return Err(format!("found '{rest}', expected: in, notin, =, ==, !=, gt, lt"));
    };
    Ok(Requirement { key, test })
}

fn key_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    let legal = |it: char| it.is_ascii_alphanumeric() || "-_./".contains(it);
    if text.is_empty() || !text.chars().all(legal) {
        return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
    }
    Ok(text.to_owned())
}

fn value_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    let legal = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    if let Some(wrong) = text.chars().find(|it| !legal(*it)) {
        return Err(format!("found '{wrong}', expected: identifier"));
    }
    Ok(text.to_owned())
}

fn values_of(text: &str) -> Result<Vec<String>, String> {
    let inside = text.trim().strip_prefix('(').and_then(|it| it.strip_suffix(')'));
    let Some(inside) = inside else { return Err(format!("found '{}', expected: '('", text.trim())) };
    inside.split(',').map(value_of).collect()
}

fn number_of(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("for 'Gt', 'Lt' operators, the value must be an integer, found {text:?}"))
}

/// Terms of a field selector, with `\` escapes undone in values only later.
fn field_terms(selector: &str) -> Vec<String> {
    let (mut terms, mut term, mut escaped) = (Vec::new(), String::new(), false);
    for letter in selector.chars() {
        match letter {
            ',' if !escaped => terms.push(std::mem::take(&mut term)),
            _ => term.push(letter),
        }
        escaped = letter == '\\' && !escaped;
    }
    terms.push(term);
    terms.retain(|it| !it.is_empty());
    terms
}

fn field_test(kind: &Kind, term: &str) -> Result<FieldTest, Failure> {
    let Some(at) = term.find('=') else {
        return Err(Failure::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'")));
    };
    let (label, value) = (&term[..at], &term[at + 1..]);
    let (label, equal) = label.strip_suffix('!').map_or((label, true), |it| (it, false));
    let value = if equal { value.strip_prefix('=').unwrap_or(value) } else { value };
    let value = value.replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\");
    let known = kind.rules.fields.iter().find(|it| it.0 == label);
    let path = match (label, known) {
        ("metadata.name", _) => label,
        ("metadata.namespace", _) if kind.namespaced => label,
        (_, Some((_, path, _))) => *path,
        (_, None) if kind.declared.iter().any(|it| it.fields.iter().any(|it| it == label)) => label,
        ("status.podIPs", None) if kind.is(crate::kinds::PODS) => {
            return Err(Failure::not_served("field selector status.podIPs"));
        }
        _ => return Err(Failure::bad_request(format!("field label not supported: {label}"))),
    };
    Ok(FieldTest { path: path.to_owned(), value, equal })
}
