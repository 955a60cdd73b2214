/// `?verbose` and `?exclude=name`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Lists each check in the answer.
    pub verbose: bool,
    /// Names of checks whose failure is ignored.
    pub exclude: Vec<String>,
}

impl Query {
    /// Parses the query string of a URL.
    #[must_use]
    pub fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "verbose" => parsed.verbose = true,
                "exclude" => parsed.exclude.push(value.into_owned()),
                _ => {}
            }
        }
        parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_urls_are_written() {
        let query =
            |verbose, exclude: &[&str]| Query { verbose, exclude: exclude.iter().map(|it| (*it).to_owned()).collect() };
        for (text, want) in [
            ("", query(false, &[])),
            ("verbose", query(true, &[])),
            ("verbose=0&x=y", query(true, &[])),
            ("exclude=a&exclude=b&verbose", query(true, &["a", "b"])),
            ("exclude=informer-sync%2Fpods", query(false, &["informer-sync/pods"])),
            ("exclude", query(false, &[""])),
            ("%zz&=&&exclude=%ff", query(false, &["\u{fffd}"])),
        ] {
            assert_eq!(Query::parse(text), want, "{text}");
        }
    }
}
