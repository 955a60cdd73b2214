use std::collections::BTreeMap;

use serde_json::Value;

use super::path;

/// The variables of a case.
#[derive(Debug)]
pub(super) struct Variables {
    word: String,
    saved: BTreeMap<String, Saved>,
}

/// A response that later steps refer to.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    pub(super) code: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Value,
}

/// The variables for namespaces, longer ones first, because one is a prefix of another.
pub(super) const NAMESPACES: [&str; 3] = ["$ns3", "$ns2", "$ns"];

impl Variables {
    /// `word` is unique for this case.
    pub(super) fn new(word: &str) -> Self {
        Self { word: word.to_owned(), saved: BTreeMap::new() }
    }

    /// The namespace of a variable.
    pub(super) fn namespace(&self, variable: &str) -> String {
        let number = variable.strip_prefix("$ns").filter(|it| !it.is_empty()).unwrap_or("1");
        format!("conf-{}-{number}", self.word)
    }

    /// Names that are unique for each case, with their variables.
    pub(super) fn unique_names(&self) -> Vec<(String, &'static str)> {
        let namespaces = NAMESPACES.map(|variable| (self.namespace(variable), variable));
        namespaces.into_iter().chain([(self.word.clone(), "$id")]).collect()
    }

    pub(super) fn save(&mut self, name: &str, answer: Saved) {
        self.saved.insert(name.to_owned(), answer);
    }

    /// The value at `x.path`, as text.
    pub(super) fn look_up(&self, whole: &str) -> Option<String> {
        let end = whole.find(['.', '[']).unwrap_or(whole.len());
        let (name, rest) = whole.split_at(end);
        let saved = self.saved.get(name)?;
        if rest == ".status-code" {
            return Some(saved.code.to_string());
        }
        if let Some(header) = rest.strip_prefix(".header.") {
            return saved.headers.get(header)?.to_str().ok().map(str::to_owned);
        }
        path::find(&saved.body, rest).map(path::plain)
    }

    /// Replaces every variable in `text`.
    ///
    /// # Errors
    /// If a saved response does not have the value.
    pub(super) fn fill(&self, text: &str, number: Option<u32>) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, variable)) = rest.split_once("${") {
            filled += &self.replace_names(before, number);
            let Some((variable, behind)) = variable.split_once('}') else { return Err(format!("no }} in {text}")) };
            filled += &match repeated(variable) {
                Some(it) => it,
                None => self.look_up(variable).ok_or_else(|| format!("there is no {variable}"))?,
            };
            rest = behind;
        }
        Ok(filled + &self.replace_names(rest, number))
    }

    fn replace_names(&self, text: &str, number: Option<u32>) -> String {
        let mut text = text.to_owned();
        for (name, variable) in self.unique_names() {
            text = text.replace(variable, &name);
        }
        match number {
            Some(number) => text.replace("$i", &number.to_string()),
            None => text,
        }
    }
}

/// `a*300` means the letter a 300 times.
fn repeated(variable: &str) -> Option<String> {
    let (letter, times) = variable.split_once('*')?;
    Some(letter.repeat(times.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_names_parts_of_responses_and_long_texts() {
        let mut variables = Variables::new("x1");
        let headers = http::HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("e"))]);
        variables.save("a", Saved { code: 201, headers, body: json!({ "m": { "v": "5" } }) });
        let filled = variables.fill("$ns $ns2 $id $i ${a.m.v} ${a.status-code} ${a.header.etag} ${x*3}", Some(7));
        assert_eq!(filled.as_deref(), Ok("conf-x1-1 conf-x1-2 x1 7 5 201 e xxx"));
        assert_eq!(variables.fill("${a.m.w}", None), Err("there is no a.m.w".to_owned()));
    }
}
