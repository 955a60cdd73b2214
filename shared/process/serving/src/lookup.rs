//! Reads the authorities for client certificates from the ConfigMap kube-system/extension-apiserver-authentication.

use std::{collections::BTreeMap, time::Duration};

use client::Api;
use serde::Deserialize;
use tokio::time::timeout;

use crate::authorities::{Bundle, Proxies, ProxyHeaders};

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The name of the ConfigMap in error messages.
const NAME: &str = "configmap/extension-apiserver-authentication in kube-system";
/// The timeout of the lookup; a healthy server needs less.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of the ConfigMap.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterAuthorities {
    pub(crate) clients: Option<Bundle>,
    pub(crate) proxies: Option<Proxies>,
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// Reads the ConfigMap from the cluster.
///
/// # Errors
/// If it cannot be read, or if a key is invalid; the message names the key.
pub(crate) async fn fetch(api: &Api) -> Result<ClusterAuthorities, String> {
    let response = timeout(LOOKUP_TIMEOUT, api.read(PATH, "application/json")).await;
    let response = response.map_err(|_| format!("{NAME}: no answer within {LOOKUP_TIMEOUT:?}"))?;
    let response = response.map_err(|err| format!("{NAME}: {err}"))?;
    let ConfigMap { data } = serde_json::from_slice(&response).map_err(|err| format!("{NAME}: {err}"))?;
    parse(&data)
}

fn parse(data: &BTreeMap<String, String>) -> Result<ClusterAuthorities, String> {
    let invalid = |key: &str, why: String| format!("{NAME}: {key}: {why}");
    let bundle = |key: &str| match data.get(key).filter(|it| !it.is_empty()) {
        Some(pem) => Bundle::read(pem.as_bytes()).map(Some).map_err(|why| invalid(key, why)),
        None => Ok(None),
    };
    let list = |key: &str| match data.get(key).filter(|it| !it.is_empty()) {
        Some(text) => serde_json::from_str::<Vec<String>>(text).map_err(|err| invalid(key, err.to_string())),
        None => Ok(Vec::new()),
    };
    let headers = ProxyHeaders {
        username: list("requestheader-username-headers")?,
        uid: list("requestheader-uid-headers")?,
        group: list("requestheader-group-headers")?,
        extra_prefix: list("requestheader-extra-headers-prefix")?,
    };
    if let Some(name) = headers.invalid() {
        return Err(invalid("requestheader-*", format!("{name:?} is no header's name")));
    }
    let proxies = Proxies {
        authorities: bundle("requestheader-client-ca-file")?,
        allowed: list("requestheader-allowed-names")?,
        headers,
    };
    Ok(ClusterAuthorities { clients: bundle("client-ca-file")?, proxies: Some(proxies) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn configmap_of_a_kubeadm_cluster_is_parsed() {
        let (clients, proxies) = (Authority::new("clients").pem(), Authority::new("proxies").pem());
        let authorities = parse(&data(&[
            ("client-ca-file", &clients),
            ("requestheader-client-ca-file", &proxies),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
            ("requestheader-uid-headers", r#"["X-Remote-Uid"]"#),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ]))
        .unwrap();
        assert!(authorities.clients.is_some());
        let proxies = authorities.proxies.unwrap();
        assert!(proxies.authorities.is_some());
        assert_eq!(proxies.allowed, ["front-proxy-client"]);
        assert_eq!(proxies.headers.username, ["X-Remote-User"]);
    }

    #[test]
    fn missing_key_trusts_no_client_and_invalid_key_is_an_error() {
        let authorities = parse(&BTreeMap::new()).unwrap();
        assert!(authorities.clients.is_none() && authorities.proxies.unwrap().authorities.is_none());
        for (key, value) in [
            ("client-ca-file", "nonsense"),
            ("requestheader-allowed-names", "front-proxy"),
            ("requestheader-username-headers", r#"["a b"]"#),
        ] {
            let err = parse(&data(&[(key, value)])).unwrap_err();
            assert!(err.contains(key.split_once('-').unwrap().0) && err.contains("kube-system"), "{err}");
        }
    }
}
