//! Selects from discovery the kinds that a namespace sync needs.

use api::Resource;
use client::discovery::{Discovery, ServedResource};

/// What discovery shows of pods. All other content waits for the pods to end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pods<'a> {
    Served(&'a ServedResource),
    /// The server does not serve pods.
    NotServed,
    /// The group that serves pods did not answer discovery.
    Unknown,
}

/// Every kind whose objects can be deleted from a namespace, ordered by group and name. Each is in the version that the
/// server prefers among those that support deletion.
pub(crate) fn kinds(discovery: &Discovery) -> Vec<&ServedResource> {
    discovery.choose(|it| it.resource.namespaced && it.has_verb("delete"))
}

/// Returns how pods are served.
pub(crate) fn pods<'a>(discovery: &Discovery, kinds: &[&'a ServedResource]) -> Pods<'a> {
    let pods = kinds.iter().find(|it| it.resource.group.is_empty() && &*it.resource.plural == "pods");
    match pods {
        Some(kind) => Pods::Served(kind),
        None if discovery.is_complete() => Pods::NotServed,
        None => Pods::Unknown,
    }
}

/// True for kinds that protect pods. A pod that is admitted late must not run without them.
pub(crate) fn protects_pods(kind: &Resource) -> bool {
    kind.plural.ends_with("networkpolicies")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn served(group: &str, version: &str, plural: &str, verbs: &[&str]) -> ServedResource {
        ServedResource::new(Resource::namespaced(group, version, plural, "Any"), true, verbs.iter().copied())
    }

    fn discovery(served: &[ServedResource], failed: &[&str]) -> Discovery {
        let failed = failed.iter().map(|it| ((*it).to_owned(), "stale".to_owned()));
        Discovery { served: served.to_vec(), failed: failed.collect(), ..Discovery::default() }
    }

    #[test]
    fn only_namespaced_deletable_kinds_count_in_their_first_deletable_version() {
        let cluster = ServedResource::new(Resource::cluster("", "v1", "nodes", "Node"), true, ["delete"]);
        let all = [
            served("", "v1", "bindings", &["create"]),
            served("", "v1", "pods", &["delete", "list"]),
            cluster,
            served("a.io", "v2", "things", &["list"]),
            served("a.io", "v1", "things", &["delete"]),
        ];
        let discovery = discovery(&all, &[]);
        assert_eq!(kinds(&discovery), [&all[1], &all[4]]);
    }

    #[test]
    fn pods_missing_from_discovery_are_unknown_while_a_group_fails() {
        let (there, other) = (served("", "v1", "pods", &["delete"]), served("a.io", "v1", "things", &["delete"]));
        let silent = discovery(std::slice::from_ref(&other), &["metrics.k8s.io/v1beta1"]);
        let without = discovery(std::slice::from_ref(&other), &[]);
        let broken = BTreeMap::from([("/api", "no answer".to_owned())]);
        let half = Discovery { broken, ..without.clone() };
        let with = discovery(&[there.clone(), other], &["metrics.k8s.io/v1beta1"]);
        assert_eq!(pods(&with, &kinds(&with)), Pods::Served(&there));
        for (discovery, want) in [(silent, Pods::Unknown), (without, Pods::NotServed), (half, Pods::Unknown)] {
            assert_eq!(pods(&discovery, &kinds(&discovery)), want);
        }
    }

    #[test]
    fn network_policies_of_every_group_protect_pods() {
        for (group, plural, want) in [
            ("networking.k8s.io", "networkpolicies", true),
            ("cilium.io", "ciliumnetworkpolicies", true),
            ("policy", "poddisruptionbudgets", false),
            ("", "configmaps", false),
        ] {
            assert_eq!(protects_pods(&Resource::namespaced(group, "v1", plural, "Any")), want, "{plural}");
        }
    }
}
