use std::{fmt, path::Path};

use kube::config::{Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret, SecretString};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use crate::ConfigError;

/// Reads a kubeconfig.
///
/// # Errors
/// The error names the file and the field. An error contains no value, because that may be secret.
pub(crate) fn read(path: &Path) -> Result<Kubeconfig, ConfigError> {
    let bytes = std::fs::read(path).map_err(|err| invalid(path, format!("cannot be read: {err}")))?;
    // Without this check kube would read beyond the end of the bytes.
    if matches!(bytes[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) && bytes.len() % 2 == 1 {
        return Err(invalid(path, "is truncated UTF-16".to_owned()));
    }
    let mut file = Kubeconfig::read_from(path).map_err(|err| error_of(path, err))?;
    unset_empty_values(&mut file, path.parent().unwrap_or(Path::new("")));
    Ok(file)
}

/// Makes empty values unset, as client-go does. Paths are already absolute here, so an empty path is the folder of the
/// file.
fn unset_empty_values(file: &mut Kubeconfig, folder: &Path) {
    let no_text = |it: &mut Option<String>| drop(it.take_if(|it| it.is_empty()));
    let no_path = |it: &mut Option<String>| drop(it.take_if(|it| it.is_empty() || Path::new(it) == folder));
    let no_secret = |it: &mut Option<SecretString>| drop(it.take_if(|it| it.expose_secret().is_empty()));
    for cluster in file.clusters.iter_mut().filter_map(|it| it.cluster.as_mut()) {
        no_text(&mut cluster.certificate_authority_data);
        no_path(&mut cluster.certificate_authority);
        no_text(&mut cluster.tls_server_name);
    }
    for user in file.auth_infos.iter_mut().filter_map(|it| it.auth_info.as_mut()) {
        no_text(&mut user.client_certificate_data);
        no_path(&mut user.client_certificate);
        no_secret(&mut user.client_key_data);
        no_path(&mut user.client_key);
        no_secret(&mut user.token);
        no_path(&mut user.token_file);
        no_text(&mut user.username);
        no_secret(&mut user.password);
        no_text(&mut user.impersonate);
    }
}

fn invalid(path: &Path, reason: String) -> ConfigError {
    ConfigError::Kubeconfig { path: path.to_owned(), reason }
}

/// Resolves the configuration of the current context.
///
/// # Errors
/// The error names the file and the field.
pub(crate) fn resolve(path: &Path, file: Kubeconfig) -> Result<kube::Config, ConfigError> {
    kube::Config::try_from(file).map_err(|err| error_of(path, err))
}

fn error_of(path: &Path, err: KubeconfigError) -> ConfigError {
    let reason = match &err {
        KubeconfigError::ReadConfig(err, _) => format!("cannot be read: {err}"),
        KubeconfigError::Parse(err) => {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let position = match err.location() {
                Some(at) => format!("line {}, column {}", at.line(), at.column()),
                None => "somewhere in it".to_owned(),
            };
            wrong_field(&text, err).unwrap_or_else(|| format!("is no kubeconfig in YAML: {position}"))
        }
        // A name that does not exist may be a secret value on the wrong line, so it is not shown.
        KubeconfigError::LoadContext(_) | KubeconfigError::LoadClusterOfContext(_) => {
            format!("{}: refers to an entry that is not in the file", field(&err))
        }
        other => format!("{}: {other}", field(other)),
    };
    invalid(path, reason)
}

/// The field that an error of kube is about.
fn field(err: &KubeconfigError) -> &'static str {
    match err {
        KubeconfigError::CurrentContextNotSet | KubeconfigError::LoadContext(_) => "current-context",
        KubeconfigError::LoadClusterOfContext(_) => "context.cluster",
        KubeconfigError::MissingClusterUrl | KubeconfigError::ParseClusterUrl(_) => "cluster.server",
        KubeconfigError::ParseProxyUrl(_) => "cluster.proxy-url",
        KubeconfigError::LoadCertificateAuthority(_) | KubeconfigError::ParseCertificates(_) => {
            "cluster.certificate-authority"
        }
        KubeconfigError::LoadClientCertificate(_) => "user.client-certificate",
        KubeconfigError::LoadClientKey(_) => "user.client-key",
        KubeconfigError::KindMismatch => "kind",
        KubeconfigError::ApiVersionMismatch => "apiVersion",
        _ => "kubeconfig",
    }
}

