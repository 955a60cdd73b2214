/// `?verbose` and `?exclude=name`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProbeQuery {
    /// Lists each check in the answer.
    pub verbose: bool,
    /// Names of checks whose failure is ignored.
    pub exclude: Vec<String>,
}

impl ProbeQuery {
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
    fn queries_are_parsed_as_url_encoded() {
        let query = |verbose, exclude: &[&str]| ProbeQuery {
            verbose,
            exclude: exclude.iter().map(|it| (*it).to_owned()).collect(),
        };
        for (text, want) in [
            ("", query(false, &[])),
            ("verbose", query(true, &[])),
            ("verbose=0&x=y", query(true, &[])),
            ("exclude=a&exclude=b&verbose", query(true, &["a", "b"])),
            ("exclude=informer-sync%2Fpods", query(false, &["informer-sync/pods"])),
            ("exclude", query(false, &[""])),
            ("%zz&=&&exclude=%ff", query(false, &["\u{fffd}"])),
        ] {
            assert_eq!(ProbeQuery::parse(text), want, "{text}");
        }
    }
}
