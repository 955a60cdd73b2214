//! A parser for the Prometheus text format, as far as the comparison needs it.

use std::collections::{BTreeMap, BTreeSet};

use super::allowed::Kind;

/// One metric family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Family {
    kind: String,
    /// The labels of all its series.
    labels: BTreeSet<String>,
    /// Upper bounds, to six digits, because Go computes some of them by multiplication.
    buckets: BTreeSet<String>,
    stability: String,
}

impl Family {
    /// The first difference of two families.
    pub(crate) fn differs(&self, other: &Self) -> Option<Kind> {
        if self.kind != other.kind {
            Some(Kind::OtherType)
        } else if self.labels != other.labels {
            Some(Kind::OtherLabels)
        } else if self.buckets != other.buckets {
            Some(Kind::OtherBuckets)
        } else {
            (self.stability != other.stability).then_some(Kind::OtherStability)
        }
    }
}

/// All families of a page.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            let level = help.strip_prefix('[').and_then(|it| it.split_once(']')).map_or("", |it| it.0);
            families.entry(name.to_owned()).or_default().stability = level.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            families.entry(name.to_owned()).or_default().kind = kind.to_owned();
            current = name.to_owned();
        } else if let Some((_, labels)) = line.rsplit_once('}').and_then(|it| it.0.split_once('{')) {
            let family = families.entry(current.clone()).or_default();
            for (name, value) in pairs(labels) {
                match (name.as_str(), value.parse::<f64>()) {
                    ("le", Ok(bound)) => drop(family.buckets.insert(format!("{bound:.6e}"))),
                    _ => drop(family.labels.insert(name)),
                }
            }
        }
    }
    families
}

/// `name="value"`, separated by commas, with escapes.
fn pairs(labels: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut letters = after.char_indices();
        let mut end = after.len();
        while let Some((place, letter)) = letters.next() {
            match letter {
                '"' => {
                    end = place + 1;
                    break;
                }
                '\\' => value.extend(letters.next().map(|it| it.1)),
                _ => value.push(letter),
            }
        }
        found.push((name.trim_start_matches(',').to_owned(), value));
        rest = &after[end..];
    }
    found
}

#[test]
fn families_are_read_with_type_labels_buckets_and_stability() {
    let text = "# HELP a_seconds [BETA] A.\n# TYPE a_seconds histogram\na_seconds_bucket{verb=\"G{}\\\"ET\",le=\"0.5\"} 1\n\
                a_seconds_bucket{verb=\"GET\",le=\"+Inf\"} 1\na_seconds_sum{verb=\"GET\"} 0.2\n\
                # HELP b B.\n# TYPE b gauge\nb 1\n";
    let families = parse(text);
    let a = &families["a_seconds"];
    assert_eq!((a.kind.as_str(), a.stability.as_str()), ("histogram", "BETA"));
    assert_eq!(a.labels, BTreeSet::from(["verb".to_owned()]));
    assert_eq!(a.buckets, ["5.000000e-1", "inf"].map(str::to_owned).into());
    assert_eq!(parse("a_bucket{le=\"9.999999999999999e-06\"} 1"), parse("a_bucket{le=\"0.00001\"} 1"));
    assert_eq!(families["b"], Family { kind: "gauge".to_owned(), ..Family::default() });
}