/// The field names of a kubeconfig. A key with another name may be a secret value with wrong indentation, so it is not
/// shown.
const NAMES: &[&str] = &[
    "apiVersion",
    "args",
    "as",
    "as-groups",
    "as-uid",
    "as-user-extra",
    "auth-provider",
    "certificate-authority",
    "certificate-authority-data",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "cluster",
    "clusters",
    "command",
    "config",
    "context",
    "contexts",
    "current-context",
    "disable-compression",
    "env",
    "exec",
    "extension",
    "extensions",
    "insecure-skip-tls-verify",
    "installHint",
    "interactiveMode",
    "kind",
    "name",
    "namespace",
    "password",
    "preferences",
    "provideClusterInfo",
    "proxy-url",
    "server",
    "tls-server-name",
    "token",
    "tokenFile",
    "user",
    "username",
    "users",
    "value",
];

/// The field with the wrong type; `None` if the text is not YAML at all.
fn wrong_field(text: &str, err: &serde_saphyr::Error) -> Option<String> {
    let words = err.without_snippet().to_string();
    let is_missing = words.starts_with("missing field");
    let documents: Vec<Spanned<YamlNode>> = serde_saphyr::from_multiple(text).ok()?;
    let at = position(err.location()?);
    let mut path = String::new();
    let document = documents.iter().rev().find(|it| position(it.referenced) <= at)?;
    document.value.path_to(at, is_missing, &mut path);
    if path.is_empty() {
        return None;
    }
    // The value that was found may be secret. What was expected is not.
    let expected = words.rsplit_once(", expected ").map(|it| it.1).or_else(|| words.strip_prefix("expected "));
    let wrong = match expected {
        Some(expected) => format!("expected {expected}"),
        None if is_missing => words,
        None => "is not valid".to_owned(),
    };
    Some(format!("{path}: {wrong}"))
}

fn position(at: Location) -> (u64, u64) {
    (at.line(), at.column())
}

/// A YAML document reduced to its keys and their positions.
///
/// serde_path_to_error is not used: for all fields of a kubeconfig it took four hundred kilobytes of an idle manager's
/// memory.
enum YamlNode {
    Leaf,
    List(Vec<Spanned<YamlNode>>),
    Map(Vec<(Spanned<String>, YamlNode)>),
}

