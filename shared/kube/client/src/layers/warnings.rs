use std::collections::HashSet;

use http::{Response, header};
use parking_lot::Mutex;

/// After this number of distinct texts the set is cleared, and each text is logged again.
const MOST: usize = 1_000;

/// Logs the warnings of the server, each text once.
#[derive(Default)]
pub(crate) struct Warnings(Mutex<HashSet<Box<str>>>);

impl Warnings {
    pub(super) fn tell<B>(&self, answer: &Response<B>) {
        for text in answer.headers().get_all(header::WARNING).iter().filter_map(|it| text(it.to_str().ok()?)) {
            if self.is_new(&text) {
                // These warnings are about our own requests, which no operator can change. Upstream logs none of them.
                tracing::debug!(target: "v2", warning = %text, "The API server warns");
            }
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut told = self.0.lock();
        if told.len() >= MOST {
            told.clear();
        }
        told.insert(text.into())
    }
}

/// The text of `299 - "text"`, the only form that API servers use (RFC 7234, section 5.5).
fn text(header: &str) -> Option<String> {
    let (code, rest) = header.split_once(' ')?;
    let (_agent, quoted) = rest.split_once(' ')?;
    if code != "299" {
        return None;
    }
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.strip_prefix('"')?.chars();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => text.push(characters.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_stands_in_quotes() {
        assert_eq!(text(r#"299 - "v1beta1 is \"old\"""#).as_deref(), Some(r#"v1beta1 is "old""#));
        assert_eq!(text(r#"299 - "cut"#), None);
        assert_eq!(text(r#"199 - "other""#), None);
        assert_eq!(text("299"), None);
    }

    #[test]
    fn a_text_is_told_once_and_memory_is_bounded() {
        let warnings = Warnings::default();
        assert!(warnings.is_new("a") && !warnings.is_new("a"));
        for number in 0..3 * MOST {
            warnings.is_new(&number.to_string());
        }
        assert!(warnings.0.lock().len() <= MOST);
    }
}
