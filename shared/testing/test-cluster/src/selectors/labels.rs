//! Label selectors as text: `app=web,tier in (front, back),!old`.

use std::{iter::Peekable, vec};

use crate::{qualified_names, stored::Stored};

/// One requirement for the labels of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Requirement {
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

impl Requirement {
    pub(super) fn matches(&self, object: &Stored) -> bool {
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

/// Parses a whole selector.
///
/// # Errors
/// A real server's message for an invalid text.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut reader = Reader { tokens: tokens(text).into_iter().peekable() };
    let mut requirements = Vec::new();
    loop {
        match reader.peek() {
            "" if requirements.is_empty() => return Ok(requirements),
            "!" => {}
            it if is_word(it) => {}
            it => return Err(format!("found '{it}', expected: !, identifier, or 'end of string'")),
        }
        let requirement = reader.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
        requirements.push(requirement);
        match reader.take().as_str() {
            "" => return Ok(requirements),
            "," => {
                let next = reader.peek();
                if next != "!" && !is_word(next) {
                    return Err(format!("found '{next}', expected: identifier after ','"));
                }
            }
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

const SIGNS: &str = "=!<>(),";

/// Words and signs. Two signs in a row are one token if that is an operator.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    // A sign or word continues only without a space in between.
    let mut joined = false;
    for letter in text.chars() {
        if letter.is_whitespace() {
            joined = false;
            continue;
        }
        let sign = SIGNS.contains(letter);
        match tokens.last_mut().filter(|_| joined) {
            Some(last) if sign && letter == '=' && matches!(last.as_str(), "=" | "!") => last.push(letter),
            Some(last) if !sign && is_word(last) => last.push(letter),
            _ => tokens.push(letter.to_string()),
        }
        joined = true;
    }
    tokens
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|it| !SIGNS.contains(it))
}

struct Reader {
    tokens: Peekable<vec::IntoIter<String>>,
}

impl Reader {
    /// The next token; empty at the end.
    fn peek(&mut self) -> &str {
        self.tokens.peek().map_or("", |it| it)
    }

    fn take(&mut self) -> String {
        self.tokens.next().unwrap_or_default()
    }

    fn word(&mut self) -> Result<String, String> {
        let token = self.take();
        if is_word(&token) { Ok(token) } else { Err(format!("found '{token}', expected: identifier")) }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == "!" {
            self.take();
            let key = checked_key(self.word()?)?;
            return Ok(Requirement { key, test: Test::Missing });
        }
        let key = checked_key(self.take())?;
        if matches!(self.peek(), "" | ",") {
            return Ok(Requirement { key, test: Test::Exists });
        }
        let operator = self.take();
        let test = match operator.as_str() {
            "in" => Test::In(checked(&key, self.values()?)?),
            "notin" => Test::NotIn(checked(&key, self.values()?)?),
            "=" | "==" => Test::In(checked(&key, vec![self.value()?])?),
            "!=" => Test::NotIn(checked(&key, vec![self.value()?])?),
            ">" => Test::Above(self.number(&key)?),
            "<" => Test::Below(self.number(&key)?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        Ok(Requirement { key, test })
    }

    /// One value. A missing one means the empty value.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), "" | ",") { Ok(String::new()) } else { self.word() }
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value()?;
        let number = value.parse().map_err(|_| {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            format!("values[0]: Invalid value: {value:?}: {why}")
        })?;
        checked(key, vec![value])?;
        Ok(number)
    }

    /// `(a, b)`. Nothing between two commas means the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.take();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let mut values = Vec::new();
        loop {
            let value = if is_word(self.peek()) { self.take() } else { String::new() };
            let empty = value.is_empty();
            values.push(value);
            match self.take().as_str() {
                ")" => break,
                "," => {}
                other if empty && values.len() == 1 => {
                    return Err(format!("found '{other}', expected: ',', ')' or identifier"));
                }
                other if empty => return Err(format!("found '{other}', expected: ',', or identifier")),
                other => return Err(format!("found '{other}', expected: ',' or ')'")),
            }
        }
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }
}

fn checked_key(key: String) -> Result<String, String> {
    let faults = qualified_names::faults_of_key(&key);
    if faults.is_empty() { Ok(key) } else { Err(format!("<nil>: Invalid value: {key:?}: {}", faults.join("; "))) }
}

fn checked(key: &str, values: Vec<String>) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let faults = qualified_names::faults_of_value(value);
        if !faults.is_empty() {
            wrong.push(format!("values[{at}][{key}]: Invalid value: {value:?}: {}", faults.join("; ")));
        }
    }
    match wrong.len() {
        0 => Ok(values),
        1 => Err(wrong.concat()),
        _ => Err(format!("[{}]", wrong.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_words_are_separated() {
        assert_eq!(tokens("a===b"), ["a", "==", "=", "b"]);
        assert_eq!(tokens("!!a"), ["!", "!", "a"]);
        assert_eq!(tokens("k notin(a , b)"), ["k", "notin", "(", "a", ",", "b", ")"]);
        assert_eq!(tokens("a< =5 6"), ["a", "<", "=", "5", "6"]);
        assert_eq!(tokens(" "), [""; 0]);
    }

    #[test]
    fn syntax_errors_have_the_messages_of_a_real_server() {
        let cases = [
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            ("a,", "found '', expected: identifier after ','"),
            ("=b", "found '=', expected: !, identifier, or 'end of string'"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a like b", "unable to parse requirement: found 'like', expected: in, notin, =, ==, !=, gt, lt"),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text).unwrap_err(), want, "{text}");
        }
    }
}