impl YamlNode {
    /// Appends the path of the last node that begins at or before the position, up to the first unknown name. A missing
    /// field belongs to the node that begins there, not to its first child.
    fn path_to(&self, at: (u64, u64), is_missing: bool, path: &mut String) {
        let has_begun =
            |key: &Spanned<String>| position(key.referenced) < at || !is_missing && position(key.referenced) == at;
        match self {
            Self::Leaf => {}
            Self::List(items) => {
                if let Some((number, item)) = items.iter().enumerate().rfind(|(_, it)| position(it.referenced) <= at) {
                    path.push_str(&format!("[{number}]"));
                    item.value.path_to(at, is_missing, path);
                }
            }
            Self::Map(entries) => {
                // Entries from a merge or an alias have the positions of another mapping, so they are left out.
                let own = entries.iter().filter(|(key, _)| key.referenced == key.defined && has_begun(key));
                let last = own.max_by_key(|(key, _)| position(key.referenced));
                if let Some((key, value)) = last.filter(|(key, _)| NAMES.contains(&key.value.as_str())) {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(&key.value);
                    value.path_to(at, is_missing, path);
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(YamlNodeVisitor)
    }
}

struct YamlNodeVisitor;

impl<'de> Visitor<'de> for YamlNodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<YamlNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = from.next_entry()? {
            entries.push(entry);
        }
        Ok(YamlNode::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<YamlNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<YamlNode, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_bool<E>(self, _: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_i128<E>(self, _: i128) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_u128<E>(self, _: u128) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<YamlNode, E> {
        Ok(YamlNode::Leaf)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use crate::load;

    /// A kubeconfig with all fields. Its secrets are searched for in the error messages.
    const COMPLETE: &str = r#"apiVersion: v1
kind: Config
current-context: here
clusters:
- name: c
  cluster:
    server: https://10.0.0.1:6443/prefix
    certificate-authority: ca.crt
    tls-server-name: kubernetes
    proxy-url: http://proxy:3128
    insecure-skip-tls-verify: false
    extensions:
    - name: client.authentication.k8s.io/exec
      extension: {audience: a}
contexts:
- name: here
  context: {cluster: c, user: u, namespace: n}
- name: there
  context:
    cluster: c
    user: v
users:
- name: u
  user:
    token: CANARY-TOKEN
    client-certificate-data: Q0FOQVJZ
    client-key-data: CANARYKEY
    as: somebody
    as-groups: [a, b]
    as-user-extra: {reason: [why]}
- name: v
  user:
    username: me
    password: CANARY-PASSWORD
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: plugin
      args: [--CANARY-ARGUMENT]
      env: [{name: A, value: CANARY-VALUE}]
      interactiveMode: Never
      provideClusterInfo: true
"#;

    /// The values that replace a line.
    const REPLACEMENTS: &[&str] = &[
        "",
        "~",
        "[]",
        "{}",
        "[[[[",
        "{{",
        "'",
        "\"",
        "|",
        ">",
        "&a",
        "*a",
        "*b",
        "!!binary x",
        "!x",
        "---",
        "...",
        "1e999",
        "-0",
        "0x7f",
        "true",
        "\u{0}",
        "\u{feff}",
        "\u{202e}",
        "\t",
        "- - -",
        "? a",
        ": b",
        "<<: *a",
        "https://",
        "https://[::1",
        "http://a b",
        "ftp://x",
        "://",
        "https://x:99999",
        "%zz",
        "../../../../etc",
        "CANARY-TOKEN: CANARY-TOKEN",
        "here",
        "there",
        "{a: &x [*x]}",
    ];

    fn corrupt(rng: &mut fastrand::Rng, text: &mut String) {
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let line = rng.usize(..lines.len());
        match rng.u8(..9) {
            0 => drop(lines.remove(line)),
            1 => lines.insert(line, lines[rng.usize(..lines.len())].clone()),
            2 => lines[line] = REPLACEMENTS[rng.usize(..REPLACEMENTS.len())].to_owned(),
            3 | 4 => {
                let key = lines[line].split_inclusive(':').next().unwrap_or_default().to_owned();
                lines[line] = format!("{key} {}", REPLACEMENTS[rng.usize(..REPLACEMENTS.len())]);
            }
            5 => lines.truncate(line),
            6 => lines[line].insert_str(0, &" ".repeat(rng.usize(1..5))),
            _ => {
                let mut letters: Vec<char> = lines[line].chars().collect();
                let at = rng.usize(..=letters.len());
                match rng.u8(..3) {
                    0 if at < letters.len() => drop(letters.remove(at)),
                    1 if at < letters.len() => letters[at] = rng.char(..),
                    _ => letters.insert(at, char::from(rng.u8(32..127))),
                }
                lines[line] = letters.into_iter().collect();
            }
        }
        *text = lines.join("\n");
        if text.is_empty() {
            text.push('\n');
        }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap().self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.crt"), ca.pem()).unwrap();
        let path = folder.path().join("kubeconfig");
        (folder, path)
    }

    /// `KUBECONFIG_CASES=1000000` runs it for many hours.
    #[test]
    fn corrupt_kubeconfig_is_an_error_that_names_the_file_and_contains_no_secret() {
        let cases = std::env::var("KUBECONFIG_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(2_000);
        let (_folder, path) = folder();
        let file = path.display().to_string();
        let (mut loaded, mut refused) = (0, 0);
        for seed in 0..cases {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut text = COMPLETE.to_owned();
            if rng.bool() {
                text = text.replace("current-context: here", "current-context: there");
            }
            for _ in 0..rng.usize(1..5) {
                corrupt(&mut rng, &mut text);
            }
            fs::write(&path, &text).unwrap();
            match load(Some(&path), None) {
                Ok(_) => loaded += 1,
                Err(err) => {
                    refused += 1;
                    let message = err.to_string();
                    assert!(message.contains(&file) && message.contains(": "), "seed {seed}: {message}");
                    assert!(!message.contains("CANARY"), "seed {seed}: {message}");
                }
            }
        }
        assert!(loaded > 0 && refused > 0, "{loaded} loaded, {refused} refused");
    }

    #[test]
    fn empty_values_count_as_unset() {
        let (folder, path) = folder();
        let empty = COMPLETE
            .replace("client-certificate-data: Q0FOQVJZ", "client-certificate-data: ''\n    client-certificate: ''")
            .replace("client-key-data: CANARYKEY", "client-key-data: ''\n    client-key: ''\n    tokenFile: ''")
            .replace("    server: https", "    certificate-authority-data: ''\n    server: https");
        fs::write(&path, &empty).unwrap();
        let config = load(Some(&path), None).unwrap();
        let user = config.auth_info;
        assert!(user.client_certificate.is_none() && user.client_certificate_data.is_none());
        assert!(user.client_key.is_none() && user.client_key_data.is_none() && user.token_file.is_none());
        assert!(user.token.is_some() && config.root_cert.is_some_and(|it| it.len() == 1));
        assert_eq!(config.root_cert_file, Some(folder.path().join("ca.crt")));
    }

    #[test]
    fn truncated_utf_16_is_an_error() {
        let (_folder, path) = folder();
        for bytes in [&[0xff, 0xfe, 0x61][..], &[0xfe, 0xff, 0x00, 0x61, 0x00]] {
            fs::write(&path, bytes).unwrap();
            assert!(load(Some(&path), None).unwrap_err().to_string().contains("truncated"));
        }
    }

    #[test]
    fn errors_name_the_field_and_contain_no_value() {
        let (_folder, path) = folder();
        for (from, to, words) in [
            ("token: CANARY-TOKEN", "token: {a: CANARY}", "users[0].user.token: "),
            ("provideClusterInfo: true", "provideClusterInfo: CANARY", "users[1].user.exec.provideClusterInfo: "),
            ("interactiveMode: Never", "interactiveMode: CANARY", "users[1].user.exec.interactiveMode: "),
            ("- name: u\n", "- nome: u\n", "users[0]: missing field `name`"),
            ("- name: v\n  user:\n", "- user:\n", "users[1]: missing field `name`"),
            ("token: CANARY-TOKEN", "token: {'x, expected CANARY': y}", "users[0].user.token: "),
            ("token: CANARY-TOKEN", "token[CANARY: {}\n    username: []", "users[0].user.username: "),
            ("    as: somebody\n", "    <<: {username: me}\n    as: {}\n", "users[0].user.as: "),
            ("current-context: here", "x: &x {name: b}\ncurrent-context: *x", "current-context: "),
            ("as-groups: [a, b]", "as-groups: [a, {b: CANARY}]", "users[0].user.as-groups[1]: "),
            ("env: [{name: A, value: CANARY-VALUE}]", "env: CANARY", "users[1].user.exec.env: "),
            ("- name: there\n  context:\n", "- name: there\n  context: CANARY\n  x:\n", "contexts[1].context: "),
            ("clusters:\n", "clusters: CANARY\nxs:\n", "clusters: "),
            ("current-context: here", "current-context: nowhere", "current-context: "),
            ("server: https://10.0.0.1:6443/prefix", "server: 'https://a b'", "cluster.server: "),
            ("  context: {cluster: c,", "  context: {cluster: d,", "context.cluster: "),
            ("certificate-authority: ca.crt", "certificate-authority: gone.crt", "cluster.certificate-authority: "),
            ("token: CANARY-TOKEN", "token: [CANARY", "line "),
        ] {
            assert!(COMPLETE.contains(from), "{from}");
            fs::write(&path, COMPLETE.replacen(from, to, 1)).unwrap();
            let message = load(Some(&path), None).unwrap_err().to_string();
            assert!(message.contains(words) && message.contains("--kubeconfig"), "{words} in {message}");
            assert!(!message.contains("CANARY"), "{message}");
        }
    }
}
