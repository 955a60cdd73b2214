//! Validates keys and values of labels, with a real server's messages.

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
    is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LONGEST: usize = 63;
const LONGEST_PREFIX: usize = 253;

/// The faults of a key `[prefix/]name`.
pub(crate) fn faults_of_key(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut parts = key.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > LONGEST_PREFIX {
                    faults.push(format!("prefix part must be no more than {LONGEST_PREFIX} bytes"));
                }
                if !is_subdomain(prefix) {
                    faults.push(format!("prefix part {SUBDOMAIN}"));
                }
            }
            name
        }
        _ => {
            let prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {NAME} {prefixed}")];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    if name.len() > LONGEST {
        faults.push(format!("name part must be no more than {LONGEST} bytes"));
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME}"));
    }
    faults
}

/// The faults of a label value.
pub(crate) fn faults_of_value(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LONGEST {
        faults.push(format!("must be no more than {LONGEST} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE.to_owned());
    }
    faults
}

fn is_name(text: &str) -> bool {
    let inside = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    let outside = |it: Option<&u8>| it.is_some_and(u8::is_ascii_alphanumeric);
    outside(text.as_bytes().first()) && outside(text.as_bytes().last()) && text.bytes().all(inside)
}

fn is_subdomain(text: &str) -> bool {
    let legal = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    text.split('.').all(|part| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|it| legal(*it))
            && bytes.last().is_some_and(|it| legal(*it))
            && bytes.iter().all(|it| legal(*it) || *it == b'-')
    })
}
