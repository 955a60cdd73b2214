use std::collections::HashSet;

use http::{Response, header};
use parking_lot::Mutex;

/// After this number of distinct texts the set is cleared, and each text is logged again.
const MAX_TEXTS: usize = 1_000;

/// Logs the warnings of the server, each text once.
#[derive(Default)]
pub(crate) struct Warnings(Mutex<HashSet<Box<str>>>);

impl Warnings {
    /// Logs the warnings of a response that were not logged before.
    pub(super) fn log_new<B>(&self, response: &Response<B>) {
        for text in response.headers().get_all(header::WARNING).iter().filter_map(|it| text(it.to_str().ok()?)) {
            if self.mark_logged(&text) {
                // These warnings are about our own requests, which no operator can change. Upstream logs none of them.
                tracing::debug!(target: "v2", warning = %text, "Warning of the API server");
            }
        }
    }

    /// Returns true if this text was not marked before.
    fn mark_logged(&self, text: &str) -> bool {
        let mut logged = self.0.lock();
        if logged.len() >= MAX_TEXTS {
            logged.clear();
        }
        logged.insert(text.into())
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
    fn text_is_the_quoted_part() {
        assert_eq!(text(r#"299 - "v1beta1 is \"old\"""#).as_deref(), Some(r#"v1beta1 is "old""#));
        assert_eq!(text(r#"299 - "cut"#), None);
        assert_eq!(text(r#"199 - "other""#), None);
        assert_eq!(text("299"), None);
    }

    #[test]
    fn text_is_logged_once_and_the_set_is_bounded() {
        let warnings = Warnings::default();
        assert!(warnings.mark_logged("a") && !warnings.mark_logged("a"));
        for number in 0..3 * MAX_TEXTS {
            warnings.mark_logged(&number.to_string());
        }
        assert!(warnings.0.lock().len() <= MAX_TEXTS);
    }
}
